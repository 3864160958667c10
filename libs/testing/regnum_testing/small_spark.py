"""A Spark as small as it gets, in this process."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession
from regnum_failover.session import LOCAL_SETTINGS, SETTINGS, use_this_python


@contextmanager
def small_spark(cores: int = 1) -> Iterator[SparkSession]:
    """A session; the outermost stops it at its end, and others within share it. Without Java the test is skipped."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    shared = SparkSession.getActiveSession()
    if shared is not None:
        yield shared
        return
    use_this_python()
    builder = SparkSession.builder.appName("tests").master(f"local[{cores}]")
    for key, value in {**LOCAL_SETTINGS, **SETTINGS, "spark.sql.shuffle.partitions": "1"}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()
