"""Partitions added to topics and removed from them."""
