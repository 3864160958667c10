"""Access control by rules that lie in the store: read, kept up with, asked for every call."""
