"""Partitions to other brokers: who is to have what, how that is asked for, and how far it is."""
