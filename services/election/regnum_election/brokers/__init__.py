"""Brokers that come, go, stop, fall silent, or ask for something."""
