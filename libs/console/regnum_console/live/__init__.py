"""What goes on while a page is open: streams to it, and traces as they are written."""
