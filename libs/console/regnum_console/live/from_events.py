"""Changes as the controller's event log has them: for clusters whose traces are not at hand. Pure.

Events say what was decided and when, and not what it waited for: a bar from the first event to the last is no outage.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from regnum_client.admin.describing.events import ClusterEvent, EventKind
from regnum_client.commands.looking.event_words import row_of
from regnum_insight.reporting import svg

KINDS: Final = frozenset({
    EventKind.BROKER_FENCED, EventKind.BROKER_GONE, EventKind.BROKER_STOPPING, EventKind.LEADER_ELECTED,
    EventKind.PARTITION_OFFLINE, EventKind.CONTROLLER_ELECTED,
})  # fmt: skip
"""Events that a change consists of."""
MOVES: Final = frozenset({EventKind.LEADER_ELECTED, EventKind.PARTITION_OFFLINE, EventKind.CONTROLLER_ELECTED})
"""One of these has to be among them."""
ROWS_SHOWN: Final = 24
"""Events that are drawn of one change."""


class EventChange(NamedTuple):
    """Events of one change."""

    key: str
    """Its trace id, or the place of its first event in the log: ``12.7``."""
    start_ms: int
    """Time of its first event, milliseconds since 1970, by the controller's clock."""
    kind: str
    """What caused it."""
    events: Sequence[ClusterEvent]
    """Its events, the oldest first."""

    @property
    def partitions(self) -> int:
        """Partitions that it moved."""
        return sum(max(1, one.count) for one in self.events if one.topic)


def changes_from(events: Iterable[ClusterEvent]) -> list[EventChange]:
    """The changes that some events tell of, the newest first."""
    groups: dict[str, list[ClusterEvent]] = {}
    for event in sorted(events, key=lambda one: one.position):
        if event.kind in KINDS:
            key = event.trace_id or f"{event.position.epoch}.{event.position.number}"
            groups.setdefault(key, []).append(event)
    changes = [
        EventChange(key, of[0].time_unix_ms, next(one for one in of if one.kind in MOVES).cause.value, of)
        for key, of in groups.items()
        if any(one.kind in MOVES for one in of)
    ]
    return sorted(changes, key=lambda one: (-one.start_ms, one.key))


def picture(change: EventChange) -> str:
    """Its events over time, as SVG."""
    end = max(1, change.events[-1].time_unix_ms - change.start_ms)
    rows = []
    for event in change.events[:ROWS_SHOWN]:
        at = event.time_unix_ms - change.start_ms
        told = row_of(event)
        bar = svg.Bar(at, at, "g-decided", f"{told['event']}, {told['subject']} {told['change']}: after {at} ms")
        rows.append(svg.Row(f"{told['subject']}, {told['event']}", [bar]))
    return svg.bars(rows, begin=0, end=end, about=f"Events of the change {change.key}")
