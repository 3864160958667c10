"""Spark over topics of a cluster with TLS and access rules whose leaders are killed: each record once.

What Spark read is held against what the producer was told: the load's own ledger.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import regnum_spark
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from regnum_client import Admin
from regnum_client.admin.acls.values import Operation
from regnum_local.cluster import LocalCluster
from regnum_local.demo.workload import decode_number, read_everything
from regnum_testing.guarded_cluster import allow, files_of, guarded_cluster
from regnum_testing.small_spark import small_spark
from regnum_testing.under_load import LoadedCluster, under_load, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="module"),
]

TOPIC = "ledger"
WITHIN_S = 120.0


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """One task at a time."""
    with small_spark() as session:
        regnum_spark.register(session)
        yield session


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """Processes and the load are super users; analyst may read one topic, stranger nothing."""
    folder = tmp_path_factory.mktemp("spark") / "data"
    async with guarded_cluster(folder, "analyst", "stranger", elections=2, metadata=2) as started:
        async with Admin(started.bootstrap, tls=started.tls) as admin:
            await admin.create_acls([allow("analyst", one, TOPIC) for one in (Operation.READ, Operation.DESCRIBE)])
        yield started


def options(cluster: LocalCluster, client: str) -> dict[str, str]:
    files = files_of(cluster, client)
    return {
        "bootstrap": ",".join(cluster.bootstrap),
        "tlsCa": str(files.ca),
        "tlsCertificate": str(files.certificate),
        "tlsKey": str(files.key),
    }


async def appears(file: Path) -> None:
    async def is_there() -> bool:
        return file.exists()

    await until(is_there, within_s=WITHIN_S)


async def killed_and_back(running: LoadedCluster, number: int) -> None:
    """Kill -9 the leader of a partition, and start it again once others lead."""
    await running.stage.kill_leader(running.partitions[number])
    await running.stage.restart(running.stage.killed[-1])
    await running.stage.all_in_sync(within_s=WITHIN_S)


def held(begun: Path, goes_on: Path) -> Callable[[Iterable[Row]], Iterator[Row]]:
    """A step that says which task reads, and waits for a word; for files named by the partition that is read."""

    def step(rows: Iterable[Row]) -> Iterator[Row]:
        # As a task of Spark runs it: functions of this module are not there.
        import time  # noqa: PLC0415

        waits = True
        for row in rows:
            begun.with_suffix(f".{row['partition']}").touch()
            end = time.monotonic() + 120.0
            while waits and not goes_on.with_suffix(f".{row['partition']}").exists():
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"partition {row['partition']} was held for 120 s: the test did not let it go on"
                    )
                time.sleep(0.02)
            waits = False
            yield row

    return step


def numbers_by_place(rows: Iterable[Row]) -> dict[int, list[tuple[int, int]]]:
    """(offset, number) of each row, by partition."""
    found: dict[int, list[tuple[int, int]]] = {}
    for row in rows:
        found.setdefault(row["partition"], []).append((row["offset"], decode_number(bytes(row["value"]))))
    return {partition: sorted(places) for partition, places in found.items()}


async def test_a_batch_reads_through_two_killed_leaders(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    begun, goes_on = tmp_path / "begun", tmp_path / "goes-on"
    async with under_load(cluster, TOPIC, partitions=3) as running:
        frame = spark.read.format("regnum").options(**options(cluster, "analyst")).load(TOPIC)
        wanted = frame.select("partition", "offset", "value")
        held_back = wanted.rdd.mapPartitions(held(begun, goes_on))
        least = {key: len(history.acknowledged) for key, history in running.load.histories.items()}
        reading = asyncio.create_task(asyncio.to_thread(held_back.collect))
        try:
            for number in (0, 1):
                # The next partition loses its leader while this one is read.
                await appears(begun.with_suffix(f".{number}"))
                await killed_and_back(running, number + 1)
                goes_on.with_suffix(f".{number}").touch()
            goes_on.with_suffix(".2").touch()
            rows = await reading
        finally:
            for number in range(3):
                goes_on.with_suffix(f".{number}").touch()
            await asyncio.wait([reading])
        assert (await running.judged()).clean
        logs = await read_everything(cluster.bootstrap, running.partitions, tls=cluster.tls)
        told = numbers_by_place(rows)
        for key, log in logs.items():
            read = told[key.partition]
            assert len(read) >= least[key]
            assert read == log[: len(read)], "each record once, at its place"


async def test_a_stream_goes_on_from_its_checkpoint_after_two_killed_leaders(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic = TOPIC + "-streamed"
    async with Admin(cluster.bootstrap, tls=cluster.tls) as admin, under_load(cluster, topic) as running:
        await admin.create_acls([allow("analyst", one, topic) for one in (Operation.READ, Operation.DESCRIBE)])

        def begin(*, to_the_end: bool = False) -> StreamingQuery:
            records = spark.readStream.format("regnum").options(
                **options(cluster, "analyst"), maxOffsetsPerTrigger="300"
            )
            writer = records.load(topic).select("partition", "offset", "value").writeStream.format("parquet")
            writer = writer.option("checkpointLocation", f"{tmp_path}/checkpoint")
            if to_the_end:
                writer = writer.trigger(availableNow=True)
            return writer.start(f"{tmp_path}/rows")

        def streamed() -> DataFrame:
            return spark.read.schema("partition INT, offset BIGINT, value BINARY").parquet(f"{tmp_path}/rows")

        async def further_than(rows: int) -> None:
            async def is_further() -> bool:
                return await asyncio.to_thread(lambda: streamed().count()) > rows

            await until(is_further, within_s=WITHIN_S)

        (tmp_path / "rows").mkdir()
        for number in (0, 1):
            # A query lives through a killed leader, is stopped, and another one takes its place.
            query = await asyncio.to_thread(begin)
            await further_than(await asyncio.to_thread(lambda: streamed().count()))
            await killed_and_back(running, number)
            await further_than(await asyncio.to_thread(lambda: streamed().count()))
            assert query.exception() is None
            await asyncio.to_thread(query.stop)
        assert (await running.judged()).clean
        last = await asyncio.to_thread(lambda: begin(to_the_end=True))
        await asyncio.to_thread(last.awaitTermination)
        logs = await read_everything(cluster.bootstrap, running.partitions, tls=cluster.tls)
        told = numbers_by_place(await asyncio.to_thread(lambda: streamed().collect()))
        assert told == {key.partition: log for key, log in logs.items()}


async def test_who_has_no_right_reads_nothing_in_batch_or_stream(
    cluster: LocalCluster, spark: SparkSession, tmp_path: Path
) -> None:
    of_stranger = options(cluster, "stranger")
    topic = TOPIC

    def batch() -> None:
        with pytest.raises(PySparkException, match="may not be used by this client"):
            spark.read.format("regnum").options(**of_stranger).load(topic).collect()

    def stream() -> None:
        records = spark.readStream.format("regnum").options(**of_stranger).load(topic)
        sink = records.writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/checkpoint")
        query = sink.trigger(availableNow=True).start(f"{tmp_path}/rows")
        with pytest.raises(StreamingQueryException, match="may not be used by this client"):
            query.awaitTermination()

    def without_certificate() -> None:
        plain = {key: of_stranger[key] for key in ("bootstrap", "tlsCa")}
        with pytest.raises(PySparkException):
            spark.read.format("regnum").options(**plain).load(topic).collect()

    for tried in (batch, stream, without_certificate):
        await asyncio.to_thread(tried)
