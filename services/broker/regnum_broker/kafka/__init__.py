"""Kafka's protocol: a second door to the same handlers. It decides nothing."""
