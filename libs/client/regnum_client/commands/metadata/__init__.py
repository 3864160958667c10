"""`regnum metadata`: whether all processes hold the same, and how far they are."""
