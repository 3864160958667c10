"""The source over real gRPC to brokers in this process, called as Spark calls it: readers and parts are pickled."""

import asyncio
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)
from regnum_spark.ranges import OptionError
from regnum_spark.source import RegnumSource, TopicMadeAgainError
from regnum_testing.fake_cluster import FakeCluster

ROWS = [
    {"key": b"%d" % n, "value": f"v{n}", "partition": n % 3, "headers": [{"key": "h", "value": b"x"}]}
    for n in range(60)
]
WRITTEN = pa.schema([
    pa.field("key", pa.binary()), pa.field("value", pa.string()), pa.field("partition", pa.int32()),
    pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
])  # fmt: skip


def sent(of: Any) -> Any:
    """As a task gets it."""
    return pickle.loads(pickle.dumps(of))  # noqa: S301 - made here


HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
KINDS = {
    "key": BinaryType(), "value": BinaryType(), "topic": StringType(), "partition": IntegerType(),
    "offset": LongType(), "timestamp": TimestampType(), "headers": HEADERS,
}  # fmt: skip


def schema(*columns: str, **others: DataType) -> StructType:
    made = StructType()
    for name, kind in {**{name: KINDS[name] for name in columns}, **others}.items():
        made.add(name, kind)
    return made


def source(cluster: FakeCluster, **options: str) -> RegnumSource:
    return RegnumSource({"bootstrap": cluster.bootstrap, "path": "t", **options})


def rows(reader: Any, parts: list[Any]) -> Iterator[dict[str, Any]]:
    for part in parts:
        for batch in sent(reader).read(sent(part)):
            yield from batch.to_pylist()


def written_and_read(cluster: FakeCluster) -> int:
    """Returns how many records came back."""
    writing = source(cluster).writer(schema("key", "partition", "headers", value=StringType()), overwrite=False)
    batches = pa.Table.from_pylist(ROWS, schema=WRITTEN).to_batches(max_chunksize=7)
    assert sent(writing).write(iter(batches)).records == len(ROWS)
    reader = source(cluster, maxRecordsPerPartition="8").reader(schema(*KINDS))
    parts = reader.partitions()
    assert len(parts) == 9
    found = sorted(rows(reader, parts), key=lambda row: int(row["key"]))
    assert [(row["value"].decode(), row["partition"], row["offset"], row["headers"]) for row in found] == [
        (row["value"], row["partition"], n // 3, row["headers"]) for n, row in enumerate(ROWS)
    ]
    return len(found)


def streamed(cluster: FakeCluster) -> int:
    """Returns how many records came with the first stream."""
    written_and_read(cluster)
    stream = source(cluster, maxOffsetsPerTrigger="20", startingOffsets='{"t": {"0": 5, "1": -2, "2": -1}}')
    reader = stream.streamReader(schema("value"))
    begin, values = reader.initialOffset(), []
    assert begin == {"t": {"0": 5, "1": 0, "2": 20}, "topic ids": {"t": cluster.topic_ids["t"]}}
    while (end := reader.latestOffset(begin, reader.getDefaultReadLimit())) != begin:
        values += [row["value"] for row in rows(reader, reader.partitions(begin, end))]
        begin = end
    expected = [row for n, row in enumerate(ROWS) if row["partition"] == 1 or (row["partition"] == 0 and n >= 15)]
    assert sorted(values) == sorted(row["value"].encode() for row in expected)
    # From a checkpoint, by another reader, when more has come.
    reader.stop()
    more = pa.Table.from_pylist([{"value": "new"}]).to_batches()
    source(cluster).writer(schema(value=StringType()), overwrite=False).write(iter(more))
    again = stream.streamReader(schema("value"))
    end = again.latestOffset(begin, ReadAllAvailable())
    assert [row["value"] for row in rows(again, again.partitions(begin, end))] == [b"new"]
    again.stop()
    return len(values)


def made_again(cluster: FakeCluster) -> int:
    """Returns how many records of the new topic came with a stream that had read the one before."""
    written_and_read(cluster)
    stream = source(cluster, failOnDataLoss="false").streamReader(schema("value"))
    begin = stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
    cluster.delete("t")
    cluster.create("t", partitions=3)
    new = pa.Table.from_pylist([{"value": f"new-{n}", "partition": n % 3} for n in range(70)]).to_batches()
    source(cluster).writer(schema("partition", value=StringType()), overwrite=False).write(iter(new))
    end = stream.latestOffset(begin, ReadAllAvailable())
    assert end["topic ids"] == {"t": cluster.topic_ids["t"]}
    values = [row["value"] for row in rows(stream, stream.partitions(begin, end))]
    stream.stop()
    strict = source(cluster).streamReader(schema("value"))
    with pytest.raises(TopicMadeAgainError):
        strict.latestOffset(begin, ReadAllAvailable())
    strict.stop()
    assert sorted(values) == sorted(b"new-%d" % n for n in range(70))
    return len(values)


@pytest.mark.parametrize("work", [written_and_read, streamed, made_again])
async def test_rows_are_written_and_read_part_by_part(work: Callable[[FakeCluster], int]) -> None:
    async with FakeCluster() as cluster:
        cluster.create("t", partitions=3)
        assert await asyncio.to_thread(work, cluster) > 20


def test_what_cannot_be_written_is_refused_before_any_task():
    told = RegnumSource({"bootstrap": "x:1", "topic": "t"})
    for wrong, words in (
        (schema(value=IntegerType()), "value int cannot be written"),
        (schema("key"), "no column value"),
        (schema("value", colour=StringType()), "colour string cannot be written"),
    ):
        with pytest.raises(OptionError, match=words):
            told.writer(wrong, overwrite=False)
    with pytest.raises(OptionError, match="only appended"):
        told.writer(schema("value"), overwrite=True)
    with pytest.raises(OptionError, match="which topic"):
        RegnumSource({"bootstrap": "x:1"}).streamWriter(schema(value=StringType()), overwrite=False)
