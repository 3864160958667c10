"""Changes of leadership that an earlier reign began and may not have ended, by the newest entries of the log. Pure."""

from collections.abc import Iterable
from typing import Final

from regnum.types.v1 import events_pb2 as words
from regnum_model.ids import BrokerId, ControllerEpoch
from regnum_telemetry import propagation

from regnum_election.history.encoding import decode
from regnum_election.history.events import Cause
from regnum_election.reign.witnesses import Earlier

CAUSES: Final[frozenset[Cause]] = frozenset(
    {
        words.EVENT_CAUSE_LIFELINE_BROKEN,
        words.EVENT_CAUSE_SILENCE,
        words.EVENT_CAUSE_REGISTRATION_CHANGED,
        words.EVENT_CAUSE_CONTROLLER_GONE,
        words.EVENT_CAUSE_SUCCESSION,
        words.EVENT_CAUSE_CONTROLLED_SHUTDOWN,
        words.EVENT_CAUSE_PREFERRED_BALANCE,
        words.EVENT_CAUSE_ELECTION_REQUESTED,
        words.EVENT_CAUSE_RECOVERY,
    }
)
"""Of events whose trace is that of a change of leadership; other events may be of a client's."""


def changes_in(payloads: Iterable[bytes], *, before: ControllerEpoch, since_unix_ms: int) -> tuple[Earlier, ...]:
    """Traced changes in encoded entries, each once.

    Args:
        payloads: the entries.
        before: only of reigns before this one.
        since_unix_ms: only from this moment on.
    """
    found: dict[str, Earlier] = {}
    for payload in payloads:
        entry = decode(payload)
        place = propagation.parse(entry.traceparent)
        if place is None or entry.cause not in CAUSES:
            continue
        if entry.controller_epoch >= before or entry.time_unix_ms < since_unix_ms:
            continue
        fenced = entry.other.kind == words.EVENT_KIND_BROKER_FENCED
        if fenced or place.trace_id not in found:
            broker = BrokerId(entry.other.broker_id) if fenced else None
            found[place.trace_id] = Earlier(broker=broker, context=entry.traceparent)
    return tuple(found.values())
