"""Spans as bytes, where many of them wait for the rest of their trace: in memory, or between machines. Pure."""

import marshal
from collections.abc import Iterable
from typing import Any, Final, cast

from regnum_insight.spans.span import Span

_VERSION: Final = 2
"""Of marshal's format: without references, so that the same span gives the same bytes in every process."""


def packed(span: Span) -> bytes:
    """Everything of a span but its trace id: some 200 bytes."""
    return marshal.dumps(cast("Any", span[1:]), _VERSION)


def spans_of_trace(trace_id: str, packs: Iterable[bytes]) -> list[Span]:
    """The spans of a trace, each once and in the order of their ids, whatever order they came in and how often."""
    spans: dict[str, Span] = {}
    # Sorted: of two that differ under one id the same one counts, whatever the order of files.
    for one in sorted(packs):
        span = Span(trace_id, *marshal.loads(one))  # noqa: S302 - made by ``packed``
        spans.setdefault(span.span_id, span)
    return [spans[key] for key in sorted(spans)]
