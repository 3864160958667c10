"""What the metadata service answers."""
