"""Topics of a real cluster in Spark: in batches, as a stream, and written; while leaders are killed."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
import regnum_spark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every reader of Spark code expects
from pyspark.sql.streaming.query import StreamingQuery
from regnum_client import TopicPartition
from regnum_local.cluster import LocalCluster
from regnum_local.demo.verdict import judge
from regnum_local.demo.workload import decode_number
from regnum_testing.small_spark import small_spark
from regnum_testing.under_load import LoadedCluster, under_load, until

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(900)]
TOPIC = "streamed"


def told(cluster: LocalCluster) -> dict[str, str]:
    """Options that say where the cluster is; over TLS with the client's certificate, as any client's."""
    options = {"bootstrap": ",".join(cluster.bootstrap)}
    if cluster.tls is not None:
        files = zip(("tlsCa", "tlsCertificate", "tlsKey"), cluster.tls.paths, strict=True)
        options |= {option: str(path) for option, path in files if path is not None}
    return options


def streamed(spark: SparkSession, options: Mapping[str, str], folder: Path) -> StreamingQuery:
    records = spark.readStream.format("regnum").options(**options, maxOffsetsPerTrigger="2000").load(TOPIC)
    return (
        records.select("topic", "partition", "offset", "value")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start(f"{folder}/rows")
    )


def assert_clean(running: LoadedCluster, rows: DataFrame) -> None:
    """Every partition as its producer knows it: nothing lost, nothing doubled, all in order."""
    logs: dict[TopicPartition, list[tuple[int, int]]] = {one: [] for one in running.partitions}
    for row in rows.orderBy("topic", "partition", "offset").collect():
        logs[TopicPartition(row["topic"], row["partition"])].append((row["offset"], decode_number(row["value"])))
    for partition, history in running.load.histories.items():
        verdict = judge(sent=history.sent, acknowledged=history.acknowledged, log=logs[partition])
        assert verdict.clean, (partition, verdict)


async def test_a_stream_and_a_batch_through_killed_leaders_and_back_into_a_topic(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with small_spark(cores=2) as spark:
        regnum_spark.register(spark)
        options = told(cluster)
        async with under_load(cluster, TOPIC) as running:
            query = await asyncio.to_thread(streamed, spark, options, tmp_path)
            for number in range(2):
                await running.stage.kill_leader(TopicPartition(TOPIC, number))
                for name in tuple(running.stage.killed):
                    await running.stage.restart(name)
                await running.stage.all_in_sync()
            # In the middle of it: another query goes on from the checkpoint.
            await asyncio.to_thread(query.stop)
            query = await asyncio.to_thread(streamed, spark, options, tmp_path)
            assert (await running.judged()).clean
            sent = sum(history.sent for history in running.load.histories.values())

            async def all_there() -> bool:
                assert query.exception() is None, query.exception()
                rows = await asyncio.to_thread(lambda: spark.read.parquet(f"{tmp_path}/rows").count())
                return rows >= sent

            await until(all_there, within_s=300)
            await asyncio.to_thread(query.stop)
            assert_clean(running, spark.read.parquet(f"{tmp_path}/rows"))
            batch = spark.read.format("regnum").options(**options, maxRecordsPerPartition="100").load(TOPIC)
            assert_clean(running, batch)
            assert batch.where("partition = 1 and offset >= 5 and offset < 25").count() == 20
            await running.stage.admin.create_topic("back", partitions=2, replication_factor=3)
            rows = batch.select(F.col("offset").cast("string").alias("key"), "value", "headers", "timestamp")
            rows.write.format("regnum").options(**options, topic="back").mode("append").save()
            back = spark.read.format("regnum").options(**options).load("back")
            same = ["key", "value", "timestamp", "headers"]
            assert sorted(map(tuple, back.select(*same).collect())) == sorted(map(tuple, rows.select(*same).collect()))
