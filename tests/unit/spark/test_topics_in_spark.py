"""Spark itself over the source, against brokers in this process."""

import asyncio
from pathlib import Path

import pytest
import regnum_spark
from pyspark.sql import SparkSession
from regnum_testing.fake_cluster import FakeCluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]


def stream(spark: SparkSession, options: dict[str, str], folder: Path) -> list[bytes]:
    """What the stream has told after all that there is now."""
    records = spark.readStream.format("regnum").options(**options, maxOffsetsPerTrigger="20").load("t")
    query = (
        records.select("value", "partition", "offset")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/rows")
    )
    query.awaitTermination()
    return sorted(row["value"] for row in spark.read.parquet(f"{folder}/rows").collect())


def work(spark: SparkSession, options: dict[str, str], folder: Path) -> tuple[list[bytes], list[bytes]]:
    """What was streamed in the end, and what was sent."""
    rows = [(b"%d" % n, f"v{n}", n % 3) for n in range(60)]
    frame = spark.createDataFrame(rows, "key BINARY, value STRING, partition INT")
    frame.write.format("regnum").options(**options).mode("append").save("t")
    read = spark.read.format("regnum").options(**options).load("t")
    found = read.where("partition = 1 and offset >= 5").select("key", "value", "offset").collect()
    assert sorted((row["offset"], bytes(row["key"]), bytes(row["value"])) for row in found) == [
        (at, b"%d" % (3 * at + 1), f"v{3 * at + 1}".encode()) for at in range(5, 20)
    ]
    values = sorted(value.encode() for _, value, _ in rows)
    assert stream(spark, options, folder) == values
    assert stream(spark, options, folder) == values
    spark.createDataFrame([("more",)], "value STRING").write.format("regnum").options(**options).mode("append").save(
        "t"
    )
    return stream(spark, options, folder), sorted([*values, b"more"])


async def test_topics_are_written_read_and_streamed_on_from_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    regnum_spark.register(spark)
    async with FakeCluster() as cluster:
        cluster.create("t", partitions=3)
        streamed, sent = await asyncio.to_thread(work, spark, {"bootstrap": cluster.bootstrap}, tmp_path)
    assert streamed == sent
