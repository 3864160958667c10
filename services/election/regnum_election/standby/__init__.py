"""Standing by: the controller's picture is kept as it changes, so that a successor need not read what exists."""
