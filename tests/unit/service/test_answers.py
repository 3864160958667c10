"""Answers are paid for before they are made and until they were sent, at any listener of clients."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from regnum.broker.v1 import log_pb2
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.nodes import Address
from regnum_model.shares import Shares
from regnum_service.channel import aio_channel, target
from regnum_service.encoding import Encoding
from regnum_service.errors import RegnumError
from regnum_service.limits.answers import (
    ITEM_BYTES,
    REQUEST_WEIGHT,
    RESERVED_BYTES_MAX,
    RESERVED_BYTES_MIN,
    SMALL_BYTES,
    Answer,
    Answers,
    making,
)
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Purpose
from regnum_service.limits.unread_answers import TAKEN_S_MAX
from regnum_service.reading import ReadTurns
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock, settle
from regnum_testing.under_load import until
from regnum_testing.waiting import DEADLINE_S, within

MIB = 1024 * 1024
SERVICE = "regnum.metadata.v1.MetadataService"
GET = f"/{SERVICE}/GetMetadata"
PRODUCE = "/regnum.broker.v1.LogService/Produce"
TOTAL = 16 * MIB
NARROW = (("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535))
"""A connection of its own, whose client takes no more than that of an answer that it does not read."""


def call_at(peer: str = "ipv4:10.0.0.1:1") -> Call:
    """A call, as far as it is looked at."""
    return Call(peer=peer)


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.held = HeldBytes(Shares(total_max=TOTAL, connection_max=TOTAL))
        self.budget = Budget(self.held, self.clock)
        self.answers = Answers(self.budget, counted_elsewhere={"/elsewhere"})

    def begin(self, call: Call, method: str = GET) -> Answer:
        answer = self.answers.begin(method, call)
        assert answer is not None
        return answer

    def full(self) -> None:
        self.held.hold("others", self.held.part_of(Purpose.CONTROL), Purpose.CONTROL)


@pytest.fixture
async def world() -> World:
    return World()


async def test_what_a_request_may_be_answered_is_reserved_before_it_is_done(world: World) -> None:
    call = call_at()
    world.begin(call).asked(None, 10_000)
    assert world.held.total == REQUEST_WEIGHT * 10_000
    call.leave()
    assert world.held.total == 0
    world.begin(call := call_at()).asked(None, MIB)
    assert world.held.total == RESERVED_BYTES_MAX
    call.leave()
    partitions = [log_pb2.ProducePartition()] * 10_000
    world.begin(call := call_at(), PRODUCE).asked(log_pb2.ProduceRequest(partitions=partitions), 20_000)
    assert world.held.total == ITEM_BYTES * 10_000
    call.leave()
    world.full()
    world.begin(call_at()).asked(None, RESERVED_BYTES_MIN // REQUEST_WEIGHT - 1)
    with pytest.raises(RegnumError) as refused:
        world.begin(call_at()).asked(None, RESERVED_BYTES_MIN // REQUEST_WEIGHT)
    assert refused.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED


async def test_an_answer_is_held_until_it_was_sent_and_its_connection_has_time_for_that(world: World) -> None:
    call = call_at()
    answer = world.begin(call)
    answer.asked(None, 10_000)
    answer.made(bytes(SMALL_BYTES))
    assert world.held.total == 0, "less than what was reserved, and small"
    answer.made(bytes(SMALL_BYTES + 1))
    assert world.held.held_for(Purpose.CONTROL) == SMALL_BYTES + 1
    await world.clock.advance(TAKEN_S_MAX)
    assert world.budget.unread.overdue() == {call.peer}
    call.leave()
    assert (world.held.total, world.budget.unread.overdue()) == (0, frozenset())


async def test_an_answer_that_grows_is_refused_where_there_is_no_memory_for_it(world: World) -> None:
    world.begin(first := call_at("a"))
    for _ in range(10):
        making(MIB)
    assert world.held.total == 10 * MIB, "alone it may be larger than its part"
    world.begin(second := call_at("b"))
    making(SMALL_BYTES)
    with pytest.raises(RegnumError, match="wait"):
        making(MIB)
    first.leave()
    making(MIB)
    second.leave()
    assert world.held.total == 0
    assert world.answers.begin("/elsewhere", call_at()) is None
    making(100 * MIB)


async def test_an_answer_that_was_refused_says_how_much_it_lacked_and_gets_it_at_once_when_it_is_made_anew(
    world: World,
) -> None:
    other = call_at("ipv4:10.0.0.2:1")
    world.begin(other).grow(4 * MIB)
    call = call_at()
    answer = world.begin(call)
    answer.grow(2 * MIB)
    with pytest.raises(RegnumError):
        answer.grow(3 * MIB)
    assert (answer.lacked, world.held.total) == (5 * MIB, 4 * MIB)
    with pytest.raises(RegnumError):
        answer.reserve()
    assert (answer.lacked, world.held.total) == (5 * MIB, 4 * MIB)
    other.leave()
    answer.reserve()
    assert (answer.lacked, world.held.total) == (0, 5 * MIB)
    again = world.begin(call)
    again.lacked = 5 * MIB
    answer.made(b"")
    again.reserve()
    again.asked(metadata_pb2.GetMetadataRequest(), RESERVED_BYTES_MIN)
    again.grow(5 * MIB)
    assert world.held.total == 5 * MIB
    call.leave()
    assert not world.held.total


async def test_messages_of_a_stream_wait_for_memory_one_at_a_time(world: World) -> None:
    world.full()
    answer = world.begin(call := call_at())
    async with answer.sending(bytes(SMALL_BYTES)):
        pass

    async def send() -> int:
        async with answer.sending(bytes(MIB)):
            return world.held.of(call.peer)

    sending = asyncio.ensure_future(send())
    await settle()
    assert (sending.done(), world.held.waiting) == (False, 1)
    world.held.let_go("others", MIB, Purpose.CONTROL)
    assert await within(sending) == MIB
    assert world.held.of(call.peer) == 0


class Metadata(metadata_pb2_grpc.MetadataServiceServicer):
    """Answers as large as its callers like."""

    async def GetMetadata(self, request: Any, context: Any) -> bytes:  # type: ignore[override]  # noqa: N802
        """So many pieces of 256 KiB as it names brokers."""
        answer = Encoding(metadata_pb2.GetMetadataResponse(), size=1)
        for _ in range(request.known_brokers):
            answer.piece.topics.add().topic.CopyFrom(types_pb2.TopicState(name="t" * 256 * 1024))
            await answer.took()
        return answer.whole()

    async def WatchMetadata(  # type: ignore[override]  # noqa: N802
        self,
        request_iterator: Any,
        context: Any,
    ) -> AsyncIterator[bytes]:
        """One large change after another."""
        async for _ in request_iterator:
            while True:
                yield metadata_pb2.WatchMetadataResponse(cluster_id="c" * MIB).SerializeToString()


@pytest.fixture
async def server(world: World) -> AsyncIterator[GrpcServer]:
    supervisor = Supervisor("test")
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [
            ServiceRegistration(
                name=SERVICE,
                servicer=Metadata(),
                add_to_server=metadata_pb2_grpc.add_MetadataServiceServicer_to_server,
            )
        ],
        supervisor=supervisor,
        gates=(ReadTurns(),),
        answers=Answers(world.budget),
        unread_bytes_max=65_535,
    )
    await server.start()
    yield server
    await server.stop(0)
    await supervisor.unwind()


async def test_clients_that_do_not_read_take_no_more_than_there_is(world: World, server: GrpcServer) -> None:
    held = world.held
    channels = [aio_channel(target(server.address), options=NARROW) for _ in range(6)]
    unread = []
    for channel in channels:
        call: Any = channel.stream_stream(GET)(timeout=DEADLINE_S)
        await call.write(metadata_pb2.GetMetadataRequest(known_brokers=8).SerializeToString())
        await call.done_writing()
        unread.append(call)

    async def answered_or_refused() -> bool:
        refused = held.refused[Purpose.CONTROL]
        return refused >= 1 and held.connections + refused >= len(unread)

    await until(answered_or_refused)
    assert held.total_peak <= held.part_of(Purpose.CONTROL)
    codes = [await call.code() for call in unread if call.done()]
    assert set(codes) <= {grpc.StatusCode.RESOURCE_EXHAUSTED}
    for call in unread:
        call.cancel()

    async def nothing_held() -> bool:
        return held.total == 0

    await until(nothing_held)
    stub = metadata_pb2_grpc.MetadataServiceStub(channels[0])
    answer = await stub.GetMetadata(metadata_pb2.GetMetadataRequest(known_brokers=8), timeout=DEADLINE_S)
    assert len(answer.topics) == 8
    await until(nothing_held)
    for channel in channels:
        await channel.close()


async def test_streams_that_nobody_reads_hold_no_more_than_there_is(world: World, server: GrpcServer) -> None:
    held = world.held
    channels = [aio_channel(target(server.address), options=NARROW) for _ in range(3)]
    calls = []
    for channel in channels:
        for _ in range(6):
            call: Any = channel.stream_stream(f"/{SERVICE}/WatchMetadata")(timeout=DEADLINE_S)
            await call.write(metadata_pb2.WatchMetadataRequest().SerializeToString())
            calls.append(call)

    async def some_wait() -> bool:
        return held.waiting >= 2

    await until(some_wait)
    assert 3 * MIB <= held.held_for(Purpose.CONTROL) <= held.part_of(Purpose.CONTROL)
    assert held.total_peak <= held.part_of(Purpose.CONTROL)
    for call in calls:
        call.cancel()
    for channel in channels:
        await channel.close()

    async def nothing_held() -> bool:
        return held.total == 0

    await until(nothing_held)
