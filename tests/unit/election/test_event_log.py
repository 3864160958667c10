"""The event log of a process: it never stands in the way, and says what it could not keep."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from regnum.admin.v1 import events_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1 import events_pb2 as words
from regnum_election.history.encoding import encode
from regnum_election.history.events import BEGINNING, Entry, OtherEntry, PartitionRow, PartitionsEntry, Position, Reason
from regnum_election.history.following import follow
from regnum_election.history.log import EventLog
from regnum_election.history.search import Found
from regnum_election.history.segments import Limits
from regnum_model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ElectionId,
    LeaderEpoch,
    LogId,
    PartitionKey,
    TopicId,
)
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_model.wire_times import timestamp_of, unix_ms_of
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.limits.threads import for_caller
from regnum_testing.clock import settle
from regnum_testing.waiting import DEADLINE_S, until, within

LOST = Reason(words.EVENT_CAUSE_LIFELINE_BROKEN, "lifeline ended, port refused twice", "00-abc-def-01")


class Topic:
    def __init__(self, name: str) -> None:
        self.name = name


TOPICS = {TopicId("t1"): Topic("orders"), TopicId("t2"): Topic("audit")}


def state(leader: int, epoch: int, isr: Sequence[int], elr: Sequence[int] = ()) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=TopicId("t1"),
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=tuple(map(BrokerId, isr)),
        elr=tuple(map(BrokerId, elr)),
        members={BrokerId(id): Membership(broker_epoch=BrokerEpoch(1), log_id=LogId("l")) for id in (*isr, *elr)},
        controller_epoch=ControllerEpoch(1),
    )


def row(partition: int, *, topic: str = "t1", before: LeaderAndIsr | None = None, leader: int = 2) -> PartitionRow:
    after = state(leader, 5, [2, 3] if leader == 2 else [1, 2])
    return PartitionRow(PartitionKey(TopicId(topic), partition), before or state(1, 4, [1, 2, 3]), after, 7)


def moved(epoch: int, number: int, rows: Sequence[PartitionRow] = (), *, time_ms: int = 1_000) -> PartitionsEntry:
    return PartitionsEntry(
        position=Position(ControllerEpoch(epoch), number),
        controller=ElectionId(1),
        time_unix_ms=time_ms,
        reason=LOST,
        rows=rows or [row(0)],
        topics=TOPICS,
    )


def fenced(epoch: int, number: int, *, broker: int = 1) -> OtherEntry:
    return OtherEntry(
        position=Position(ControllerEpoch(epoch), number),
        controller=ElectionId(1),
        time_unix_ms=1_000,
        reason=LOST,
        kind=words.EVENT_KIND_BROKER_FENCED,
        broker=BrokerId(broker),
        broker_epoch=BrokerEpoch(9),
    )


Open = Callable[..., Awaitable[EventLog]]


@pytest.fixture
async def open_log(tmp_path: Path) -> AsyncIterator[Open]:
    logs: list[EventLog] = []

    async def begin(name: str = "log", limits: Limits | None = None, *, folder: Path | None = None) -> EventLog:
        log = EventLog(SystemClock(), limits)
        logs.append(log)
        log.open(folder or tmp_path / name)
        await log.ready()
        return log

    yield begin
    for log in logs:
        await log.close()


async def write(log: EventLog, *entries: Entry) -> None:
    for entry in entries:
        log.append(entry)
    last = entries[-1].position
    await until(lambda: log.last >= last, "the entries are written")


async def found(
    log: EventLog,
    chosen: events_pb2.EventFilter | None = None,
    *,
    limit: int = 100,
    after: Position | None = None,
    before: Position | None = None,
) -> Found:
    request = events_pb2.DescribeEventsRequest(filter=chosen)
    return await log.search(request, limit=limit, after=after, before=before)


async def test_a_partitions_story_is_told_newest_first(open_log: Open) -> None:
    log = await open_log()
    await write(log, fenced(3, 1), moved(3, 2, [row(0), row(1), row(0, topic="t2")]), moved(4, 1, [row(0, leader=1)]))
    story = (await found(log, events_pb2.EventFilter(topic="orders", partition=0))).events
    assert [(one.position.controller_epoch, one.position.number) for one in story] == [(4, 1), (3, 2)]
    one = story[1]
    assert (one.topic, one.partition, one.kind) == ("orders", 0, words.EVENT_KIND_LEADER_ELECTED)
    assert (one.before.leader, one.before.leader_epoch, list(one.before.isr)) == (1, 4, [1, 2, 3])
    assert (one.after.leader, one.after.leader_epoch, list(one.after.isr), one.after.version) == (2, 5, [2, 3], 7)
    assert (one.cause, one.evidence, one.traceparent) == (LOST.cause, LOST.evidence, LOST.traceparent)
    assert one.controller_id == 1


async def test_kinds_say_what_a_change_of_state_was(open_log: Open) -> None:
    log = await open_log()
    same = state(1, 4, [1, 2, 3])
    rows = [
        PartitionRow(PartitionKey(TopicId("t1"), 0), None, state(1, 0, [1]), 0),
        PartitionRow(PartitionKey(TopicId("t1"), 1), same, state(1, 4, [1, 2], elr=[3]), 2),
        PartitionRow(PartitionKey(TopicId("t1"), 2), same, state(-1, 5, [1]), 3),
    ]
    await write(log, moved(1, 1, rows))
    events = (await found(log, after=BEGINNING)).events
    assert [one.kind for one in events] == [
        words.EVENT_KIND_LEADER_ELECTED,
        words.EVENT_KIND_ISR_CHANGED,
        words.EVENT_KIND_PARTITION_OFFLINE,
    ]
    assert not events[0].HasField("before")
    assert list(events[1].after.elr) == [3]


async def test_events_of_a_broker_are_those_in_which_it_came_went_led_or_was_in_sync(open_log: Open) -> None:
    log = await open_log()
    await write(log, fenced(1, 1), fenced(1, 2, broker=2), moved(1, 3, [row(0)]))
    of = {
        broker: [one.position.number for one in (await found(log, events_pb2.EventFilter(broker_id=broker))).events]
        for broker in (1, 2, 3)
    }
    assert of == {1: [3, 1], 2: [3, 2], 3: []}
    kinds = events_pb2.EventFilter(kinds=[words.EVENT_KIND_BROKER_FENCED])
    assert len((await found(log, kinds)).events) == 2


async def test_pages_cut_entries_anywhere_and_lose_nothing(open_log: Open) -> None:
    log = await open_log()
    await write(
        log,
        moved(1, 1, [row(number) for number in range(10)]),
        fenced(1, 11),
        moved(2, 1, [row(number) for number in range(7)]),
    )
    places = [(1, number) for number in range(1, 12)] + [(2, number) for number in range(1, 8)]
    seen: list[tuple[int, int]] = []
    before: Position | None = None
    while True:
        page = await found(log, limit=4, before=before)
        seen += [(one.position.controller_epoch, one.position.number) for one in page.events]
        if not page.more:
            break
        before = page.next
    assert seen == places[::-1]
    seen, after = [], BEGINNING
    while (page := await found(log, limit=4, after=after)).events:
        seen += [(one.position.controller_epoch, one.position.number) for one in page.events]
        assert page.next is not None
        after = page.next
    assert seen == places


async def test_a_process_that_starts_anew_goes_on_where_it_was(open_log: Open) -> None:
    first = await open_log()
    await write(first, moved(1, 1), fenced(1, 2))
    await first.close()
    again = await open_log()
    assert again.last == (1, 2)
    await write(again, fenced(2, 1))
    assert len((await found(again)).events) == 3


async def test_a_standby_follows_and_goes_on_from_its_own_log(open_log: Open) -> None:
    leader, standby = await open_log("leader"), await open_log("standby")
    await write(leader, moved(1, 1, [row(number) for number in range(5)]), fenced(1, 6))

    async def reigns() -> None:
        return None

    async def take_until(last: Position) -> None:
        async with asyncio.timeout(DEADLINE_S):
            async for entries in follow(leader, standby.last, check=reigns):
                standby.take(entries)
                # The two ends are two processes.
                await asyncio.sleep(0)
                if leader.last == last and standby.take(entries) == last:
                    return

    await take_until(Position(ControllerEpoch(1), 6))
    await until(lambda: standby.last == (1, 6), "the standby has written what it took")
    await write(leader, fenced(1, 7))
    await take_until(Position(ControllerEpoch(1), 7))
    await until(lambda: standby.last == (1, 7), "and what came later")
    # Taken twice each: repeats are known.
    assert [one.position.number for one in (await found(standby, after=BEGINNING)).events] == list(range(1, 8))
    await write(standby, fenced(2, 1))
    assert (await found(standby)).events[0].position.controller_epoch == 2


async def test_who_comes_late_is_sent_what_the_disk_has(open_log: Open) -> None:
    log = await open_log(limits=Limits(memory_bytes=200))
    for number in range(1, 101):
        log.append(fenced(1, number))
    await until(lambda: log.last.number == 100, "all are written")
    position, numbers = BEGINNING, []
    while records := await log.entries_after(position):
        numbers += [record.first.number for record in records]
        position = records[-1].last
    assert numbers == list(range(1, 101))


async def test_following_ends_with_the_reign(open_log: Open) -> None:
    log = await open_log()

    async def over() -> None:
        raise RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "over")

    with pytest.raises(RegnumError, match="over"):
        await anext(follow(log, BEGINNING, check=over))


async def test_what_a_replaced_controller_sends_late_changes_nothing(open_log: Open) -> None:
    log = await open_log()
    await write(log, fenced(1, 1), fenced(5, 1))
    log.take([encode(fenced(4, 9))])
    await write(log, fenced(5, 2))
    assert [one.position.controller_epoch for one in (await found(log)).events] == [5, 5, 1]


async def test_a_store_that_was_set_back_begins_another_history(open_log: Open) -> None:
    log = await open_log()
    await write(log, fenced(9, 1), fenced(9, 2))
    log.append(fenced(3, 1))
    await until(lambda: log.last == (3, 1), "the new history has begun")
    assert len((await found(log)).events) == 1


async def test_a_directory_that_cannot_be_written_costs_no_event_of_the_newest(tmp_path: Path, open_log: Open) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    log = await open_log(folder=blocked / "events")
    await write(log, fenced(1, 1), fenced(1, 2))
    assert (log.on_disk, log.disk_errors >= 1, log.dropped) == (False, True, 0)
    assert len((await found(log)).events) == 2
    assert len(await log.entries_after(BEGINNING)) == 2


async def test_what_memory_cannot_keep_while_the_directory_refuses_is_counted(tmp_path: Path, open_log: Open) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    log = await open_log(folder=blocked / "events", limits=Limits(memory_bytes=1_000))
    await write(log, *(fenced(1, number) for number in range(1, 101)))
    kept = (await found(log, limit=1_000)).events
    assert 0 < len(kept) < 100
    assert kept[0].position.number == 100
    assert log.dropped == 100 - len(kept)


QUICK = Limits(retry_s=0.01)


async def test_a_directory_that_can_be_written_again_is_found_while_nothing_happens(
    tmp_path: Path, open_log: Open
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    log = await open_log(folder=blocked / "events", limits=QUICK)
    await write(log, fenced(1, 1), fenced(1, 2))
    await until(lambda: log.disk_errors > 3, "it goes on trying")
    assert not log.on_disk
    blocked.unlink()
    await until(lambda: log.on_disk, "the directory is tried")
    again = EventLog(SystemClock())
    again.open(blocked / "events")
    await again.ready()
    assert [one.position.number for one in (await found(again, after=BEGINNING)).events] == [1, 2]
    await again.close()


async def test_a_directory_that_can_be_written_again_gets_what_was_in_memory(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    log = EventLog(SystemClock(), QUICK)
    log.open(blocked / "events")
    await log.ready()
    await write(log, fenced(1, 1), fenced(1, 2))
    assert not log.on_disk
    blocked.unlink()
    number = 3
    while not log.on_disk:
        await write(log, fenced(1, number))
        number += 1
    await log.close()
    again = EventLog(SystemClock())
    again.open(blocked / "events")
    await again.ready()
    assert [one.position.number for one in (await found(again, after=BEGINNING)).events] == list(range(1, number))
    await again.close()


async def test_what_does_not_fit_the_queue_is_dropped_counted_and_said(open_log: Open) -> None:
    log = await open_log(limits=Limits(queued_events=100))
    for number in range(1, 400):
        # The thread takes none of them in between: it waits for others first.
        log.append(fenced(1, number))
    assert log.dropped > 0
    await until(lambda: log.written >= 100, "those that fitted are written")
    log.append(fenced(1, 400))
    await until(lambda: log.last.number == 400, "the next is written")
    events = (await found(log, limit=1_000, after=BEGINNING)).events
    (gap,) = [one for one in events if one.kind == words.EVENT_KIND_EVENTS_DROPPED]
    assert gap.count == log.dropped
    assert gap.position.number + gap.count == 400


async def test_what_was_dropped_at_the_end_of_a_reign_does_not_cost_the_log_in_the_next(open_log: Open) -> None:
    log = await open_log(limits=Limits(queued_events=5))
    for number in range(1, 9):
        log.append(fenced(6, number))
    await until(lambda: log.last == (6, 5), "those that fitted are written")
    assert log.dropped == 3
    log.take([encode(fenced(7, number)) for number in (1, 2)])
    await until(lambda: log.last == (7, 2), "the successor's are written")
    await write(log, fenced(8, 1))
    events = (await found(log, limit=1_000, after=BEGINNING)).events
    places = [(one.position.controller_epoch, one.position.number) for one in events]
    assert places == [*((6, number) for number in range(1, 6)), (7, 1), (7, 2), (8, 1)]


async def test_texts_that_no_wire_takes_do_not_end_the_log(open_log: Open) -> None:
    """A node that a person wrote may say anything, and what is said of it stands in an event."""
    log = await open_log()
    strange = replace(fenced(1, 1), detail="\udcff" * 5_000, topic="\ud800")
    await write(log, strange, fenced(1, 2))
    first, second = (await found(log, after=BEGINNING)).events
    assert (first.detail, first.topic) == ("?" * 1_000, "?")
    assert second.position.number == 2


async def test_pages_go_from_memory_over_to_disk_without_a_gap_or_a_repeat(open_log: Open) -> None:
    log = await open_log(limits=Limits(memory_bytes=1_500, segment_bytes=700))
    await write(log, *(moved(1, 1 + 3 * number, [row(0), row(1), row(2)]) for number in range(40)))
    seen: list[int] = []
    before: Position | None = None
    while (page := await found(log, limit=7, before=before)).events:
        seen += [one.position.number for one in page.events]
        before = page.next
    assert seen == list(range(120, 0, -1))
    seen, after = [], BEGINNING
    while (page := await found(log, limit=7, after=after)).events:
        seen += [one.position.number for one in page.events]
        assert page.next is not None
        after = page.next
    assert seen == list(range(1, 121))


async def test_what_lies_too_far_back_is_not_looked_at(open_log: Open) -> None:
    log = await open_log()
    hour_ms = 3_600_000
    await write(log, *(moved(1, number, time_ms=number * hour_ms) for number in range(1, 6)))
    page = await found(log, events_pb2.EventFilter(since=timestamp_of(3 * hour_ms)))
    assert [unix_ms_of(one.time) // hour_ms for one in page.events] == [5, 4, 3]
    assert not page.more


async def test_a_disk_that_hangs_takes_no_thread_that_others_need(open_log: Open, tmp_path: Path) -> None:
    """Searches had the only thread for calls of clients, and standbys that came late those of the event loop."""
    folder = tmp_path / "log"
    log = await open_log("log", Limits(segment_bytes=1, memory_bytes=1))
    await write(log, fenced(1, 1), fenced(1, 2), fenced(1, 3))
    oldest = min(folder.iterdir())
    oldest.unlink()
    # Whoever opens it waits until somebody writes into it.
    os.mkfifo(oldest)
    reading = [asyncio.create_task(found(log)), *(asyncio.create_task(log.entries_after(BEGINNING)) for _ in range(64))]
    await settle()
    try:
        assert await within(for_caller(lambda: "a call")) == "a call"
        assert await within(asyncio.to_thread(lambda: "the process")) == "the process"
        assert not any(one.done() for one in reading)
    finally:
        while not all(one.done() for one in reading):
            os.close(os.open(oldest, os.O_RDWR))
            await asyncio.wait(reading, timeout=0.001)
    assert [one.position.number for one in reading[0].result().events] == [3, 2]
