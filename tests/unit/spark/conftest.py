"""Tests of the source of topics and of the job share a Spark."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from regnum_testing.small_spark import small_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with small_spark() as session:
        yield session
