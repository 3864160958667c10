"""What is committed, read for clients."""
