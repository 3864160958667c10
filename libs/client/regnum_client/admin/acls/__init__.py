"""Access rules."""
