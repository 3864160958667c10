"""The data source: how Spark's words (offsets of a stream, filters, partitions, batches of Arrow) meet a cluster's."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType
from regnum_client.records import ConsumedRecord
from regnum_client.sync import Consumer

from regnum_spark.cluster import Places, consumer_of, records_of
from regnum_spark.options import Options
from regnum_spark.ranges import (
    Bounds,
    Offsets,
    OptionError,
    Range,
    admitted,
    between,
    checkpoint_of,
    earlier,
    later,
    made_again,
    offsets_of,
    ranges,
)
from regnum_spark.writing import TopicStreamWriter, TopicWriter, check

NAME: Final = "regnum"
SCHEMA: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_TYPES: Final = {
    "key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"), "headers": _HEADERS,
}  # fmt: skip
_ROWS: Final = 10_000
"""Records of a batch of Arrow, about; or"""
_BYTES: Final = 32 * 2**20
"""bytes of keys and values."""


class RegnumSource(DataSource):
    """``format("regnum")``; ``regnum_spark.register`` lets a session know it."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return NAME

    def schema(self) -> str:
        """A row for each record, as Spark's source for Kafka has it. ``schema(...)`` may ask for fewer columns."""
        return SCHEMA

    def reader(self, schema: StructType) -> "TopicReader":
        """A reader of a batch."""
        return TopicReader(Options.of(self.options), _columns(schema))

    def streamReader(self, schema: StructType) -> "TopicStreamReader":  # noqa: N802 - Spark's name
        """A reader of a stream."""
        return TopicStreamReader(Options.of(self.options), _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> TopicWriter:  # noqa: FBT001 - Spark's call
        """A writer of a batch."""
        if overwrite:
            raise OptionError("a topic is only appended to: .mode('append')")
        options = Options.of(self.options)
        check(schema, options)
        return TopicWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:  # noqa: FBT001, N802 - likewise
        """A writer of a stream."""
        if overwrite:
            raise OptionError("a topic is only appended to: .outputMode('append')")
        options = Options.of(self.options)
        check(schema, options)
        return TopicStreamWriter(options)


def _columns(schema: StructType) -> tuple[str, ...]:
    if unknown := [name for name in schema.fieldNames() if name not in _TYPES]:
        raise OptionError(f"records have no {unknown[0]}; they have: {SCHEMA}")
    return tuple(schema.fieldNames())


class TopicMadeAgainError(Exception):
    """A topic has another id than when its offsets were kept."""


class RangePart(InputPartition):
    """What one task reads."""

    def __init__(self, part: Range) -> None:
        self.part = part


class TopicReader(DataSourceReader):
    """Reads topics once, up to where they end when the query begins."""

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """What filters say of topic, partition, offset and time bounds what is read; Spark applies them all again."""
        for one in filters:
            _narrow(self._bounds, one)
        return filters

    def partitions(self) -> list[InputPartition]:
        """A part for each task. Raises OptionError, RegnumError."""
        with consumer_of(self._options) as consumer:
            places = Places(consumer, self._options)
            first, last = places.first(), places.last()
            if self._bounds.since_ms is not None:
                first = later(first, places.since(self._bounds.since_ms))
        found = ranges(first, last, records_max=None)
        bounded = [self._bounds.applied(part) for part in found]
        return _parts(bounded, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a part."""
        return _rows(cast("RangePart", partition).part, self._options, self._columns)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as records come.

    What Spark keeps in the checkpoint is the offset of the next record of each partition, and the ids of topics.
    """

    def __init__(self, options: Options, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._target: Offsets | None = None
        self._consumer: Consumer | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy, and open connections of their own.
        return {**self.__dict__, "_consumer": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        places = self._places()
        return checkpoint_of(places.first(), places.ids())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """``maxOffsetsPerTrigger``."""
        limit = self._options.records_per_step_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """How far the next step goes. Raises TopicMadeAgainError, RegnumError."""
        places = self._places()
        ends, ids = places.ends(), places.ids()
        again = made_again(start, ids)
        if again and self._options.fail_on_data_loss:
            raise TopicMadeAgainError(
                f"{', '.join(again)} was deleted and made again since the last step: offsets of the checkpoint are not "
                "its own; begin with a new checkpoint, or read it from its beginning (failOnDataLoss false)"
            )
        begin = offsets_of(start, without=again)
        end: Offsets = later(begin, ends)
        if self._target is not None:
            end = later(begin, earlier(self._target, end))
        if isinstance(limit, ReadMaxRows):
            end = admitted(begin, end, limit.max_rows)
        return checkpoint_of(end, ids, start)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """What there is now is read, and nothing that comes meanwhile."""
        self._target = self._places().ends()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Where the topics end."""
        return later({}, self._places().ends())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A part for each task of a step."""
        return _parts(between(start, end), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of a part."""
        return _rows(cast("RangePart", partition).part, self._options, self._columns)

    def stop(self) -> None:
        """Close the connections."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _places(self) -> Places:
        consumer = self._consumer
        if consumer is None:
            consumer = consumer_of(self._options)
            consumer.start()
            self._consumer = consumer
        return Places(consumer, self._options)


def _parts(found: Iterable[Range], options: Options) -> list[InputPartition]:
    most = options.records_per_task_max
    return [
        RangePart(part)
        for one in found
        for part in ranges(
            {one.topic: {str(one.partition): one.begin}}, {one.topic: {str(one.partition): one.end}}, records_max=most
        )
    ]


def _narrow(bounds: Bounds, one: Filter) -> None:
    column: Any = getattr(one, "attribute", None)
    value: Any = getattr(one, "value", None)
    if column in _NAMES and isinstance(one, EqualTo | In):
        named = frozenset(value if isinstance(one, In) else (value,))
        (bounds.only_topics if column == ("topic",) else bounds.only_partitions)(named)
    elif column == ("offset",) and isinstance(value, int):
        if type(one) in _FROM:
            bounds.from_offset(value + _FROM[type(one)])
        if type(one) in _BEFORE:
            bounds.before_offset(value + _BEFORE[type(one)])
    elif column == ("timestamp",) and isinstance(value, datetime) and type(one) in _FROM:
        # Times need not rise with offsets: only the first record from a moment on says anything.
        bounds.from_moment(max(0, int(value.timestamp() * 1000)))


_NAMES: Final = (("topic",), ("partition",))
_FROM: Final[dict[type, int]] = {EqualTo: 0, GreaterThanOrEqual: 0, GreaterThan: 1}
"""What is added to the value of a filter for the first offset, and"""
_BEFORE: Final[dict[type, int]] = {EqualTo: 1, LessThanOrEqual: 1, LessThan: 0}
"""for the one behind the last."""


def _rows(part: Range, options: Options, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with consumer_of(options) as consumer:
        for records in gathered(records_of(part, consumer, options)):
            yield batch_of(records, columns)


def gathered(batches: Iterable[list[ConsumedRecord]]) -> Iterator[list[ConsumedRecord]]:
    """Records of several batches together, as many as a task may hold: about _ROWS, or _BYTES."""
    waiting: list[ConsumedRecord] = []
    size = 0
    for records in batches:
        waiting += records
        size += sum(len(one.key or b"") + len(one.value or b"") for one in records)
        if len(waiting) >= _ROWS or size >= _BYTES:
            yield waiting
            waiting, size = [], 0
    if waiting:
        yield waiting


def batch_of(records: Sequence[ConsumedRecord], columns: Sequence[str]) -> pa.RecordBatch:
    """Records as rows of these columns."""
    return pa.record_batch(
        [pa.array(_column(records, name), _TYPES[name]) for name in columns],
        schema=pa.schema([pa.field(name, _TYPES[name]) for name in columns]),
    )


def _column(records: Sequence[ConsumedRecord], name: str) -> list[Any]:
    match name:
        case "timestamp":
            return [record.timestamp_ms * 1000 for record in records]
        case "headers":
            return [[{"key": key, "value": value} for key, value in record.headers] for record in records]
        case _:
            return [getattr(record, name) for record in records]
