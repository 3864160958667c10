"""Brokers that do not answer: why, and when that is told."""
