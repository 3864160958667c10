"""What a run tells of one trace: its rows, in each of its places, and what the ledger keeps of it. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from regnum_insight.attribution.changes import change_of
from regnum_insight.spans.packing import spans_of_trace
from regnum_insight.tables.rows import place_of, places_of, rows_of

from regnum_failover.tables.merging import Told, fit, packed
from regnum_failover.traces.packs import apart

KEPT: Final = b"K"
"""Before a span that the ledger has kept; what is packed begins otherwise. And"""
KEPT_OF_NONE: Final = b"N"
"""before one of a trace that was no change so far: every traced batch of a producer is one."""
TOLD: Final = b"T"
"""In the place of a span of a trace that was told for good."""
_KEPT: Final = (KEPT, KEPT_OF_NONE)


def placed(trace_id: str | None, packs: Sequence[bytes], run: int, *, with_spans: bool) -> list[dict[str, Any]]:
    """Each place that a trace has rows in, or had.

    As ``cluster``, ``date``, ``told`` (``merging.packed``), and whether the trace ``is_change`` that has rows there.
    """
    if trace_id is None or TOLD in packs:
        return []
    known = any(pack.startswith(_KEPT) for pack in packs)
    if known and all(pack.startswith(_KEPT) for pack in packs):
        # Nothing is new of it: it was told.
        return []
    spans = spans_of_trace(trace_id, _each(packs))
    change = change_of(spans)
    place = None if change is None else fit(place_of(change))
    rows = {} if change is None else rows_of(change, spans, run, with_spans=with_spans)
    return [
        {
            **here._asdict(),
            "told": packed(Told(trace_id, known, rows if here == place else {})),
            "is_change": here == place,
        }
        for here in sorted({*map(fit, places_of(spans)), *([place] if place else [])})
    ]


def marked(packs: Sequence[bytes] | None, *, is_change: bool) -> list[bytes]:
    """What the ledger keeps of a trace: its spans, each once; None: it was told for good, and there is a mark."""
    if packs is None:
        return [TOLD]
    kept = KEPT if is_change else KEPT_OF_NONE
    return sorted({kept + pack for pack in _each(packs)})


def _each(packs: Sequence[bytes]) -> Iterator[bytes]:
    """Every span, packed: those that the ledger has kept, and those that were read."""
    for pack in packs:
        if pack.startswith(_KEPT):
            yield pack[1:]
        else:
            yield from apart(pack)
