"""``spark.read.format("regnum_traces")``: spans of changes, as rows that wait to be grouped by trace.

Executors read files and objects themselves; the driver only lists them. Rows are spans as bytes (``packing``), since
all that is done with them before their trace is together is to group them. Besides, each task tells what it read and
what it set aside, in a row without a trace.

Options: ``path`` (``load(PLACE)``), ``days`` (of a bucket), ``store_timeout_s``, and any ``AWS_*`` variable by its
name; what is not given is taken from the environment of each process that reads. ``plan`` names a file in which the
driver has left what it listed before (``write_plan``), and nothing is listed again.
"""

import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType
from regnum_insight.attribution.changes import SELECTION, trace_of
from regnum_insight.spans.intake import Tally, spans_in
from regnum_insight.spans.packing import packed

from regnum_failover.tables.ledger import read_kept
from regnum_failover.traces.growth import Grown, pieces_since
from regnum_failover.traces.options import Options
from regnum_failover.traces.pieces import Opened, documents_of_piece, of_identity
from regnum_failover.traces.plan import Piece, parts_between, parts_of
from regnum_failover.traces.planned import read_plan

NAME: Final = "regnum_traces"
SCHEMA: Final = "trace_id STRING, ended TIMESTAMP, span BINARY"
TICK_S: Final = 120.0
ASIDE_OF_A_PART_MAX: Final = 100
"""Of what a task set aside it tells so much, and counts all."""
_ROWS: Final = 10_000
_ARROW: Final = pa.schema([
    pa.field("trace_id", pa.string()), pa.field("ended", pa.timestamp("us", tz="UTC")), pa.field("span", pa.binary()),
])  # fmt: skip


class TracesSource(DataSource):
    """The source; register it with ``spark.dataSource.register(TracesSource)``."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return NAME

    def schema(self) -> str:
        """Trace that a span belongs to, its end, and the span; or no trace, and the pickled ``Tally`` of a task."""
        return SCHEMA

    def reader(self, schema: StructType) -> "TracesReader":  # noqa: ARG002 - it is always the same
        """A reader of a batch."""
        return TracesReader(Options.of(self.options))

    def streamReader(self, schema: StructType) -> "TracesStreamReader":  # noqa: ARG002, N802 - Spark's name
        """A reader of a stream."""
        return TracesStreamReader(Options.of(self.options), tick_s=float(self.options.get("tick_s", TICK_S)))


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

    Offsets are how far each file was read, and a clock. A row with that moment goes with each step, so that the
    watermark moves on where nothing more comes: after news the clock goes on for ``tick_s``.
    """

    def __init__(self, options: Options, *, tick_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._options = options
        self._tick_s = tick_s
        self._now_s = now_s
        self._news_s: float | None = None
        self._files: Mapping[str, Grown] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Nothing was read."""
        return {"clock_s": 0, "files": {}}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's
        """What there is now. Raises StoreError, AddressError."""
        before = start["files"]
        self._files = self._options.look(before, self._now_s())
        files = {key: file.size for key, file in self._files.items()}
        now_s = int(self._now_s())
        if files != before or self._news_s is None:
            self._news_s = now_s
        elif now_s <= start["clock_s"] or now_s - self._news_s > self._tick_s:
            return start
        return {"clock_s": max(now_s, start["clock_s"]), "files": files}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A part for each task of a step."""
        # A step that is repeated after a restart has not been looked at.
        known = self._files or self._options.look(start["files"], self._now_s())
        parts = parts_between(pieces_since(start["files"], end["files"], known))
        keys = {file.name: key for key, file in known.items()}
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


def rows_of(pieces: Sequence[Piece], opened: Opened, *, moment_us: int | None = None) -> Iterator[pa.RecordBatch]:
    """Rows of the source for some pieces; the one without a trace has ``moment_us`` for its end."""
    tally = Tally()
    rows = _Rows()
    for piece in pieces:
        own = Tally()
        for span in spans_in(_short(piece.file), documents_of_piece(piece, opened), SELECTION, own):
            rows.add(trace_of(span), span.end_ns // 1000, packed(span))
            if rows.are_many:
                yield rows.batch()
                rows = _Rows()
        if not piece.is_whole:
            # Whether a file has spans is not told by a piece of it, and it is one file.
            own.files_empty.clear()
            own.files_n = 0 if piece.begin else own.files_n
        tally.add(own)
    told = replace(tally, aside=tally.aside[:ASIDE_OF_A_PART_MAX])
    rows.add(None, moment_us, pickle.dumps(told))
    yield rows.batch()


class _Rows:
    """Rows of a batch, by columns."""

    def __init__(self) -> None:
        self._traces: list[str | None] = []
        self._ended_us: list[int | None] = []
        self._spans: list[bytes] = []

    @property
    def are_many(self) -> bool:
        return len(self._spans) == _ROWS

    def add(self, trace_id: str | None, ended_us: int | None, span: bytes) -> None:
        self._traces.append(trace_id)
        self._ended_us.append(ended_us)
        self._spans.append(span)

    def batch(self) -> pa.RecordBatch:
        columns = (self._traces, self._ended_us, self._spans)
        return pa.record_batch(
            [pa.array(of, field.type) for of, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
        )


def records_of(spark: SparkSession, place: str, **options: str) -> DataFrame:
    """Rows of what is at a place."""
    spark.dataSource.register(TracesSource)
    return spark.read.format(NAME).options(**options).load(place)


def stream_of(spark: SparkSession, place: str, **options: str) -> DataFrame:
    """Rows of what comes to a place, without end."""
    spark.dataSource.register(TracesSource)
    return spark.readStream.format(NAME).options(**options).load(place)


def _short(name: str) -> str:
    return name.rpartition("/")[2]
