"""`regnum groups`."""
