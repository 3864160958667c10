"""Traces out of a bucket and results into one: what the job does around Spark, which reads and writes folders."""
