"""`regnum backup` and `regnum restore`: the store's tree in a file."""
