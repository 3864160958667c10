"""Partitions on their way to other brokers, step by step."""
