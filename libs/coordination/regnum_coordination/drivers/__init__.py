"""One driver for each store.

Nothing outside this package imports them, except tests that need the memory store's faults.
"""
