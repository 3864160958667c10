"""Outages of a real cluster, counted by their own acknowledgements and compared with what the traces say of them."""
