"""Consumers that share the work: who is in the group, who reads what, how far it has come."""
