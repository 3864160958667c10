"""The state of one reign, and the one way by which it changes: decide, write, apply, tell."""
