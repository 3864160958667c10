"""Rows of spans for Spark: what a task makes of the documents that it reads, and what it tells of its work."""

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
from regnum_insight.attribution.changes import SELECTION, trace_of
from regnum_insight.spans.growth import Piece
from regnum_insight.spans.intake import Tally, spans_in
from regnum_insight.spans.packing import packed

from regnum_failover.traces.pieces import Opened, documents_of_piece

ASIDE_OF_A_PART_MAX: Final = 100
"""Of what a task set aside it tells so much, and counts all."""
_ROWS: Final = 10_000
_ARROW: Final = pa.schema([
    pa.field("trace_id", pa.string()), pa.field("ended", pa.timestamp("us", tz="UTC")), pa.field("span", pa.binary()),
])  # fmt: skip


class Text(NamedTuple):
    """Documents that come from one place: a file, or a partition of a topic."""

    file: str
    """Its name."""
    documents: Iterator[object]
    """What is in it."""
    is_whole: bool = True
    """Whether that is all of the place."""
    is_begin: bool = True
    """Whether its begin is among it."""


def rows_of(pieces: Iterable[Piece], opened: Opened, *, moment_us: int | None = None) -> Iterator[pa.RecordBatch]:
    """Rows of the source for some pieces of files; ``moment_us``: see ``rows_of_texts``."""
    texts = (
        Text(
            piece.file.rpartition("/")[2],
            documents_of_piece(piece, opened),
            is_whole=piece.is_whole,
            is_begin=piece.begin == 0,
        )
        for piece in pieces
    )
    return rows_of_texts(texts, moment_us=moment_us)


def rows_of_texts(texts: Iterable[Text], *, moment_us: int | None = None) -> Iterator[pa.RecordBatch]:
    """The same for documents.

    Args:
        texts: where documents come from.
        moment_us: of a stream the moment of the step, in microseconds since 1970. The row without a trace has it for
            its end, and no span a later one: a clock that is ahead would take the watermark past all that comes then.
    """
    tally = Tally()
    rows = _Rows()
    for text in texts:
        own = Tally()
        for span in spans_in(text.file, text.documents, SELECTION, own):
            ended_us = span.end_ns // 1000
            rows.add(trace_of(span), ended_us if moment_us is None else min(ended_us, moment_us), packed(span))
            if rows.are_many:
                yield rows.batch()
                rows = _Rows()
        if not text.is_whole:
            # Whether a file has spans is not told by a piece of it, and it is one file.
            own.files_empty.clear()
            own.files_n = own.files_n if text.is_begin else 0
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
