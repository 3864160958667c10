"""What a follower hears over a fetch session."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.sessions.fetch_session import WATERMARKS_MAX
from regnum_broker.replication.sessions.held_back import FAIR_EVERY
from regnum_broker.replication.throttle import BURST_S, PAUSE_S, TURN_S, Meter, Share
from regnum_model.ids import LeaderEpoch
from regnum_records.header import end_offset_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import FOLLOWER, LEADER, FetchingFollower, LeadingReplicas
from regnum_testing.waiting import until, within

BUSY, QUIET = 0, 1
LONG_MS = 60_000


@pytest.fixture
async def leader(tmp_path: Path) -> AsyncIterator[LeadingReplicas]:
    async with LeadingReplicas(tmp_path) as leading:
        yield leading


async def test_the_high_watermark_of_a_quiet_partition_rides_on_the_records_of_a_busy_one(
    leader: LeadingReplicas,
) -> None:
    follower = FetchingFollower(leader.session())
    await follower.ask((BUSY, 0), (QUIET, 0))
    await leader.append(QUIET)
    await follower.ask(wait_ms=LONG_MS)
    waiting = follower.asking((QUIET, 1), wait_ms=LONG_MS)
    await leader.append(BUSY)
    answer = await within(waiting)
    assert [item.partition for item in answer.partitions if item.records] == [BUSY]
    assert follower.high_watermarks[QUIET] == leader.partition(QUIET).high_watermark == 1


async def test_a_high_watermark_that_moves_before_the_follower_names_its_position_is_told_afterwards(
    leader: LeadingReplicas,
) -> None:
    """It moves while the follower stores what it was sent, and the answer with the records carried the old one."""
    follower = FetchingFollower(leader.session())
    await follower.ask((BUSY, 0), (QUIET, 0))
    await leader.append(QUIET)
    await follower.ask(wait_ms=LONG_MS)
    leader.partition(QUIET).commit(1)
    await leader.append(BUSY)
    await follower.ask(wait_ms=LONG_MS)
    await follower.ask((QUIET, 1), (BUSY, 1))
    assert follower.high_watermarks[QUIET] == 1


async def test_a_follower_that_was_sent_back_hears_the_high_watermark_again(leader: LeadingReplicas) -> None:
    """An answer that says where logs diverge says nothing else: the follower takes no high watermark from it."""
    follower = FetchingFollower(leader.session())
    await leader.append(QUIET)
    leader.lead(QUIET, epoch=1, isr=(1,))
    answer = await follower.ask((QUIET, 3), epoch=1)
    assert [item.partition for item in answer.partitions] == [QUIET]
    follower.high_watermarks.clear()
    await follower.ask((QUIET, 1), epoch=1)
    assert follower.high_watermarks == {QUIET: 1}


async def test_a_follower_that_names_its_position_anew_hears_the_high_watermark_again(leader: LeadingReplicas) -> None:
    """It began to follow once more, and took nothing from an answer that was meant for its role before."""
    await leader.append(QUIET)
    leader.lead(QUIET, epoch=1, isr=(1,))
    follower = FetchingFollower(leader.session())
    await follower.ask((QUIET, 1), epoch=1)
    assert follower.high_watermarks == {QUIET: 1}
    follower.high_watermarks.clear()
    await follower.ask((QUIET, 1), epoch=1)
    assert follower.high_watermarks == {QUIET: 1}


async def test_high_watermarks_that_did_not_move_cost_nothing(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, partitions=300) as leader:
        follower = FetchingFollower(leader.session())
        await follower.ask(*((number, 0) for number in range(300)))
        await follower.ask()
        before = leader.looked_at
        assert not (await follower.ask()).partitions
        assert leader.looked_at == before
        await leader.append(7)
        await follower.ask()
        await follower.ask((7, 1))
        assert follower.high_watermarks[7] == 1
        assert leader.looked_at - before < 20


async def test_thousands_of_high_watermarks_come_in_answers_that_do_not_wait(tmp_path: Path) -> None:
    count = WATERMARKS_MAX + 10
    async with LeadingReplicas(tmp_path, partitions=count) as leader:
        for number in range(count):
            await leader.append(number)
        follower = FetchingFollower(leader.session())
        first = await within(follower.asking(*((number, 1) for number in range(count)), wait_ms=LONG_MS))
        assert len(first.partitions) == WATERMARKS_MAX
        await follower.ask()
        assert len(follower.high_watermarks) == count


async def test_new_partitions_are_looked_at_once_and_named_in_no_answer(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, partitions=300) as leader:
        follower = FetchingFollower(leader.session())
        assert not (await follower.ask(*((number, 0) for number in range(300)))).partitions
        assert leader.looked_at == 300
        await leader.append(7)
        assert [item.partition for item in (await follower.ask(wait_ms=LONG_MS)).partitions if item.records] == [7]


async def test_a_partition_that_changes_hands_after_the_follower_named_it_is_answered(leader: LeadingReplicas) -> None:
    follower = FetchingFollower(leader.session())
    assert not (await follower.ask((QUIET, 0))).partitions
    waiting = follower.asking(wait_ms=LONG_MS)
    partition = leader.partition(QUIET)
    partition.leader_epoch = LeaderEpoch(1)
    leader.replicas.give(partition, None)
    answer = await within(waiting)
    assert [item.error_code for item in answer.partitions] == [errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH]


async def test_records_do_not_wait_for_the_end_of_requests_that_come_without_one(leader: LeadingReplicas) -> None:
    """Thousands of partitions are added while others have records: what is new is in the first answer."""
    follower = FetchingFollower(leader.session())
    await leader.append(BUSY)
    follower.hand_in((BUSY, 0))
    for _ in range(2):
        follower.hand_in((QUIET, 0))
    answers = [await within(follower.answer()) for _ in range(2)]
    assert [[item.partition for item in answer.partitions if item.records] for answer in answers] == [[BUSY], []]


async def test_what_a_throttle_holds_back_is_looked_at_when_there_is_room_and_not_with_each_record_of_another(
    tmp_path: Path,
) -> None:
    held, busy, rounds = 50, 50, 20
    async with LeadingReplicas(tmp_path, partitions=held + 1) as leader:
        for number in range(held):
            leader.lead(number, epoch=1, isr=(LEADER,), adding=(FOLLOWER,))
            await leader.append(number, b"v" * 1_000)
        throttle = Meter(leader.clock)
        throttle.set_rate(1)
        follower = FetchingFollower(leader.session(throttle=throttle))
        # A whole batch goes in any case, and the next ones pay for it: no room for a quarter of an hour.
        first = await follower.ask(*((number, 0) for number in range(held)), epoch=1)
        assert [item.throttled for item in first.partitions if item.records] == [True]
        await follower.ask((busy, 0))
        before = leader.looked_at
        for offset in range(rounds):
            waiting = follower.asking((busy, offset), wait_ms=LONG_MS)
            await leader.append(busy)
            answer = await within(waiting)
            assert [item.partition for item in answer.partitions if item.records] == [busy]
        # The busy one is looked up some times in each round; the fifty in one round of each second.
        assert leader.looked_at - before < 10 * rounds + held * 5

        throttle.set_rate(0)
        got = {item.partition for item in first.partitions if item.records}
        while len(got) < held:
            answer = await within(follower.asking(wait_ms=LONG_MS))
            got |= {item.partition for item in answer.partitions if item.records}


async def test_new_replicas_are_filled_one_after_another_and_one_that_grows_keeps_nobody_waiting(
    tmp_path: Path,
) -> None:
    """Filled side by side, they would all be in sync at once."""
    count, batches, growing, grown, portions = 8, 6, 2, 0, 0
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, partitions=count, clock=clock) as leader:
        for number in range(count):
            leader.lead(number, epoch=1, isr=(LEADER,), adding=(FOLLOWER,))
            for _ in range(batches):
                await leader.append(number, b"v" * 1_000)
        throttle = Meter(clock)
        throttle.set_rate(10_000)
        follower = FetchingFollower(leader.session(throttle=throttle))
        ends, told = [0] * count, list(range(count))
        arrived: list[int] = []
        while len(arrived) < count - 1:
            answer = await follower.ask(*((number, ends[number]) for number in told), epoch=1)
            told = [item.partition for item in answer.partitions if item.records]
            for item in answer.partitions:
                if item.records:
                    ends[item.partition] = end_offset_of(item.records)
            portions += 1
            under_way = [number for number in range(count) if number != growing and 0 < ends[number] < batches]
            # The one whose turn it is, and the next, which gets the rest of a portion; and those that waited longest.
            assert len(under_way) <= 2 + portions // FAIR_EVERY
            arrived = [number for number in range(count) if number != growing and ends[number] == batches]
            # Faster than the throttle lets it be filled.
            await leader.append(growing, b"v" * 1_000)
            await leader.append(growing, b"v" * 1_000)
            grown += 2
            clock.skip(0.1)
            assert grown < 100 * batches, "it keeps the others waiting"
        assert ends[growing] < batches + grown


async def test_no_throttle_slows_a_new_replica_for_which_acknowledgements_wait(tmp_path: Path) -> None:
    """It counts from the moment on at which it has caught up, before anybody has written that it is in sync."""
    async with LeadingReplicas(tmp_path) as leader:
        leader.lead(BUSY, epoch=1, isr=(LEADER,), adding=(FOLLOWER,))
        await leader.append(BUSY, b"v" * 1_000)
        throttle = Meter(leader.clock)
        throttle.set_rate(1)
        follower = FetchingFollower(leader.session(throttle=throttle))
        # It pays for the next quarter of an hour with the first.
        first = await follower.ask((BUSY, 0), epoch=1)
        assert [item.throttled for item in first.partitions] == [True]
        assert not throttle.share().allowance()
        waiting = follower.asking((BUSY, 1), epoch=1, wait_ms=LONG_MS)
        await until(lambda: leader.leadership(BUSY).wanted_change(leader.clock.monotonic()) is not None)
        await leader.append(BUSY)
        assert leader.partition(BUSY).high_watermark == 1, "the new replica counts"
        answer = await within(waiting)
        assert [(item.partition, item.throttled) for item in answer.partitions if item.records] == [(BUSY, False)]
        await follower.ask((BUSY, 2), epoch=1)
        assert leader.partition(BUSY).high_watermark == 2


async def test_one_with_few_large_records_that_outgrows_its_throttle_keeps_nobody_waiting(tmp_path: Path) -> None:
    """What is left is counted in records, and of large ones few are left for hours."""
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, clock=clock) as leader:
        for number in range(2):
            leader.lead(number, epoch=1, isr=(LEADER,), adding=(FOLLOWER,))
        for _ in range(40):
            # Twice the time that a follower may lag: it does not count as caught up.
            await leader.append(0, b"v" * 10_000)
        for _ in range(8):
            await leader.append(1, *[b"v" * 10] * 200)
        throttle = Meter(clock)
        throttle.set_rate(20_000)
        follower = FetchingFollower(leader.session(throttle=throttle))
        ends, told, portions = [0, 0], [0, 1], 0
        while ends[1] < 1_600:
            answer = await follower.ask(*((number, ends[number]) for number in told), epoch=1)
            told = [item.partition for item in answer.partitions if item.records]
            for item in answer.partitions:
                if item.records:
                    ends[item.partition] = end_offset_of(item.records)
            portions += bool(told)
            assert portions <= 9 * FAIR_EVERY, ends
            if told:
                await leader.append(0, b"v" * 10_000)
            clock.skip(0.1)


def with_one_in_line(clock: FakeClock) -> tuple[Meter, Share]:
    """A throttle with tokens for one, and somebody whose turn it is."""
    throttle = Meter(clock)
    throttle.set_rate(10_000)
    first = throttle.share()
    # What came together in quiet times would be enough for several.
    first.count(round(10_000 * BURST_S))
    clock.skip(1.5 * PAUSE_S)
    assert first.allowance()
    return throttle, first


async def test_sessions_of_one_leader_send_in_turns_and_one_that_has_nothing_more_lets_others_go(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, clock=clock) as leader:
        leader.lead(BUSY, epoch=1, isr=(LEADER,), adding=(FOLLOWER,))
        await leader.append(BUSY, b"v" * 1_000)
        throttle, other = with_one_in_line(clock)
        follower = FetchingFollower(leader.session(throttle=throttle))
        waiting = await follower.ask((BUSY, 0), epoch=1)
        assert not [item for item in waiting.partitions if item.records], "it is the other one's turn"
        clock.skip(TURN_S)
        answer = await follower.ask(epoch=1)
        assert [item.throttled for item in answer.partitions if item.records] == [True]
        # All has been sent: whoever comes next waits for nobody.
        assert other.allowance()


async def test_a_session_whose_follower_has_no_room_for_a_moment_keeps_its_place(tmp_path: Path) -> None:
    """Followers have their turns as well: who had to begin anew each time would hardly ever have both."""
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, clock=clock) as leader:
        leader.lead(BUSY, epoch=1, isr=(LEADER,), adding=(FOLLOWER,))
        await leader.append(BUSY, b"v" * 1_000)
        throttle, first = with_one_in_line(clock)
        late = throttle.share()
        late.want()
        follower = FetchingFollower(leader.session(throttle=throttle))
        await follower.ask((BUSY, 0), epoch=1)
        assert not late.allowance(), "the session is before it"
        await follower.ask(epoch=1, room=0)
        first.count(100)
        assert not late.allowance(), "it still is"
        answer = await follower.ask(epoch=1, room=5_000)
        assert [item.throttled for item in answer.partitions if item.records] == [True]
