"""Batches before they are sent: filled, chosen, in order. Pure."""
