"""Idempotent producers of one replica: what is remembered of them, and what of that is on the disk."""
