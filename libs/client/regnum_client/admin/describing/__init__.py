"""What is there, page by page."""
