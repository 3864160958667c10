"""Topics of a cluster with certificates and rules in Spark: batches, a stream, writing; while leaders are killed."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
import regnum_spark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every reader of Spark code expects
from pyspark.sql.streaming.query import StreamingQuery
from regnum_client import Admin, TopicPartition
from regnum_client.admin.acls.values import (
    AclBinding,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from regnum_local.certificates import client_files, make
from regnum_local.cluster import LocalCluster
from regnum_local.demo.verdict import judge
from regnum_local.demo.workload import decode_number
from regnum_local.plan import CLUSTER_CA, PROCESSES, Role
from regnum_testing.small_spark import small_spark
from regnum_testing.under_load import LoadedCluster, under_load, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(1_800),
    pytest.mark.asyncio(loop_scope="module"),
]
TOPIC = "streamed"
FLAGS = ("--authorizer", "acl", "--super-users", f"User:{PROCESSES};User:admin")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """Processes and admin are super users; the client app, which is Spark, may nothing."""
    folder = tmp_path_factory.mktemp("spark") / "data"
    make(folder / "certs", [], clients=("admin", "app"))
    roles = (Role.ELECTION, Role.BROKER, Role.METADATA, Role.QUOTA)
    started = LocalCluster(folder, brokers=3, elections=1, metadata=1, tls=True, extra=dict.fromkeys(roles, FLAGS))
    await started.start()
    try:
        yield started
    finally:
        await started.stop()


def told(cluster: LocalCluster) -> dict[str, str]:
    """Options that say where the cluster is, with the certificate of app."""
    folder = cluster.data_dir / "certs"
    certificate, key = client_files(folder, "app")
    files = {"tlsCa": folder / CLUSTER_CA, "tlsCertificate": certificate, "tlsKey": key}
    return {"bootstrap": ",".join(cluster.bootstrap), **{option: str(path) for option, path in files.items()}}


async def allow(cluster: LocalCluster, *operations: Operation, topic: str) -> None:
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
        for operation in operations:
            entry = Entry(principal="User:app", host="*", operation=operation, permission=Permission.ALLOW)
            pattern = ResourcePattern(type=ResourceType.TOPIC, name=topic, pattern=PatternType.LITERAL)
            await admin.create_acl(AclBinding(pattern=pattern, entry=entry))


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


def refused(spark: SparkSession, options: Mapping[str, str]) -> str:
    """What Spark says of a topic that its client may not read."""
    with pytest.raises(PySparkException) as error:
        spark.read.format("regnum").options(**options).load(TOPIC).count()
    return str(error.value)


async def test_a_stream_and_a_batch_through_killed_leaders_and_back_into_a_topic(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with small_spark(cores=2) as spark:
        regnum_spark.register(spark)
        options = told(cluster)
        async with under_load(cluster, TOPIC) as running:
            assert TOPIC in await asyncio.to_thread(refused, spark, options)
            without = {name: value for name, value in options.items() if not name.startswith("tls")}
            await asyncio.to_thread(refused, spark, without)
            await allow(cluster, Operation.READ, Operation.DESCRIBE, topic=TOPIC)
            query = await asyncio.to_thread(streamed, spark, options, tmp_path)
            for number in range(2):
                await running.stage.kill_leader(TopicPartition(TOPIC, number))
                for name in tuple(running.stage.killed):
                    await running.stage.restart(name, wait=False)
                await running.stage.all_in_sync(within_s=240)
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
            async with Admin(cluster.bootstrap, tls=cluster.tls) as admin:
                await admin.create_topic("back", partitions=2, replication_factor=3)
            await allow(cluster, Operation.READ, Operation.WRITE, Operation.DESCRIBE, topic="back")
            rows = batch.select(F.col("offset").cast("string").alias("key"), "value", "headers", "timestamp")
            rows.write.format("regnum").options(**options, topic="back").mode("append").save()
            back = spark.read.format("regnum").options(**options).load("back")
            same = ["key", "value", "timestamp", "headers"]
            assert sorted(map(tuple, back.select(*same).collect())) == sorted(map(tuple, rows.select(*same).collect()))
