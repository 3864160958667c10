"""Records: read in pages, searched, told as text."""
