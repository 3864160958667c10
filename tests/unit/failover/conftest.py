"""One small Spark for all tests of the job; without Java they are skipped."""

import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from regnum_failover.session import LOCAL_SETTINGS, SETTINGS, use_this_python


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java 17")
    use_this_python()
    builder = SparkSession.builder.appName("tests").master("local[1]")
    for key, value in {**LOCAL_SETTINGS, **SETTINGS, "spark.sql.shuffle.partitions": "1"}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
