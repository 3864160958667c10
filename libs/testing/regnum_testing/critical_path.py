"""The critical path of a trace as tracing user interfaces find it: back in time, by the child that finished last. Pure.

A span's own time is what none of its children on the path takes. A child may outlive its parent, as what a call began
at another process does: it counts with its own end.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from regnum_insight.spans.span import Span


class Piece(NamedTuple):
    """One piece of the path."""

    span: Span
    """The span whose own time it is."""
    start_ns: int
    """Begin, in nanoseconds since 1970 by the clock of its process."""
    end_ns: int
    """End by the same clock."""


def critical_path(spans: Sequence[Span], root: Span) -> list[Piece]:
    """The pieces from the end of all that is below a root back to its beginning, the last first."""
    below: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.span_id != root.span_id:
            below[span.parent_id].append(span)
    ends: dict[str, int] = {}

    def last_end(span: Span) -> int:
        if span.span_id not in ends:
            ends[span.span_id] = max([span.end_ns, *(last_end(child) for child in below[span.span_id])])
        return ends[span.span_id]

    pieces: list[Piece] = []

    def walk(span: Span, until_ns: int) -> int:
        """Add the pieces of a span until a moment; returns where they begin."""
        at = until_ns
        left = list(below[span.span_id])
        while left:
            child = max(left, key=lambda one: (min(last_end(one), at), one.start_ns))
            left.remove(child)
            end = min(last_end(child), at)
            if child.start_ns >= at or end <= span.start_ns:
                continue
            if at > end:
                pieces.append(Piece(span, end, at))
            at = walk(child, end)
        if at > span.start_ns:
            pieces.append(Piece(span, span.start_ns, at))
            at = span.start_ns
        return at

    walk(root, last_end(root))
    return pieces


def covered_ns(pieces: Sequence[Piece], start_ns: int, end_ns: int) -> int:
    """How much of an interval lies on the path."""
    return sum(max(0, min(piece.end_ns, end_ns) - max(piece.start_ns, start_ns)) for piece in pieces)
