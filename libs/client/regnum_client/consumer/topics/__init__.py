"""Topics that a consumer reads: by name, and by a pattern of names."""
