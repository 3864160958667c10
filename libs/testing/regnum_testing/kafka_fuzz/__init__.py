"""Recorded sessions of real clients of Kafka, and attacks that are made of them."""
