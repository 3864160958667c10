"""What a successor knows of changes of leadership that its predecessor began and may not have ended."""

from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import events_pb2 as words
from regnum_election.history.encoding import encode
from regnum_election.history.events import Cause, Kind, OtherEntry, Position, Reason
from regnum_election.history.log import EventLog
from regnum_election.history.unfinished import changes_in
from regnum_election.reign.witnesses import Earlier
from regnum_model.ids import BrokerId, ControllerEpoch, ElectionId
from regnum_service.clock import SystemClock
from regnum_testing.waiting import until

FENCED = words.EVENT_KIND_BROKER_FENCED
LIFELINE = words.EVENT_CAUSE_LIFELINE_BROKEN


def place(trace: str) -> str:
    return f"00-{trace * 32}-{'1' * 16}-01"


def entry(
    trace: str,
    *,
    reign: int = 3,
    number: int = 1,
    at_ms: int = 1_000,
    kind: Kind = FENCED,
    cause: Cause = LIFELINE,
    broker: int = 2,
) -> OtherEntry:
    return OtherEntry(
        position=Position(ControllerEpoch(reign), number),
        controller=ElectionId(1),
        time_unix_ms=at_ms,
        reason=Reason(cause, "", place(trace) if trace else ""),
        kind=kind,
        broker=BrokerId(broker),
    )


def test_traced_changes_of_earlier_reigns_are_found_once_each() -> None:
    entries = [
        entry("a"),
        # The rows of the same failover name no broker.
        entry("a", kind=words.EVENT_KIND_LEADER_ELECTED),
        entry("b", kind=words.EVENT_KIND_CONTROLLER_ELECTED, cause=words.EVENT_CAUSE_CONTROLLER_GONE),
        # Of this reign, too old, a client's, and not traced.
        entry("c", reign=4),
        entry("d", at_ms=10),
        entry("e", cause=words.EVENT_CAUSE_CREATION),
        entry(""),
    ]
    for newest_first in (entries, entries[::-1]):
        found = changes_in(map(encode, newest_first), before=ControllerEpoch(4), since_unix_ms=500)
        assert set(found) == {Earlier(broker=BrokerId(2), context=place("a")), Earlier(broker=None, context=place("b"))}


@pytest.fixture
async def log() -> AsyncIterator[EventLog]:
    log = EventLog(SystemClock())
    log.open(None)
    yield log
    await log.close()


async def test_a_standby_knows_what_it_was_sent_a_moment_ago(log: EventLog) -> None:
    await log.ready()
    log.take([encode(entry("a"))])
    # Whether or not the log's thread has had its turn.
    found = (Earlier(broker=BrokerId(2), context=place("a")),)
    assert log.changes_before(ControllerEpoch(4), 500) == found
    await until(lambda: log.last == Position(ControllerEpoch(3), 1))
    assert log.changes_before(ControllerEpoch(4), 500) == found
    assert log.changes_before(ControllerEpoch(3), 500) == ()
