"""Looking for events in records: a page at a time, at a bounded cost. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from regnum.admin.v1 import events_pb2
from regnum_model.ids import ControllerEpoch

from regnum_election.history.encoding import EventFilter, decode
from regnum_election.history.events import Position
from regnum_election.history.segments import Record

LIMIT_DEFAULT: Final = 100
"""Events of a page that says nothing of it."""

LIMIT_MAX: Final = 1_000
"""Events of a page at most: about 300 KB."""

LOOKED_AT_BYTES_MAX: Final = 4 * 2**20
"""Bytes that one call looks at, about."""

SKEW_MS: Final = 60_000
"""How far clocks of controllers may be apart, for what is not looked at because it is too old."""


@dataclass(slots=True, kw_only=True)
class Found:
    """A page of events."""

    events: list[events_pb2.ClusterEvent] = field(default_factory=list)
    next: Position | None = None
    """Where to go on; None: nothing was there."""
    more: bool = False
    """Whether more may lie beyond it."""


def backwards(records: Iterator[Record], chosen: EventFilter, *, before: Position | None, limit: int) -> Found:
    """Newest first, from what lies before a place."""
    found, looked_at = Found(), 0
    for record in records:
        if looked_at >= LOOKED_AT_BYTES_MAX:
            found.more = True
            return found
        looked_at += len(record.payload)
        entry = decode(record.payload)
        if entry.time_unix_ms < chosen.since_unix_ms - SKEW_MS:
            return found
        for event in chosen.events(entry, backwards=True):
            place = position_of(event.position)
            if before is not None and place >= before:
                continue
            if len(found.events) == limit:
                found.more = True
                return found
            found.events.append(event)
            found.next = place
        if len(found.events) < limit:
            found.next = record.first
    return found


def forwards(records: Iterator[Record], chosen: EventFilter, *, after: Position, limit: int) -> Found:
    """Oldest first, from what lies behind a place."""
    found, looked_at = Found(next=after), 0
    for record in records:
        if looked_at >= LOOKED_AT_BYTES_MAX:
            found.more = True
            return found
        looked_at += len(record.payload)
        for event in chosen.events(decode(record.payload), backwards=False):
            place = position_of(event.position)
            if place <= after:
                continue
            if len(found.events) == limit:
                found.more = True
                return found
            found.events.append(event)
            found.next = place
        if len(found.events) < limit:
            found.next = record.last
    return found


def position_of(said: events_pb2.EventPosition) -> Position:
    """The place that a message names."""
    return Position(ControllerEpoch(said.controller_epoch), said.number)
