"""Benchmarks: ``python -m regnum_bench NAME``. Each measures ours beside a yardstick in the same run."""
