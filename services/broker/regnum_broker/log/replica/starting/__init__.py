"""Opening a replica: what is in its files, and what a kill or a loss of power has left of them."""
