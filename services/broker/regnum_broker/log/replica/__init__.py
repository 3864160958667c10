"""The log of one replica: segments, index, producers, and what a kill left of them."""
