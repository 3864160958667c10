"""What a change of leadership took: its stages, and for how long each partition was without acknowledgements. Pure.

Goals: the same words and the same sums as the report of failovers has; nothing of it needs spans.

Algorithm: a stage is named by the boundary at which it ends and reaches from the one before it. Boundaries may come in
another order (a leader acknowledges while another is still being told, and clocks of machines differ), so each counts
as at least the one before it: the stages of a change always add up to its length. A boundary that was not recorded has
no stage, and its time lies in the next one.

Example: failed 0, noticed 20, detected 30, fenced 33, decided 34, written 37, dispatched 45, acknowledged 41 ms.
Stages: noticed 20, detected 10, fenced 3, decided 1, written 3, dispatched 8, acknowledged 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_telemetry import conventions as names

BOUNDARIES: Final = {
    names.NOTICED_UNIX_NANO: "noticed",
    names.DETECTED_UNIX_NANO: "detected",
    names.FENCED_UNIX_NANO: "fenced",
    names.WON_UNIX_NANO: "won",
    names.LOADED_UNIX_NANO: "loaded",
    names.DECIDED_UNIX_NANO: "decided",
    names.WRITTEN_UNIX_NANO: "written",
    names.VERIFIED_UNIX_NANO: "verified",
    names.DISPATCHED_UNIX_NANO: "dispatched",
    names.ACKNOWLEDGED_UNIX_NANO: "acknowledged",
}
"""Boundaries in their order, and how the stages are called that end with them: as the steps of the report."""


_LAST: Final = ("dispatched", "acknowledged")
_PLANNED: Final = ("decided", "written", *_LAST)

USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    names.KIND_BROKER_FAILURE: ("noticed", "detected", "fenced", *_PLANNED),
    names.KIND_SUCCESSION: ("noticed", "detected", "fenced", "won", "loaded", "decided", "written", "verified", *_LAST),
    names.KIND_CONTROLLED_SHUTDOWN: _PLANNED,
    names.KIND_BALANCE: _PLANNED,
    names.KIND_REASSIGNMENT: _PLANNED,
    names.KIND_ELECTION: _PLANNED,
    names.KIND_UNCLEAN: _PLANNED,
    names.KIND_RECOVERY: _PLANNED,
    names.KIND_RETURN: _PLANNED,
}
"""Every kind of change, and the stages that it has as a rule: their metrics are there, at 0, before the first one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A change that is over."""

    kind: str
    """One of the ``conventions.KIND_`` values."""
    trace_id: str
    """32 hex digits; empty when nothing is traced."""
    is_complete: bool
    """Whether every new leader acknowledged while it was waited for."""
    stages_s: Sequence[tuple[str, float]]
    """Stages and their seconds, in order."""
    outages_s: Sequence[float]
    """Of each partition whose new leader reported one: seconds from the beginning to its first acknowledgement."""
    unheard: int
    """Partitions whose leaders announced such a report, which did not come in time."""
    unix_s: float
    """When it was over, in seconds since 1970."""


def stages(begin_unix_nano: int, boundaries: Mapping[str, int]) -> list[tuple[str, float]]:
    """The stages of a change, and their seconds, in order.

    Args:
        begin_unix_nano: beginning of the root.
        boundaries: what was recorded, by attribute; others than ``BOUNDARIES`` are left out.
    """
    found, last = [], begin_unix_nano
    for boundary, stage in BOUNDARIES.items():
        at = boundaries.get(boundary)
        if at is not None:
            at = max(at, last)
            found.append((stage, (at - last) / 1e9))
            last = at
    return found
