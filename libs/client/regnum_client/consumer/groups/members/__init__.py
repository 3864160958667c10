"""A member of a group: what it is, what becomes of it, and what carries it through its life."""
