"""Hearing of changes of the cluster without asking."""
