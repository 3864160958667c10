"""Groups whose log cannot be written for a while, or is only being read: nobody pays for that with a membership."""

import asyncio

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.groups.decisions.membership import heartbeat
from regnum_broker.groups.decisions.offsets import CommittedOffset, Place
from regnum_broker.groups.decisions.state import Again, Answer, Done, GroupState, Identity, Joined
from regnum_broker.groups.group_time import GroupTime
from regnum_broker.groups.recorded.group_log import AGAIN_S, PENDING_MAX, STALLED_S
from regnum_broker.groups.recorded.records import OffsetChange, change_of
from regnum_broker.serving.produce import OwnAppend
from regnum_records.header import iterate
from regnum_records.read import read_records
from regnum_service.errors import RegnumError
from regnum_testing.clock import FakeClock, settle
from regnum_testing.group_partition import COMMITTED, GroupPartition

LOST = OwnAppend(code=errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, message="replaced")
BUSY = OwnAppend(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message="busy", put_off=True)


def beat(partition: GroupPartition, member_id: str = "a", generation: int = 1) -> Answer:
    identity = Identity(member_id=member_id, generation=generation)
    now_s = partition.shard.time.now_s
    return partition.shard.beat("g", lambda group, call: heartbeat(group, identity, call=call, now_s=now_s))


async def joined(partition: GroupPartition) -> None:
    """A member a of a generation that has begun."""
    assert await partition.join("", new="a") == Again("a")
    assert isinstance(await partition.join("a"), Joined)


async def test_heartbeats_are_answered_while_an_append_does_not_end() -> None:
    partition = GroupPartition()
    await joined(partition)
    partition.outcomes = asyncio.Queue()
    pending = partition.commit(1, group_id="other")
    await settle()
    for _ in range(PENDING_MAX + 1):
        assert beat(partition) == Done()
    assert not partition.shard.log.is_full, "heartbeats do not queue"
    partition.outcomes.put_nowait(COMMITTED)
    assert await pending == Done()


async def test_an_append_that_is_put_off_is_handed_in_again() -> None:
    partition = GroupPartition()
    partition.outcomes = asyncio.Queue()
    answers = [partition.commit(1)]
    partition.outcomes.put_nowait(BUSY)
    await settle()
    answers.append(partition.commit(2))
    assert not partition.failures, "a storage that is busy ends nothing"
    assert [one.done() for one in answers] == [False, False]
    for _ in range(2):
        partition.outcomes.put_nowait(COMMITTED)
    await partition.clock.advance(2 * AGAIN_S)
    assert [await one for one in answers] == [Done(), Done()]
    assert [len(list(iterate(batch))) for batch in partition.batches] == [1, 1]
    assert partition.offset() == 2


async def test_a_shard_that_ends_meanwhile_hands_nothing_in_again() -> None:
    partition = GroupPartition()
    partition.outcomes = asyncio.Queue()
    answer = partition.commit(1)
    partition.outcomes.put_nowait(BUSY)
    await settle()
    partition.shard.end(RegnumError(errors_pb2.ERROR_CODE_NOT_COORDINATOR, "moved"))
    partition.outcomes.put_nowait(COMMITTED)
    await partition.clock.advance(10 * AGAIN_S)
    with pytest.raises(RegnumError):
        await answer
    assert not partition.batches
    assert partition.outcomes.qsize() == 1


async def test_a_long_append_is_a_stall() -> None:
    partition = GroupPartition()
    partition.outcomes = asyncio.Queue()
    answer = partition.commit(1)
    await settle()
    assert not partition.shard.log.is_stalled
    partition.clock.skip(STALLED_S + 0.1)
    assert partition.shard.log.is_stalled
    partition.outcomes.put_nowait(COMMITTED)
    await answer
    assert not partition.shard.log.is_stalled


def test_time_stands_still_and_goes_on_where_it_stood() -> None:
    clock = FakeClock()
    time = GroupTime(clock)
    began_s = time.now_s
    clock.skip(5.0)
    time.stand_still()
    clock.skip(100.0)
    time.stand_still()
    assert time.now_s == began_s + 5.0
    time.go_on()
    time.go_on()
    clock.skip(2.0)
    assert time.now_s == began_s + 7.0


async def test_nobody_is_removed_for_a_time_in_which_nothing_could_be_written() -> None:
    partition = GroupPartition()
    await joined(partition)
    partition.clock.skip(8.0)
    partition.shard.time.stand_still()
    partition.clock.skip(1_000.0)
    partition.shard.time.go_on()
    await partition.shard.look()
    assert "a" in partition.shard.groups["g"].members, "two of its ten seconds are left"
    partition.clock.skip(2.5)
    await partition.shard.look()
    assert partition.shard.groups["g"].state is GroupState.EMPTY


async def test_sessions_begin_when_the_reading_has_ended() -> None:
    partition = GroupPartition()
    await joined(partition)
    following = partition.made()
    changes = [change_of(record) for batch in partition.batches for record in read_records(batch)]
    await following.load(changes)
    partition.clock.skip(60.0)
    await following.begin()
    partition.shard = following
    await following.look()
    assert beat(partition) == Done(), "a minute of reading is no silence of the member"
    partition.clock.skip(10.5)
    await following.look()
    assert following.groups["g"].state is GroupState.EMPTY


async def test_a_deletion_goes_in_portions_and_can_be_taken_up_where_it_ended() -> None:
    partition = GroupPartition()
    places = [Place("t" * 245 + f"{number:04}", number) for number in range(8_000)]
    await partition.shard.load(
        [OffsetChange(group_id="g", place=place, offset=CommittedOffset(offset=1, committed_ms=0)) for place in places]
    )
    await partition.shard.begin()
    await partition.commit(1)
    partition.outcomes = asyncio.Queue()
    first = partition.shard.delete("g")
    partition.outcomes.put_nowait(COMMITTED)
    partition.outcomes.put_nowait(LOST)
    with pytest.raises(RegnumError):
        await first
    left = len(partition.shard.offsets.of("g"))
    assert 0 < left < 8_001, "a part was forgotten, and what was forgotten is on record"
    tombstones = [record for batch in partition.batches[1:] for record in read_records(batch)]
    assert len(tombstones) == 8_001 - left
    assert all(record.value is None for record in tombstones)
    rest = [*places, Place("t", 0)]
    offset = CommittedOffset(offset=1, committed_ms=0)
    following = partition.made()
    await following.load([OffsetChange(group_id="g", place=place, offset=offset) for place in rest])
    for batch in partition.batches[1:]:
        await following.load([change_of(record) for record in read_records(batch)])
    await following.begin()
    assert len(following.offsets.of("g")) == left
    partition.shard, partition.outcomes = following, None
    assert await following.delete("g") == Done()
    assert not following.groups
    assert not following.offsets.of("g")
    assert max(len(batch) for batch in partition.batches) <= 1_300_000
