"""Traces in files of folders and buckets, as a source of Spark that its executors read, each a part."""
