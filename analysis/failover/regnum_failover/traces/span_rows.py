"""Rows of spans for Spark: what a task makes of the documents that it reads, and what it tells of its work."""

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa
from regnum_insight.attribution.changes import SELECTION, trace_of
from regnum_insight.engine import no_collection
from regnum_insight.spans.growth import Piece
from regnum_insight.spans.intake import Tally, spans_in
from regnum_insight.spans.packing import packed
from regnum_insight.spans.span import Span

from regnum_failover.traces.packs import together
from regnum_failover.traces.pieces import Opened, documents_of_piece

ASIDE_OF_A_PART_MAX: Final = 100
"""Of what a task set aside it tells so much, and counts all."""
_SPANS: Final = 10_000
"""Spans of a batch of rows."""
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
    with no_collection():
        yield from _batches(texts, moment_us)


def _batches(texts: Iterable[Text], moment_us: int | None) -> Iterator[pa.RecordBatch]:
    tally = Tally()
    rows = _Rows(moment_us)
    for text in texts:
        own = Tally()
        for span in spans_in(text.file, text.documents, SELECTION, own):
            rows.add(span)
            if rows.are_many:
                yield rows.batch()
                rows = _Rows(moment_us)
        if not text.is_whole:
            # Whether a file has spans is not told by a piece of it, and it is one file.
            own.files_empty.clear()
            own.files_n = own.files_n if text.is_begin else 0
        tally.add(own)
    yield rows.batch(replace(tally, aside=tally.aside[:ASIDE_OF_A_PART_MAX]))


class _Rows:
    """Rows of some spans: one for each trace; of a stream one for each span, which has an end of its own there."""

    def __init__(self, moment_us: int | None) -> None:
        self._moment_us = moment_us
        self._spans_n = 0
        self._packs: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self._ended_us: dict[tuple[str, int], int] = {}

    @property
    def are_many(self) -> bool:
        return self._spans_n == _SPANS

    def add(self, span: Span) -> None:
        ended_us = span.end_ns // 1000
        if self._moment_us is None:
            key = (trace_of(span), 0)
            ended_us = max(ended_us, self._ended_us.get(key, 0))
        else:
            key = (trace_of(span), self._spans_n)
            ended_us = min(ended_us, self._moment_us)
        self._packs[key].append(packed(span))
        self._ended_us[key] = ended_us
        self._spans_n += 1

    def batch(self, told: Tally | None = None) -> pa.RecordBatch:
        """The rows, and, where there is something to tell of them all, a row without a trace."""
        traces: list[str | None] = [trace_id for trace_id, _ in self._packs]
        ended_us: list[int | None] = [*self._ended_us.values()]
        spans = [together(packs) for packs in self._packs.values()]
        if told is not None:
            traces.append(None)
            ended_us.append(self._moment_us)
            spans.append(pickle.dumps(told))
        columns = (traces, ended_us, spans)
        return pa.record_batch(
            [pa.array(of, field.type) for of, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
        )
