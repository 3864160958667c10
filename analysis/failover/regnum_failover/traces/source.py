"""``spark.read.format("regnum_traces")``: spans of changes, as rows that wait to be grouped by trace.

Executors read files and objects themselves; the driver only lists them. Rows are spans as bytes (``packs``), since
all that is done with them before their trace is together is to group them; in a batch a row has all spans of a trace
that lie together. Besides, each task tells what it read and what it set aside, in a row without a trace.

Options: ``path`` (``load(PLACE)``), ``days`` (of a bucket), ``store_timeout_s``, and any ``AWS_*`` variable by its
name; what is not given is taken from the environment of each process that reads. ``plan`` names a file in which the
driver has left what it listed before (``write_plan``), and nothing is listed again. ``load("topic:NAME")`` reads a
topic that traces are written to; options are then those of ``format("regnum")``.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType
from regnum_insight.spans.growth import Grown, Piece, pieces_since

from regnum_failover.tables.ledger import read_kept
from regnum_failover.traces.options import Options, topic_of
from regnum_failover.traces.pieces import of_identity
from regnum_failover.traces.plan import parts_between, parts_of
from regnum_failover.traces.planned import read_plan
from regnum_failover.traces.span_rows import rows_of
from regnum_failover.traces.ticks import Ticks

NAME: Final = "regnum_traces"
SCHEMA: Final = "trace_id STRING, ended TIMESTAMP, span BINARY"
TICK_S: Final = 120.0


class TracesSource(DataSource):
    """The source; register it with ``spark.dataSource.register(TracesSource)``."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return NAME

    def schema(self) -> str:
        """A trace, the latest end of some of its spans, and these; or no trace, and the pickled ``Tally`` of a task."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is always the same
        """A reader of a batch."""
        topic = topic_of(self.options.get("path", ""))
        if topic is not None:
            # The SDK is loaded for topics only: each of Spark's Python processes would take a second longer.
            from regnum_failover.traces.topic import TopicTracesReader, options_of  # noqa: PLC0415

            return TopicTracesReader(options_of(topic, self.options))
        return TracesReader(Options.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """A reader of a stream."""
        tick_s = float(self.options.get("tick_s", TICK_S))
        topic = topic_of(self.options.get("path", ""))
        if topic is not None:
            from regnum_failover.traces.topic import TopicTracesStreamReader, options_of  # noqa: PLC0415

            return TopicTracesStreamReader(options_of(topic, self.options), tick_s=tick_s)
        return TracesStreamReader(Options.of(self.options), tick_s=tick_s)


class TracesPart(InputPartition):
    """What one task reads: pieces; of a stream also the moment of the step, and identities of files by their names.

    Or, in ``kept``, a place of tables, and the name of spans that its ledger keeps.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        *,
        moment_us: int | None = None,
        keys: Mapping[str, str] | None = None,
        kept: tuple[str, str] | None = None,
    ) -> None:
        self.pieces = pieces
        self.moment_us = moment_us
        self.keys = keys or {}
        self.kept = kept


class TracesReader(DataSourceReader):
    """Reads a place once."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """A part for each task; raises NoTracesError, StoreError, AddressError or OSError."""
        options = self._options
        if options.plan is not None:
            planned = read_plan(Path(options.plan))
            found = [TracesPart(pieces, keys=planned.keys) for pieces in planned.parts]
            kept = [TracesPart((), kept=(planned.kept_at, planned.kept))] if planned.kept else []
            return [*found, *kept]
        return [TracesPart(pieces) for pieces in parts_of(options.listing(time.time()).files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part. Raises StoreError where a bucket does not answer."""
        part = cast("TracesPart", partition)
        if part.kept is not None:
            place, name = part.kept
            return read_kept(self._options.shelf(place), name)
        return rows_of(part.pieces, of_identity(part.keys) if part.keys else self._options.opened())


class TracesStreamReader(DataSourceStreamReader):
    """Reads a place on as it grows.

    Offsets are how far each file was read, and a clock (``ticks``).
    """

    def __init__(self, options: Options, *, tick_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._options = options
        self._now_s = now_s
        self._ticks = Ticks(tick_s, now_s)
        self._files: Mapping[str, Grown] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Nothing was read."""
        return {"clock_s": 0, "files": {}}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's
        """What there is now. Raises StoreError, AddressError."""
        before = start["files"]
        self._files = self._options.look(before, self._now_s())
        files = {key: file.size for key, file in self._files.items()}
        clock_s = self._ticks.next(start["clock_s"], has_news=files != before)
        return start if clock_s is None else {"clock_s": clock_s, "files": files}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A part for each task of a step."""
        # A step that is repeated after a restart has not been looked at.
        known = self._files or self._options.look(start["files"], self._now_s())
        parts = parts_between(pieces_since(start["files"], end["files"], known))
        keys = {file.name: file.inode for file in known.values()}
        moment_us = end["clock_s"] * 1_000_000
        return [
            TracesPart(pieces, moment_us=moment_us, keys={piece.file: keys[piece.file] for piece in pieces})
            for pieces in parts or [()]
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part. Raises StoreError where a bucket does not answer."""
        part = cast("TracesPart", partition)
        opened = self._options.opened() if self._options.address else of_identity(part.keys)
        return rows_of(part.pieces, opened, moment_us=part.moment_us)


def records_of(spark: SparkSession, place: str, **options: str) -> DataFrame:
    """Rows of what is at a place."""
    spark.dataSource.register(TracesSource)
    return spark.read.format(NAME).options(**options).load(place)


def stream_of(spark: SparkSession, place: str, **options: str) -> DataFrame:
    """Rows of what comes to a place, without end."""
    spark.dataSource.register(TracesSource)
    return spark.readStream.format(NAME).options(**options).load(place)
