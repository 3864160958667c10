"""Clusters that the command goes to by a name."""
