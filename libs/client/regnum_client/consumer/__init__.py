"""Reading: from a position to records."""
