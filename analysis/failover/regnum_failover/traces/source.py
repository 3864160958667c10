"""``spark.read.format("regnum_traces")``: spans of changes, as rows that wait to be grouped by trace.

Executors read files and objects themselves; the driver only lists them. Rows are spans as bytes (``packing``), since
all that is done with them before their trace is together is to group them. Besides, each task tells what it read and
what it set aside, in a row without a trace.

Options: ``path`` (``load(PLACE)``), ``days`` (of a bucket), ``store_timeout_s``, and any ``AWS_*`` variable by its
name; what is not given is taken from the environment of each process that reads. ``plan`` names a file in which the
driver has left what it listed before (``write_plan``), and nothing is listed again.
"""

import json
import os
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from regnum_insight.attribution.changes import SELECTION, trace_of
from regnum_insight.spans.intake import Tally, spans_in
from regnum_insight.spans.packing import packed

from regnum_failover.objects.address import BucketAddress, is_bucket, parse
from regnum_failover.objects.store import ObjectGoneError
from regnum_failover.traces.listing import in_bucket, in_folder, store_of
from regnum_failover.traces.pieces import Opened, documents_of_piece, of_path, of_pieces
from regnum_failover.traces.plan import Piece, TraceFile, parts_of

NAME: Final = "regnum_traces"
SCHEMA: Final = "trace_id STRING, ended TIMESTAMP, span BINARY"
DAYS: Final = 30.0
STORE_TIMEOUT_S: Final = 30.0
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
        return TracesReader(_Options.of(self.options))


@dataclass(frozen=True, slots=True)
class _Options:
    place: str
    plan: str | None
    days: float
    store_timeout_s: float
    variables: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "_Options":
        if "path" not in options:
            raise ValueError("where are the traces? .load(FOLDER), or .load('s3://BUCKET/PREFIX')")
        return cls(
            place=options["path"],
            plan=options.get("plan"),
            days=float(options.get("days", DAYS)),
            store_timeout_s=float(options.get("store_timeout_s", STORE_TIMEOUT_S)),
            variables={name.upper(): value for name, value in options.items() if name.upper().startswith("AWS_")},
        )

    def environment(self) -> Mapping[str, str]:
        return {**os.environ, **self.variables}

    def address(self) -> BucketAddress | None:
        return parse(self.place) if is_bucket(self.place) else None


class TracesPart(InputPartition):
    """What one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces


class TracesReader(DataSourceReader):
    """Reads a place once."""

    def __init__(self, options: _Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """A part for each task; raises NoTracesError, StoreError, AddressError or OSError."""
        options = self._options
        address = options.address()
        if options.plan is not None:
            files: Sequence[TraceFile] = read_plan(Path(options.plan))
        elif address is None:
            files = in_folder(options.place).files
        else:
            store = store_of(address, options.environment(), options.store_timeout_s)
            files = in_bucket(store, address, now_s=time.time(), days=options.days).files
        return [TracesPart(pieces) for pieces in parts_of(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part. Raises StoreError where a bucket does not answer."""
        return rows_of(cast("TracesPart", partition).pieces, self._opened())

    def _opened(self) -> Opened:
        options = self._options
        address = options.address()
        if address is None:
            return of_path
        store = store_of(address, options.environment(), options.store_timeout_s)

        def of_object(key: str, begin: int) -> IO[bytes]:
            return of_pieces(_present(store.read(key, begin)))

        return of_object


def _present(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """An object that has gone is a file that cannot be read; a store that is away ends the task."""
    try:
        yield from pieces
    except ObjectGoneError as error:
        raise FileNotFoundError(0, "it went away while others were read") from error


def rows_of(pieces: Sequence[Piece], opened: Opened) -> Iterator[pa.RecordBatch]:
    """Rows of the source for some pieces."""
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
    rows.add(None, None, pickle.dumps(told))
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


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def write_plan(files: Sequence[TraceFile], path: Path) -> None:
    """Leave what was listed for ``TracesReader``."""
    path.write_text(json.dumps(files), encoding="utf-8")


def read_plan(path: Path) -> list[TraceFile]:
    """What ``write_plan`` left."""
    return [TraceFile(*file) for file in json.loads(path.read_text(encoding="utf-8"))]
