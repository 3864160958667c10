"""The Spark session of the job."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # An attribute that was set twice has its last value, as for whoever wrote it.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
}
"""What the results rely on."""

LOCAL_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Failovers are few; a task for each of Spark's 200 default partitions would only cost time.
    "spark.sql.shuffle.partitions": "2",
    # A small job is over before the second compiler and re-planning between stages pay for themselves: a third of the
    # time on a busy machine of two cores.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.adaptive.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""What suits one machine; given only where nobody submitted the job to a cluster."""

SUBMITTED_SETTINGS: Final = {
    # Of the default's 200 most partitions are empty, and of a stream each costs every step.
    "spark.sql.shuffle.partitions": "16",
}
"""What suits a run that was submitted to a cluster; given where the submission names nothing else."""


def is_submitted(environment: Mapping[str, str]) -> bool:
    """Whether spark-submit runs this, perhaps on a cluster."""
    return "PYSPARK_GATEWAY_PORT" in environment


def use_this_python() -> None:
    """Have Spark's workers run the interpreter that has this package, and not whichever ``python3`` is found first."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def unnamed(is_named: Callable[[str], bool], *, master: str, cores: int) -> dict[str, str]:
    """What a submission does not name of what suits it: on one machine a partition for each of its cores, as planned.

    To plan anew between stages costs each query of a small machine a tenth of the whole job's.
    """
    local = {"spark.sql.shuffle.partitions": str(cores), "spark.sql.adaptive.enabled": "false"}
    settings = local if master.startswith("local") else SUBMITTED_SETTINGS
    return {key: value for key, value in settings.items() if not is_named(key)}


@contextmanager
def closed_after(master: str) -> Iterator[SparkSession]:
    """The session of ``open_session``, for a while."""
    spark = open_session(master)
    try:
        yield spark
    finally:
        spark.stop()


def open_session(master: str = "local[*]") -> SparkSession:
    """The session: that of spark-submit, whose master and settings are then used, or a local one."""
    builder = SparkSession.builder.appName("regnum-failover")
    submitted = is_submitted(os.environ)
    if not submitted:
        use_this_python()
        builder = builder.master(master)
    for key, value in {**({} if submitted else LOCAL_SETTINGS), **SETTINGS}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if submitted:
        context = spark.sparkContext
        given = unnamed(context.getConf().contains, master=context.master or "", cores=context.defaultParallelism)
        for key, value in given.items():
            spark.conf.set(key, value)
    spark.sparkContext.setLogLevel("ERROR")
    return spark
