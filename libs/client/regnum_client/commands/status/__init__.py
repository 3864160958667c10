"""`regnum status`."""
