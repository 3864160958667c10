"""Benchmarks of Regnum: the command ``regnum-bench``. Real processes, every value kept, a peer beside them."""
