"""Calls of clients about the log, as both doors make them."""
