"""Commands that make topics and partitions, and that remove them."""
