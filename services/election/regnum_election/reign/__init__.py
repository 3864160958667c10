"""One reign: its fence, its store, what it reacts to, who waits for it."""
