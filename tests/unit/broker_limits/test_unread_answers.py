"""Readers that do not take their answers: they are cut off where others need the memory, and only there."""

import asyncio
from collections.abc import AsyncIterator, Collection
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum_broker.limits.limits import ClientLimits
from regnum_broker.servicers.log import LogServicer
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.produce_requests import ProduceResponse
from regnum_model.nodes import Address
from regnum_model.shares import Shares
from regnum_service.channel import aio_channel, open_channel
from regnum_service.connections import cut_off, incarnations
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Purpose
from regnum_service.limits.unread_answers import PART_BYTES, TAKEN_S_MAX, SilentReaders, UnreadAnswers
from regnum_service.listening import make_server
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import LeadingReplicas
from regnum_testing.under_load import until
from regnum_testing.waiting import DEADLINE_S

A, B = "ipv4:10.0.0.1:1", "ipv4:10.0.0.2:1"
MIB = 1024 * 1024


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.held = HeldBytes(Shares(total_max=100, connection_max=60))
        self.unread = UnreadAnswers(self.clock)
        self.silent = SilentReaders(self.unread, self.held, self.clock)
        self.ended: list[str] = []

    def cut(self, peers: Collection[str]) -> int:
        self.ended += sorted(peers)
        return len(peers)

    async def look(self) -> list[str]:
        self.ended.clear()
        await self.silent.look(self.cut)
        return self.ended


async def test_who_takes_nothing_while_another_is_refused_is_cut_off_and_counted() -> None:
    world = World()
    world.unread.begin(A, 10)
    await world.clock.advance(TAKEN_S_MAX)
    world.held.refuse(B, Purpose.PRODUCE)
    assert await world.look() == [A]
    assert world.silent.cut_off == 1


async def test_who_takes_nothing_keeps_its_line_while_there_is_room_for_all() -> None:
    world = World()
    world.unread.begin(A, 10)
    await world.clock.advance(10 * TAKEN_S_MAX)
    assert await world.look() == []
    # Nor for its own sake.
    world.held.refuse(A, Purpose.FETCH)
    assert await world.look() == []
    # And a refusal of long ago does not count.
    world.held.refuse(B, Purpose.FETCH)
    await world.look()
    assert await world.look() == []


async def test_a_connection_that_waits_is_reason_enough_for_as_long_as_it_waits() -> None:
    world = World()
    world.unread.begin(A, 10)
    world.held.hold(A, 100, Purpose.FETCH)
    waiting = asyncio.create_task(world.held.wait_for(B, 10, Purpose.FETCH))
    # One turn: it has found no room, and waits.
    await asyncio.sleep(0)
    assert await world.look() == []
    await world.clock.advance(TAKEN_S_MAX)
    assert await world.look() == [A]
    waiting.cancel()


async def test_a_larger_answer_has_longer_and_one_that_was_taken_is_forgotten() -> None:
    world = World()
    large = world.unread.begin(A, 3 * PART_BYTES)
    await world.clock.advance(TAKEN_S_MAX)
    assert world.unread.overdue() == frozenset()
    await world.clock.advance(2 * TAKEN_S_MAX)
    assert world.unread.overdue() == {A}
    large.close()
    large.close()
    assert world.unread.overdue() == frozenset()


class Parts:
    """A listener whose readers hold 8 MiB at most, on a real socket."""

    def __init__(self, server: GrpcServer, limits: ClientLimits, clock: FakeClock) -> None:
        self.server, self.limits, self.clock = server, limits, clock


class NoLeaders:
    def knows(self, *_: object) -> bool:
        return True

    def complete(self, _: object) -> None:
        pass


class Taking:
    async def produce(self, request: object, *, waitable_s: float, call: Call) -> ProduceResponse:
        return ProduceResponse()


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    async with LeadingReplicas(tmp_path) as leading:
        leading.lead(0, epoch=1, isr=(1,))
        for _ in range(30):
            await leading.append(0, b"x" * 200_000)
        clock, supervisor = FakeClock(), Supervisor("broker")
        limits = ClientLimits(held_max=8 * MIB, connection_held_max=64 * MIB, clock=clock)
        nothing: Any = None
        leaders: Any = NoLeaders()
        taking: Any = Taking()
        servicer = LogServicer(
            producing=taking,
            fetching=FetchHandler(replicas=leading.replicas, leaders=leaders, storage=leading.storage),
            offsets=nothing,
            describing=nothing,
            deleting=nothing,
            budget=limits.budget,
            throttling=limits.throttling,
        )
        server = GrpcServer(
            Address(host="127.0.0.1", port=0),
            [
                ServiceRegistration(
                    name="regnum.broker.v1.LogService",
                    servicer=servicer,
                    add_to_server=log_pb2_grpc.add_LogServiceServicer_to_server,
                )
            ],
            supervisor=supervisor,
            gates=limits.gates,
            unread_bytes_max=65535,
        )
        await server.start()
        yield Parts(server, limits, clock)
        await server.stop(0)
        await supervisor.unwind()


async def test_silent_readers_leave_room_for_producers_and_go_when_other_readers_wait(parts: Parts) -> None:
    held = parts.limits.held
    channels = [open_channel(parts.server.address) for _ in range(12)]
    request = log_pb2.ConsumeRequest(topic="t", partition=0, form=log_pb2.RECORD_FORM_BATCHES)
    calls = [log_pb2_grpc.LogServiceStub(channel).Consume(request) for channel in channels]

    async def stuck() -> bool:
        return held.waiting >= 4 and held.held_for(Purpose.FETCH) > 2 * MIB

    await until(stuck)
    assert held.held_for(Purpose.FETCH) <= 5 * MIB
    producer = open_channel(parts.server.address)
    wanted = log_pb2.ProduceRequest()
    wanted.partitions.add(topic="t", partition=0, record_batch=b"y" * 500_000)
    for _ in range(25):
        await log_pb2_grpc.LogServiceStub(producer).Produce(wanted, timeout=DEADLINE_S)

    cut = partial(cut_off, parts.server.address.port)
    await parts.limits.silent.look(cut)
    assert parts.limits.silent.cut_off == 0
    before = set(parts.limits.unread.overdue())
    assert not before
    await parts.clock.advance(2 * TAKEN_S_MAX)
    overdue = len(parts.limits.unread.overdue())
    waiting = held.waiting
    await parts.limits.silent.look(cut)
    assert parts.limits.silent.cut_off == overdue > 0

    async def others_are_in() -> bool:
        return held.waiting < waiting and not parts.limits.unread.overdue()

    await until(others_are_in)
    # Those who were not the reason keep their connection.
    await log_pb2_grpc.LogServiceStub(producer).Produce(wanted, timeout=DEADLINE_S)
    for call in calls:
        call.cancel()
    for channel in (*channels, producer):
        await channel.close()

    async def nothing_held() -> bool:
        return held.total == 0

    await until(nothing_held)


async def test_a_connection_is_found_by_the_name_that_grpc_gives_it_and_no_other_one_is() -> None:
    names: list[str] = []

    async def name(_: bytes, context: Any) -> bytes:
        names.append(context.peer())
        return b""

    server = make_server()
    handlers = {"name": grpc.unary_unary_rpc_method_handler(name)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", handlers),))
    port = server.add_insecure_port("[::]:0")
    await server.start()
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
    for host in ("127.0.0.1", "[::1]"):
        async with (
            aio_channel(f"{host}:{port}", options=options) as one,
            aio_channel(f"{host}:{port}", options=options) as other,
        ):
            for channel in (one, other):
                await channel.unary_unary("/s/name")(b"")
            peer, others = names[-2:]
            found = await asyncio.to_thread(incarnations, port, {peer, others, "unix:/x", "ipv4:10.9.9.9:1"})
            assert found is not None
            assert set(found) == {peer, others, "unix:/x"}
            assert found[peer] != found[others]
            assert await asyncio.to_thread(incarnations, port + 1, {peer, others}) == {}
            assert await asyncio.to_thread(cut_off, port + 1, {peer}) == 0
            assert await asyncio.to_thread(cut_off, port, {peer, "unix:/x", "ipv4:what:ever"}) == 1

            async def gone() -> bool:
                return one.get_state() is not grpc.ChannelConnectivity.READY

            await until(gone)
            await other.unary_unary("/s/name")(b"")
            assert names[-1] == others
            assert await asyncio.to_thread(incarnations, port, {peer, others}) == {others: found[others]}
    await server.stop(0)
