"""Traces of a topic: the value of each record is an OTLP document, as each line of a file is.

Offsets, ranges and records are those of ``format("regnum")``: this only makes rows of spans of what it reads.
"""

import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from regnum_insight.spans.documents import documents_in
from regnum_spark.options import Options
from regnum_spark.source import RangePart, TopicReader, TopicStreamReader

from regnum_failover.traces.span_rows import Text, rows_of_texts
from regnum_failover.traces.ticks import Ticks

_COLUMNS: Final = ("value",)
_OF_FILES: Final = frozenset({"path", "plan", "days", "store_timeout_s", "tick_s"})
"""Options that say nothing of a topic."""


def options_of(topic: str, told: Mapping[str, str]) -> Options:
    """What a reader of the topic is told, out of the options of the source. Raises OptionError.

    What retention took before it was read is left out, as of files that were removed, unless an option says otherwise.
    """
    kept = {name.lower(): value for name, value in told.items()}
    kept = {name: value for name, value in kept.items() if name not in _OF_FILES and not name.startswith("aws_")}
    return Options.of({"failondataloss": "false", **kept, "subscribe": topic})


class TopicTracesReader(DataSourceReader):
    """Reads a topic once, up to where it ends when the query begins."""

    def __init__(self, options: Options) -> None:
        self._topic = TopicReader(options, _COLUMNS)

    def partitions(self) -> list[InputPartition]:
        """A part for each task. Raises OptionError, RegnumError."""
        return self._topic.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        return rows_of_texts([_text(cast("RangePart", partition), self._topic.read(partition))])


class TopicTracesPart(InputPartition):
    """What one task of a stream reads, and the moment of the step."""

    def __init__(self, of: RangePart | None, moment_us: int) -> None:
        self.of = of
        self.moment_us = moment_us


class TopicTracesStreamReader(DataSourceStreamReader):
    """Reads a topic on as records come. Offsets are those of its records, and a clock (``ticks``)."""

    def __init__(self, options: Options, *, tick_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._topic = TopicStreamReader(options, _COLUMNS)
        self._ticks = Ticks(tick_s, now_s)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        return {"clock_s": 0, "topics": self._topic.initialOffset()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's
        """What there is now, all of it: what is old may not be told apart by a clock that runs already."""
        topics = self._topic.latestOffset(start["topics"], ReadAllAvailable())
        clock_s = self._ticks.next(start["clock_s"], has_news=topics != start["topics"])
        return start if clock_s is None else {"clock_s": clock_s, "topics": topics}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """A part for each task of a step; one for the clock alone where nothing came."""
        moment_us = end["clock_s"] * 1_000_000
        found = cast("list[RangePart]", self._topic.partitions(start["topics"], end["topics"]))
        return [TopicTracesPart(one, moment_us) for one in found] or [TopicTracesPart(None, moment_us)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part."""
        part = cast("TopicTracesPart", partition)
        texts = () if part.of is None else (_text(part.of, self._topic.read(part.of)),)
        return rows_of_texts(texts, moment_us=part.moment_us)

    def stop(self) -> None:
        """Close the connections."""
        self._topic.stop()


def _text(of: RangePart, batches: Iterable[pa.RecordBatch]) -> Text:
    part = of.part
    return Text(f"{part.topic}-{part.partition}", _documents(batches), is_whole=False, is_begin=part.begin == 0)


def _documents(batches: Iterable[pa.RecordBatch]) -> Iterator[object]:
    for batch in batches:
        for value in batch.column(0).to_pylist():
            if value:
                yield from documents_in(cast("IO[bytes]", io.BufferedReader(io.BytesIO(value))))
