"""Topics of a Regnum cluster for Spark: ``format("regnum")``, to read in a batch or as they come, and to write.

>>> import regnum_spark
>>> regnum_spark.register(spark)
>>> spark.read.format("regnum").option("bootstrap", "broker-1:9092").option("subscribe", "orders").load()

No jar is needed: Spark calls this package in its Python workers, so it is installed wherever executors run
(``regnum[spark]``). See docs/spark.md.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let a session know the format, and have it push filters down."""
    from regnum_spark.source import RegnumSource  # noqa: PLC0415 - ``import regnum_spark`` needs neither Spark nor gRPC

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(RegnumSource)
