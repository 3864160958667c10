"""The chain of one change of one partition, for a terminal of eighty columns. Pure."""

from collections.abc import Sequence
from typing import Final

from regnum_insight.attribution import steps
from regnum_insight.attribution.chains import BROKER, CONSUMER, PRODUCER, Chain
from regnum_insight.attribution.changes import UNKNOWN_KIND, Change
from regnum_insight.reporting.rows import chains_of, marked_label_of, started, title
from regnum_insight.reporting.text import chain_lines

COLUMNS: Final = 80
"""Width of what is told."""

_WAITED: Final = {
    PRODUCER: "its producer waited",
    CONSUMER: "its consumer waited",
    BROKER: "a client that left no spans waited, as its leader saw it, at least",
}


def change_of_partition(
    changes: Sequence[Change], topic: str, partition: int, trace_id: str = ""
) -> tuple[Change, Chain] | None:
    """The last change of a partition, or the one whose trace id begins so, with its chain; None: there is none.

    Where no client waited it is the way of the order that made its leader, if that leader names the partition.
    """
    name = f"{topic}/{partition}"
    for change in sorted(changes, key=lambda one: (one.start_ns, one.trace_id), reverse=True):
        if not change.trace_id.startswith(trace_id.lower()):
            continue
        chain = next((one for one in (*chains_of(change), *change.orders) if one.name == name), None)
        if chain is not None:
            return change, chain
    return None


def lacking(changes: Sequence[Change], topic: str, partition: int, trace_id: str = "", *, since_ns: int) -> list[str]:
    """What is not written yet, perhaps, of a partition's last change, in words; empty: its chain is whole.

    A change that is under way may be of any partition until its leaders and clients have written what they did.

    Args:
        changes: all that the traces tell of.
        topic: of the partition.
        partition: its number.
        trace_id: begin of the trace id of the change that is meant; empty: of any.
        since_ns: of changes that began earlier nothing more is to come; nanoseconds since 1970.
    """
    found = change_of_partition(changes, topic, partition, trace_id)
    if found is not None:
        since_ns = max(since_ns, found[0].start_ns)
    late = []
    for change in changes:
        if change.start_ns < since_ns or not change.trace_id.startswith(trace_id.lower()):
            continue
        if change.unfinished or change.kind == UNKNOWN_KIND:
            late.append(f"the end of change {change.trace_id}, which its controller writes")
        elif f"{topic}/{partition}" in change.untold:
            late.append(f"the client's part of change {change.trace_id}, which the client writes")
    return late


def timing_text(name: str, change: Change, chain: Chain) -> str:
    """Head, a line for each step, and what is to be known of them. ``name`` is that of the partition."""
    at = started(change)
    waited = _WAITED.get(chain.seen_by, "no client is known to have waited; until its leader led it took")
    lines = [
        f"{name}: {marked_label_of(change)}, {change.victim or 'no victim'}, {at[:10]} {at[11:23]} UTC"[:COLUMNS],
        f"{waited} {chain.outage_ms:.1f} ms",
        *(line[:COLUMNS] for line in chain_lines(chain)),
    ]
    others = [one for one in chains_of(change) if one.name == name and one is not chain]
    lines += [
        f"  {one.client or 'a client without spans'} waited {one.outage_ms:.1f} ms as well"[:COLUMNS] for one in others
    ]
    return "\n".join([*lines, *(f"  {note}" for note in _notes(change, chain)), f"  trace {change.trace_id}"])


def _notes(change: Change, chain: Chain) -> list[str]:
    notes = []
    if change.unfinished:
        notes.append("unfinished: its controller died, or is not done")
    notes += [f"belongs together with {other}" for other in change.links]
    if chain.seen_by == BROKER:
        late = chain.name in change.untold
        notes.append(f"the client's part is unknown: it {'has not written its spans' if late else 'left no spans'}")
    if change.unsaid:
        notes.append(f"traces of this age do not tell: {', '.join(map(title, change.unsaid))}")
    if any(segment.step == steps.UNEXPLAINED and segment.ms >= 0.05 for segment in chain.segments):
        notes.append("unexplained: what lies between was not recorded, or its file is missing")
    if any(segment.bound_ms is None for segment in chain.segments):
        notes.append("no call shows how far some of the clocks differ")
    corrected = sorted(note.process for note in change.clocks if note.ahead_ms)
    if corrected:
        notes.append(f"clocks differ, and were corrected: {', '.join(corrected)}"[: COLUMNS - 2])
    return notes
