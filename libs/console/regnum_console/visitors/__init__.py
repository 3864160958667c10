"""Visitors of a console from other machines: each signs in, and the cluster answers with that person's rights."""
