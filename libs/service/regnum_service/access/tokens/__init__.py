"""Delegation tokens in a process: all that there are, who shows one, and streams that end with them."""
