"""What waits for the writer is bounded in jobs and in bytes."""

import asyncio
import threading

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.room import Room
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.produce_requests import ProducePartition, ProduceRequest
from regnum_broker.storage import CHECKERS, WRITE_BYTES_HELD_MAX
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import settle
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.waiting import until


async def entered(room: Room, size_bytes: int) -> "asyncio.Task[None]":
    entering = asyncio.create_task(room.enter(size_bytes))
    await settle()
    return entering


async def test_bytes_wait_in_line_until_there_is_room():
    room = Room(jobs_max=10, bytes_max=100)
    assert (await entered(room, 60)).done()
    large, small = await entered(room, 60), await entered(room, 10)
    assert not large.done()
    assert not small.done(), "nobody overtakes"
    assert (room.bytes_inside, room.bytes_waiting) == (60, 70)
    room.leave(60)
    await settle()
    assert large.done()
    assert small.done()
    assert (room.bytes_inside, room.bytes_waiting) == (70, 0)


async def test_jobs_wait_for_room_too():
    room = Room(jobs_max=2, bytes_max=100)
    assert (await entered(room, 0)).done()
    assert (await entered(room, 0)).done()
    third = await entered(room, 0)
    assert not third.done()
    room.leave(0)
    await settle()
    assert third.done()


async def test_what_is_larger_than_the_room_enters_alone():
    room = Room(jobs_max=10, bytes_max=100)
    assert (await entered(room, 1_000)).done()
    following = await entered(room, 1)
    assert not following.done()
    room.leave(1_000)
    await settle()
    assert following.done()


@pytest.mark.parametrize("leave_first", [True, False])
async def test_who_gives_up_waiting_takes_no_room(leave_first):
    room = Room(jobs_max=10, bytes_max=100)
    await entered(room, 100)
    giving_up, following = await entered(room, 50), await entered(room, 80)
    if leave_first:
        room.leave(100)
    giving_up.cancel()
    await settle()
    if not leave_first:
        assert not following.done()
        room.leave(100)
        await settle()
    assert following.done()
    assert room.bytes_inside == 80


async def test_more_bytes_than_a_broker_may_hold_are_refused(tmp_path):
    """Callers that wait hold their requests in memory: a bound on the queue alone would bound nothing."""
    async with LeadingReplicas(tmp_path) as leading:
        producing = ProduceHandler(
            replicas=leading.replicas,
            leaders=CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners)),
            storage=leading.storage,
            clock=leading.clock,
            batch_bytes_max=1 << 20,
            supervisor=Supervisor("test"),
        )
        go_on = threading.Event()
        holding = [await leading.storage.write_later(go_on.wait)]
        # What waits to be checked is held as well.
        holding += [asyncio.ensure_future(leading.storage.check(go_on.wait)) for _ in range(CHECKERS)]
        message = ProducePartition(topic="t", partition=0, record_batch=bytes(WRITE_BYTES_HELD_MAX // 25 + 1))
        request = ProduceRequest(partitions=[message])
        produced = [asyncio.create_task(producing.produce(request)) for _ in range(40)]
        try:
            await until(lambda: sum(task.done() for task in produced) == 16, what="those that do not fit")
        finally:
            go_on.set()
        await asyncio.gather(*holding)
        codes = [(await task).results[0].error_code for task in produced]
        assert codes.count(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED) == 16
        assert codes.count(errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE) == 24
        assert leading.storage.takes(WRITE_BYTES_HELD_MAX)
