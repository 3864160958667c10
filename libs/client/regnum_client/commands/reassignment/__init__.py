"""Commands that move partitions."""
