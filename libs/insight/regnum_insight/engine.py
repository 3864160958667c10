"""The analysis in one process of plain Python: no JVM, no wait. For up to some millions of spans."""

import gc
import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_insight.attribution.changes import SELECTION, UNTRACED, Change, change_of, trace_of
from regnum_insight.spans.intake import Intake, read_folder
from regnum_insight.spans.span import Span

PICTURED_MAX: Final = 24
"""Of so many changes, the worst, the spans are kept for a picture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What the traces of a folder tell."""

    changes: Sequence[Change]
    """All changes, the oldest first."""
    intake: Intake
    """What was read, and what was not."""
    pictured: dict[str, Sequence[Span]]
    """Spans of the longest changes, by trace id."""


def analyse(traces: Path, *, progress: Callable[[str], None] = lambda _: None) -> Analysis:
    """Read a folder of traces, or one file, and attribute. ``progress`` is told each file.

    Raises FileNotFoundError where there is no file.
    """
    with no_collection():
        intake = read_folder(traces, SELECTION, trace_of=trace_of, progress=progress)
        changes: list[Change] = []
        worst: list[tuple[float, str, Sequence[Span]]] = []
        for spans in intake.traces():
            change = change_of(spans)
            if change is None:
                continue
            changes.append(change)
            if change.kind == UNTRACED:
                continue
            item = (change.total_ms, change.trace_id, spans)
            if len(worst) < PICTURED_MAX:
                heapq.heappush(worst, item)
            else:
                heapq.heappushpop(worst, item)
        changes.sort(key=lambda change: (change.start_ns, change.trace_id))
    return Analysis(changes=changes, intake=intake, pictured={trace_id: spans for _, trace_id, spans in worst})


@contextmanager
def no_collection() -> Iterator[None]:
    """For the body of an analysis: nothing of it is cyclic, and to find that out takes a third of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
