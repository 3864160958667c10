"""Rows into topics.

Promise: each row of a task's attempt that succeeds is in its topic, once, and rows of an attempt that go to one
partition lie in their order (the producer is idempotent, acks all). Spark runs tasks again, whole, and a step of a
stream too when its driver died before the checkpoint had it: then rows are there again. So it is at least once.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, DataType, IntegerType, StringType, StructType, TimestampType
from regnum_client.records import RecordMetadata
from regnum_client.sync import Producer

from regnum_spark.options import Options
from regnum_spark.ranges import OptionError

_KINDS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": (BinaryType, StringType), "key": (BinaryType, StringType), "topic": (StringType,),
    "partition": (IntegerType,), "timestamp": (TimestampType,),
}  # fmt: skip
COLUMNS: Final = (*_KINDS, "headers")
"""Of these ``value`` is needed; ``topic`` where no option names one."""
_ON_THEIR_WAY_MAX: Final = 10_000
"""Records whose fate is not known yet."""


@dataclass(slots=True)
class Written(WriterCommitMessage):
    """What a task wrote."""

    records: int
    """Rows that the brokers have acknowledged."""


def check(schema: StructType, options: Options) -> None:
    """Whether rows of this form can be written. Raises OptionError."""
    for field in schema:
        kinds = _KINDS.get(field.name)
        if field.name not in COLUMNS or (kinds is not None and not isinstance(field.dataType, kinds)):
            raise OptionError(
                f"{field.name} {field.dataType.simpleString()} cannot be written; rows have value and key (binary or "
                "string), topic, partition (int), timestamp, headers (array<struct<key: string, value: binary>>)"
            )
    if "value" not in schema.fieldNames():
        raise OptionError("rows have no column value")
    if "topic" not in schema.fieldNames() and options.topic is None:
        raise OptionError("which topic? .option('topic', 'TOPIC'), or a column topic")


def write(batches: Iterator[pa.RecordBatch], options: Options) -> Written:
    """Send all rows and wait until the brokers have them. Raises what the first record met that they have not."""
    waiting: deque[Future[RecordMetadata]] = deque()
    written = 0
    with Producer(options.bootstrap, client_id=options.client_id, tls=options.tls) as producer:
        for batch in batches:
            for row in batch.to_pylist():
                waiting.append(_sent(producer, row, options.topic))
                written += 1
                while len(waiting) > _ON_THEIR_WAY_MAX:
                    waiting.popleft().result()
        for future in waiting:
            future.result()
    return Written(written)


def _sent(producer: Producer, row: dict[str, Any], topic: str | None) -> Future[RecordMetadata]:
    moment = row.get("timestamp")
    return producer.send(
        row.get("topic") or topic or "",
        _bytes(row["value"]),
        key=_bytes(row.get("key")),
        partition=row.get("partition"),
        headers=tuple((header["key"], header["value"]) for header in row.get("headers") or ()),
        timestamp_ms=None if moment is None else round(moment.timestamp() * 1000),
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


class TopicWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of a task."""
        return write(iterator, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is left to do: what is acknowledged is there."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What tasks wrote stays: a log takes nothing back."""


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Writes the steps of a stream."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of a task."""
        return write(iterator, self._options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Nothing is left to do: what is acknowledged is there."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """What tasks wrote stays: a log takes nothing back."""
