"""Changes of leadership as traces: their roots, where they begin, and which of them belong together."""
