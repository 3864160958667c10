"""Replicas on disk that no order is about: whether they belong to this broker still (safety rule S13)."""
