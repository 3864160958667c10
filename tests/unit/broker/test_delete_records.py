"""DeleteRecords: what was answered is gone from every replica, and what is not committed stays."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.leader import Leadership
from regnum_model.ids import BrokerId
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.leading_replicas import FOLLOWER, FetchingFollower, LeadingReplicas
from regnum_testing.waiting import DEADLINE_S, eventually


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    yield made
    await made.close()


async def delete(
    world: BrokerWorld,
    id: int,
    *items: log_pb2.DeleteRecordsPartition,
    timeout_ms: int = 0,
    validate_only: bool = False,
) -> list[log_pb2.DeleteRecordsResult]:
    request = log_pb2.DeleteRecordsRequest(partitions=items, timeout_ms=timeout_ms, validate_only=validate_only)
    return list((await world.log(id).DeleteRecords(request, timeout=DEADLINE_S)).results)


def before(offset: int, **named: str) -> log_pb2.DeleteRecordsPartition:
    return log_pb2.DeleteRecordsPartition(topic="t", partition=0, before_offset=offset, **named)


EVERYTHING = log_pb2.DeleteRecordsPartition(topic="t", partition=0, all_committed=log_pb2.AllCommitted())


def outcome(result: log_pb2.DeleteRecordsResult) -> tuple[int, int, int, int]:
    """Error, log start before, log start after, low watermark."""
    return (result.error_code, result.log_start_offset, result.new_log_start_offset, result.low_watermark)


def starts(world: BrokerWorld) -> dict[int, int]:
    return {id: running.partition().log.log_start_offset for id, running in world.brokers.items()}


async def test_what_is_answered_is_gone_from_every_replica_in_sync(world: BrokerWorld) -> None:
    await world.start(1, 2, 3)
    await world.elect(1, [1, 2, 3], min_insync=2)
    await world.produce(1, batch_of(b"a", b"b", b"c", b"d"))
    (result,) = await delete(world, 1, before(3))
    assert outcome(result) == (0, 0, 3, 3)
    assert starts(world) == {1: 3, 2: 3, 3: 3}
    request = log_pb2.FetchRequest(partitions=[log_pb2.FetchPartition(topic="t", partition=0, offset=2)])
    (fetched,) = (await world.log(1).Fetch(request, timeout=DEADLINE_S)).results
    assert fetched.error_code == errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE
    (again,) = await delete(world, 1, before(1))
    assert (again.error_code, again.new_log_start_offset, again.low_watermark) == (0, 3, 3), "a repeat does no harm"
    (rest,) = await delete(world, 1, EVERYTHING)
    assert (rest.error_code, rest.new_log_start_offset, rest.low_watermark) == (0, 4, 4)
    assert starts(world) == {1: 4, 2: 4, 3: 4}
    assert (await world.produce(1, batch_of(b"e"))).base_offset == 4


async def test_it_survives_a_change_of_leader(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2], min_insync=2)
    await world.produce(1, batch_of(b"a", b"b", b"c"))
    (result,) = await delete(world, 1, before(2))
    assert result.low_watermark == 2
    await world.elect(2, [1, 2], epoch=1, min_insync=2)
    assert starts(world) == {1: 2, 2: 2}
    (moved,) = await delete(world, 1, before(3))
    assert moved.error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER
    assert moved.status.details, "told in full"
    (there,) = await delete(world, 2, before(3))
    assert (there.error_code, there.low_watermark) == (0, 3)


async def test_what_is_not_committed_or_wrongly_asked_is_refused_and_nothing_changes(
    world: BrokerWorld,
) -> None:
    await world.start(1)
    await world.elect(1, [1])
    await world.produce(1, batch_of(b"a", b"b"))
    wrong = {
        errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE: [before(3), before(-1), before(2**62)],
        errors_pb2.ERROR_CODE_INVALID_REQUEST: [log_pb2.DeleteRecordsPartition(topic="t", partition=0)],
        errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID: [before(1, topic_id="X" * 22)],
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION: [
            log_pb2.DeleteRecordsPartition(topic="nothing", partition=0, before_offset=1)
        ],
    }
    for code, items in wrong.items():
        for item in items:
            (result,) = await delete(world, 1, item)
            assert result.error_code == code
            assert (result.new_log_start_offset, result.low_watermark) == (-1, -1)
    for items in ([before(1), before(2)], [before(1)] * 10_001):
        with pytest.raises(Exception, match=r"named twice|split it"):
            await delete(world, 1, *items)
    assert starts(world) == {1: 0}


async def test_a_check_says_what_would_go_and_deletes_nothing(world: BrokerWorld) -> None:
    await world.start(1)
    await world.elect(1, [1])
    await world.produce(1, batch_of(b"a", b"b"))
    (result,) = await delete(world, 1, EVERYTHING, validate_only=True)
    assert outcome(result) == (0, 0, 2, 0)
    assert starts(world) == {1: 0}


async def test_a_member_that_does_not_answer_is_waited_for_and_said(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2])
    await world.produce(1, batch_of(b"a", b"b"))
    await world.stop(2)
    (result,) = await delete(world, 1, before(1), timeout_ms=300)
    assert result.error_code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    assert (result.new_log_start_offset, result.low_watermark) == (1, 0)
    assert "before_offset 1 " in result.error_message, "all_committed would be looked up anew"
    await world.start(2)
    await world.elect(1, [1, 2], epoch=1)
    (again,) = await delete(world, 1, before(1))
    assert (again.error_code, again.low_watermark) == (0, 1)
    assert starts(world) == {1: 1, 2: 1}


async def test_the_low_watermark_is_that_of_members_and_of_those_that_fetch(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, partitions=1) as leading:
        await leading.append(0, b"a", b"b")
        leadership = leading.leadership()
        assert isinstance(leadership, Leadership)
        leading.partition().commit(2)
        log = leading.partition().log
        starts = leading.storage.directory.starts
        key = leading.partition().key
        await leading.storage.write(lambda: starts.apply(starts.record({key: 2})))
        assert (log.log_start_offset, leadership.low_watermark) == (2, 0), "a member that was not heard of has all"
        session = leading.session()
        await FetchingFollower(session).ask((0, 2))
        assert leadership.low_watermark == 0
        leadership.record_log_start(BrokerId(2), 1)
        assert leadership.low_watermark == 1
        session.close()


async def test_the_low_watermark_is_that_of_eligible_leaders_too(tmp_path: Path) -> None:
    """Whoever is in the ELR may lead next, and shows again what it has not deleted."""
    async with LeadingReplicas(tmp_path, partitions=1) as leading:
        await leading.append(0, b"a", b"b")
        leadership = leading.lead(epoch=1, isr=(1,), elr=(2,))
        leading.partition().commit(2)
        starts, key = leading.storage.directory.starts, leading.partition().key
        await leading.storage.write(lambda: starts.apply(starts.record({key: 2})))
        assert leadership.low_watermark == 0
        leadership.record_log_start(FOLLOWER, 2)
        assert leadership.low_watermark == 2


async def test_a_leader_that_is_replaced_while_it_waits_says_so(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2])
    await world.produce(1, batch_of(b"a", b"b"))
    await world.stop(2)

    async def moved() -> bool:
        return starts(world) == {1: 1}

    waiting = asyncio.create_task(delete(world, 1, before(1), timeout_ms=20_000))
    await eventually(moved)
    partition = world.brokers[BrokerId(1)].partition()
    world.brokers[BrokerId(1)].broker.replicas.give(partition, None)
    (result,) = await waiting
    assert result.error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


async def test_a_new_leader_judges_no_offset_before_it_knows_what_is_committed(world: BrokerWorld) -> None:
    """KIP-207. Steps: 1 commits three records with 2; 2 has them, knows of one, and leads; 1 comes back."""
    await world.start(1, 2)
    await world.elect(1, [1, 2])
    await world.produce(1, batch_of(b"a", b"b", b"c"))
    world.brokers[BrokerId(2)].partition().high_watermark = 1
    await world.elect(2, [1, 2], epoch=1, tell=[2])
    for item in (before(3), EVERYTHING):
        for validate_only in (True, False):
            (result,) = await delete(world, 2, item, validate_only=validate_only)
            assert result.error_code == errors_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE
            assert (result.new_log_start_offset, result.low_watermark) == (-1, -1)
    (wrong,) = await delete(world, 2, before(-1))
    (known,) = await delete(world, 2, before(1), validate_only=True)
    assert (wrong.error_code, known.error_code) == (errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE, 0)
    assert starts(world) == {1: 0, 2: 0}
    await world.elect(2, [1, 2], epoch=2)

    async def answered() -> bool:
        (result,) = await delete(world, 2, EVERYTHING)
        return outcome(result) == (0, 0, 3, 3)

    await eventually(answered)
