"""The failovers as the traces saw them, beside what the client saw. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SUM_TOLERANCE_MS: Final = 1.0
"""By how much the stages of a failover may miss its total."""
OUTAGE_TOLERANCE_MS: Final = 20.0
"""By how much the outage in the producer's spans may differ from the one that its caller counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What one kill cost."""

    victim: str
    """Process that was killed, and what it was doing."""
    process: str
    """The process alone, as traces call it: ``broker 2``, ``controller 1``."""
    of_leaders: bool
    """Whether it led partitions, so that producers had to go elsewhere."""
    partitions: int
    """Partitions that are counted: those it led, or all of them for a controller."""
    client_s: float
    """Longest time without an acknowledgement on one of them, in seconds, as the producer saw it."""
    successor_s: float
    """From the kill until a broker's metadata named a successor, in seconds."""
    planned: str = ""
    """Kind of the change where nothing was killed and leaders were moved as planned; empty for a kill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One kill, from both sides."""

    outage: Outage
    """What the client saw."""
    stages_ms: Mapping[str, float]
    """Length of each stage in order of time; empty when no trace was found."""
    total_ms: float | None
    """From the first notice to the last boundary; None when no trace was found."""
    traced_outage_ms: float | None
    """The longest outage among the producer's spans; None without one."""

    @property
    def complaints(self) -> tuple[str, ...]:
        """What does not fit together."""
        victim = self.outage.process or self.outage.victim
        if self.total_ms is None:
            return (f"no trace of {'the planned move' if self.outage.planned else f'the death of {victim}'}",)
        found = []
        total_of_stages_ms = sum(self.stages_ms.values())
        if abs(total_of_stages_ms - self.total_ms) > SUM_TOLERANCE_MS:
            found.append(f"{victim}: the stages add up to {total_of_stages_ms:.1f} ms, not to {self.total_ms:.1f} ms")
        # Nobody's leader goes with a controller, so no producer has an outage to trace.
        if not self.outage.of_leaders:
            return tuple(found)
        seen_ms = self.outage.client_s * 1000
        if self.traced_outage_ms is None and self.outage.planned:
            # A producer that had nothing on its way while the leaders moved has not waited.
            return tuple(found)
        if self.traced_outage_ms is None:
            found.append(f"{victim}: no producer left a span of its outage")
        elif not self._agree(self.traced_outage_ms, seen_ms):
            found.append(
                f"{victim}: {self.traced_outage_ms:.0f} ms without an ack in the traces, {seen_ms:.0f} ms seen"
            )
        return tuple(found)

    def _agree(self, traced_ms: float, seen_ms: float) -> bool:
        if self.outage.planned:
            # Leaders move one after another; what is waited for besides, on a machine that others use, is no move's.
            return traced_ms - seen_ms <= OUTAGE_TOLERANCE_MS
        return abs(traced_ms - seen_ms) <= OUTAGE_TOLERANCE_MS


def match(outages: Sequence[Outage], failovers: Sequence[Mapping[str, Any]]) -> tuple[Timeline, ...]:
    """Pair every kill with the row for it: the first, oldest, of the same victim that is not taken yet.

    A planned move is paired by its kind.
    """
    left = sorted(failovers, key=lambda row: row["start_ns"])
    timelines = []
    for outage in outages:
        row = next((row for row in left if _is_of(row, outage)), None)
        if row is not None:
            left.remove(row)
        timelines.append(
            Timeline(
                outage=outage,
                stages_ms={} if row is None else row["stages_ms"],
                total_ms=None if row is None else row["total_ms"],
                traced_outage_ms=None if row is None else row["outage_ms"],
            )
        )
    return tuple(timelines)


def _is_of(row: Mapping[str, Any], outage: Outage) -> bool:
    if outage.planned:
        return bool(row["kind"] == outage.planned)
    return bool(row["victim"] == outage.process and not row["planned"])
