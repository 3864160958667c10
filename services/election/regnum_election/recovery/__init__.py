"""Partitions that nobody may lead: what is left of them, and leading them again."""
