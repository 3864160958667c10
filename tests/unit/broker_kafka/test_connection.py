"""Connections of the Kafka listener: one request at a time, nothing parsed before its size is admitted."""

import asyncio
import gc
import resource
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from regnum_broker.kafka.connection import AHEAD_BYTES, PIECE_BYTES, Connection, pieces
from regnum_broker.kafka.connections import SMALL_BYTES
from regnum_broker.kafka.listener import KafkaListener
from regnum_kafka_wire.apis import PRODUCE, Buffers
from regnum_kafka_wire.frames import Head
from regnum_kafka_wire.primitives import MalformedError
from regnum_model.nodes import Address
from regnum_model.shares import Shares
from regnum_service.access.listener import ListenerAccess, ListenerLimits
from regnum_service.clock import SystemClock
from regnum_service.limits.budget import Budget
from regnum_service.limits.held_bytes import HeldBytes, Purpose
from regnum_service.supervisor import Supervisor
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.waiting import until, within

MIB = 1024 * 1024
FETCH, METADATA, LEAVE = 1, 3, 13
REQUEST_MAX = 4 * MIB


class Door:
    """Answers each request with its own correlation id and size, when it may."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.answered: list[int] = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.answer_bytes = 0
        self.under_way = 0

    def ends_with_its_client(self, head: Head) -> bool:
        return head.key == FETCH

    def takes_together(self, head: Head) -> bool:
        return head.key == PRODUCE

    async def together(self, asked: Sequence[tuple[memoryview, Any]]) -> Any:
        raise NotImplementedError

    async def answer(self, frame: memoryview, context: Any) -> Buffers | None:
        self.seen.append(context.head.correlation_id)
        if context.head.key == 99:
            raise MalformedError("no such call")
        self.under_way += 1
        try:
            await self.may_answer.wait()
        finally:
            self.under_way -= 1
        self.answered.append(context.head.correlation_id)
        said = struct.pack(">ii", context.head.correlation_id, len(frame))
        return [struct.pack(">i", len(said) + self.answer_bytes) + said, bytes(self.answer_bytes)]


class World:
    def __init__(self, *, limits: ListenerLimits | None = None) -> None:
        self.door = Door()
        self.held = HeldBytes(Shares(total_max=8 * MIB, connection_max=8 * MIB))
        self.supervisor = Supervisor("test")
        self.metrics = Metrics()
        self.listener = KafkaListener(
            Address(host="127.0.0.1", port=0),
            door=self.door,
            budget=Budget(self.held, SystemClock()),
            access=ListenerAccess(limits=limits or ListenerLimits()),
            request_bytes_max=REQUEST_MAX,
            clock=SystemClock(),
            supervisor=self.supervisor,
            metrics=self.metrics,
        )

    def closed(self) -> tuple[float, float]:
        """Connections that were too many: at the listener, and of an address."""
        whole = self.metrics.counter(instruments.CONNECTIONS_CLOSED, "kafka", "listener")
        return whole.value, self.metrics.counter(instruments.CONNECTIONS_CLOSED, "kafka", "address").value

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.address.port)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.listener.start()
    yield world
    await world.listener.stop()
    await world.supervisor.unwind()
    assert world.supervisor.failure is None


def request(number: int, size: int = 10, *, key: int = METADATA) -> bytes:
    """A frame whose message has no meaning, with its size before it."""
    return struct.pack(">ihhih", size, key, 0, number, 0) + bytes(size - 10)


async def answer(reader: asyncio.StreamReader) -> tuple[int, int]:
    """Correlation id, and size of the request."""
    size, number, asked = struct.unpack(">iii", await within(reader.readexactly(12)))
    await within(reader.readexactly(size - 8))
    return number, asked


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await within(reader.read(1)) == b""
    except ConnectionResetError:
        return True


async def test_requests_are_answered_in_their_order(world: World) -> None:
    reader, writer = await world.connect()
    writer.write(b"".join(request(number, 10 + number) for number in range(50)))
    assert [await answer(reader) for _ in range(50)] == [(number, 10 + number) for number in range(50)]
    writer.close()


async def test_a_request_may_come_byte_by_byte(world: World) -> None:
    reader, writer = await world.connect()
    for byte in request(7, 20):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert await answer(reader) == (7, 20)
    writer.close()


@pytest.mark.parametrize("size", [AHEAD_BYTES - 4, AHEAD_BYTES - 3, SMALL_BYTES, SMALL_BYTES + 1, MIB, REQUEST_MAX])
async def test_requests_of_any_size_that_is_allowed_come_whole_and_are_followed_by_others(
    world: World, size: int
) -> None:
    reader, writer = await world.connect()
    writer.write(request(1, size) + request(2) + request(3, size) + request(4))
    assert [await answer(reader) for _ in range(4)] == [(1, size), (2, 10), (3, size), (4, 10)]
    writer.close()


@pytest.mark.parametrize("size", [REQUEST_MAX + 1, 2**31 - 1, 9, 0, -1])
async def test_a_size_that_no_request_has_ends_the_connection_before_anything_is_kept(world: World, size: int) -> None:
    reader, writer = await world.connect()
    writer.write(struct.pack(">i", size) + bytes(20))
    assert await closed(reader)
    assert (world.door.seen, world.held.total_peak) == ([], 0)
    writer.close()


async def test_a_large_request_waits_for_memory_and_is_held_until_it_is_answered(world: World) -> None:
    part = world.held.part_of(Purpose.PRODUCE)
    world.held.hold("others", part, Purpose.PRODUCE)
    reader, writer = await world.connect()
    writer.write(request(1, MIB))

    await until(lambda: world.held.waiting == 1)
    assert world.door.seen == []
    world.door.may_answer.clear()
    world.held.let_go("others", part, Purpose.PRODUCE)

    await until(lambda: world.door.under_way == 1)
    assert world.held.held_for(Purpose.PRODUCE) == MIB
    world.door.may_answer.set()
    assert await answer(reader) == (1, MIB)

    await until(lambda: world.held.total == 0)
    writer.close()


async def test_what_is_under_way_only_for_a_client_that_hangs_up_ends(world: World) -> None:
    world.door.may_answer.clear()
    _, writer = await world.connect()
    writer.write(request(1, MIB, key=FETCH))

    await until(lambda: world.door.under_way == 1)
    writer.transport.abort()

    await until(lambda: (world.door.under_way, world.held.total, world.listener.connections) == (0, 0, 0))
    assert world.held.held_for(Purpose.PRODUCE) == 0


@pytest.mark.parametrize("first", [FETCH, METADATA, LEAVE])
async def test_what_a_client_asked_for_before_it_hung_up_is_carried_out(world: World, first: int) -> None:
    """A consumer that is interrupted says that it leaves behind whatever it waits for, and closes at once."""
    world.door.may_answer.clear()
    _, writer = await world.connect()
    writer.write(request(1, key=first) + request(2, key=FETCH) + request(3, key=LEAVE) + request(4, key=LEAVE)[:-1])
    writer.close()

    await until(lambda: world.listener.connections == 0)
    # A fetch that waits is given up, and what is behind it begins; of anything else the end is waited for.
    begun = [1, 3] if first == FETCH else [1]
    await until(lambda: (world.door.seen, world.door.under_way) == (begun, 1))
    world.door.may_answer.set()
    await until(lambda: not world.listener._shared._left)
    assert world.door.seen == [1, 3], "not what only the client had use for, nor what did not come whole"
    assert (world.door.answered, world.held.total) == ([3] if first == FETCH else [1, 3], 0)


async def test_what_works_for_clients_that_have_hung_up_is_bounded_and_ends_with_the_listener() -> None:
    world = World(limits=ListenerLimits(connections_max=2))
    await world.listener.start()
    world.door.may_answer.clear()
    for number in range(5):
        _, writer = await world.connect()
        writer.write(request(number, MIB, key=LEAVE))
        await until(lambda number=number: number in world.door.seen)
        writer.transport.abort()
        await until(lambda: world.listener.connections == 0)
    await until(lambda: (world.door.under_way, world.held.total) == (2, 2 * MIB))
    await world.listener.stop()
    await until(lambda: (world.door.under_way, world.held.total) == (0, 0))
    assert world.door.answered == []


async def test_a_request_that_waits_for_memory_ends_with_its_connection() -> None:
    world = World(limits=ListenerLimits(connections_max=2))
    await world.listener.start()
    world.door.may_answer.clear()
    pairs = [await world.connect() for _ in range(2)]
    for _, writer in pairs:
        writer.write(request(1, REQUEST_MAX))
        await until(lambda: world.door.under_way == 1)
    await until(lambda: world.held.waiting == 1)
    pairs.append(await world.connect())
    pairs[-1][1].write(request(2))
    await until(lambda: world.door.under_way == 2)
    pairs.append(await world.connect())
    await until(lambda: world.held.waiting == 0)
    assert (world.door.under_way, world.closed()) == (2, (2, 0)), "what has come whole is carried on with"
    for _, writer in pairs:
        writer.transport.abort()
    await world.listener.stop()
    await until(lambda: world.door.under_way == 0)


@pytest.mark.parametrize(
    "end",
    ["hung up on", "carried out", "hung up on while it waits", "malformed", "cut short"],
)
async def test_nothing_of_a_connection_that_ended_waits_for_the_collector_of_cycles(world: World, end: str) -> None:
    """Where a process is large, what was alive at a full collection is never looked at again (``collector``)."""
    world.door.may_answer.clear()
    gc.disable()
    try:
        reader, writer = await world.connect()
        await until(lambda: world.listener.connections == 1)
        ended = weakref.ref(next(iter(world.listener._shared.crowd)))
        match end:
            case "hung up on" | "carried out":
                writer.write(request(1, MIB, key=LEAVE if end == "carried out" else FETCH))
                await until(lambda: world.door.under_way == 1)
            case "malformed":
                writer.write(request(1, key=99))
                assert await closed(reader)
            case "cut short":
                writer.write(request(1, MIB)[: MIB // 2])
                await until(lambda: world.held.total == MIB)
        writer.transport.abort()
        await until(lambda: world.listener.connections == 0)
        if end == "carried out":
            world.door.may_answer.set()
        await until(lambda: ended() is None)
    finally:
        gc.enable()
    assert (world.listener.connections, world.held.total) == (0, 0)


async def test_a_call_that_is_not_offered_ends_its_connection_and_no_other(world: World) -> None:
    reader, writer = await world.connect()
    other_reader, other = await world.connect()
    writer.write(request(1, key=99))
    assert await closed(reader)
    other.write(request(2))
    assert await answer(other_reader) == (2, 10)
    for one in (writer, other):
        one.close()


async def test_a_large_answer_reaches_a_slow_reader_whole(world: World) -> None:
    world.door.answer_bytes = 6 * MIB
    reader, writer = await world.connect()
    writer.write(request(1) + request(2))
    assert [await answer(reader), await answer(reader)] == [(1, 10), (2, 10)]
    writer.close()


async def test_no_more_is_taken_in_than_a_little_while_an_answer_is_made(world: World) -> None:
    world.door.may_answer.clear()
    reader, writer = await world.connect()
    count = 4 * MIB // 1_000
    writer.write(b"".join(request(number, 996) for number in range(count)))

    await until(lambda: world.door.under_way == 1)
    (connection,) = world.listener._shared.crowd
    assert isinstance(connection, Connection)
    await until(lambda: connection._paused)
    assert len(connection._ahead) <= 2 * AHEAD_BYTES
    world.door.may_answer.set()
    assert [(await answer(reader))[0] for _ in range(count)] == list(range(count))
    writer.close()


async def test_thousands_of_small_requests_of_one_connection_leave_turns_to_others(world: World) -> None:
    count, at = 3_000, 0

    class Counting(Door):
        async def answer(self, frame: memoryview, context: Any) -> Buffers | None:
            nonlocal at
            if context.head.correlation_id == count:
                at = len(self.seen)
            return await super().answer(frame, context)

    world.listener._shared.door = door = Counting()  # type: ignore[misc]
    reader, writer = await world.connect()
    other_reader, other = await world.connect()
    writer.write(b"".join(request(number) for number in range(count)))
    await until(lambda: bool(door.seen))
    other.write(request(count))
    assert await answer(other_reader) == (count, 10)
    assert at < count // 2, "it is answered among them, and not behind them"
    assert [(await answer(reader))[0] for _ in range(count)] == list(range(count))
    for one in (writer, other):
        one.close()


async def test_who_connects_and_says_nothing_is_hung_up_on_and_who_has_spoken_may_be_silent() -> None:
    world = World(limits=ListenerLimits(handshake_timeout_s=0.2))
    await world.listener.start()
    (silent, other), (spoken, writer) = [await world.connect() for _ in range(2)]
    writer.write(request(1))
    assert await answer(spoken) == (1, 10)
    assert await closed(silent)
    writer.write(request(2))
    assert await answer(spoken) == (2, 10)
    for one in (other, writer):
        one.close()
    await world.listener.stop()


async def test_idle_connections_and_those_that_are_too_many_are_closed() -> None:
    for limits in (ListenerLimits(idle_s=0.05), ListenerLimits(age_s=0.05)):
        world = World(limits=limits)
        await world.listener.start()
        reader, writer = await world.connect()
        assert await closed(reader)
        writer.close()
        await world.listener.stop()
    world = World(limits=ListenerLimits(connections_max=2))
    await world.listener.start()
    pairs = [await world.connect() for _ in range(2)]
    pairs[0][1].write(request(1))
    assert await answer(pairs[0][0]) == (1, 10), "it has asked last, and stays"
    pairs.append(await world.connect())
    assert await closed(pairs[1][0])
    assert not world.listener.crowded, "it had asked for nothing"
    pairs[2][1].write(request(2))
    assert await answer(pairs[2][0]) == (2, 10)
    pairs.append(await world.connect())
    assert await closed(pairs[0][0])
    assert "more than 2 connections at its kafka listener" in world.listener.crowded
    for _, one in pairs:
        one.close()
    await until(lambda: world.listener.connections == 0)
    assert not world.listener._shared.crowd._of_host
    await world.listener.stop()


@pytest.mark.parametrize("limits", [ListenerLimits(connections_max=2), ListenerLimits(connections_per_address_max=2)])
async def test_connections_that_come_all_at_once_are_bounded_too(limits: ListenerLimits) -> None:
    world = World(limits=limits)
    await world.listener.start()
    ends = [socket.create_connection(("127.0.0.1", world.listener.address.port)) for _ in range(12)]
    await until(lambda: sum(world.closed()) == 10)
    assert world.listener.connections == 2
    assert 0 in world.closed(), "for one of both reasons"
    for end in ends:
        end.close()
    await world.listener.stop()


@pytest.mark.parametrize("connections_max", [10_000, None])
def test_connections_leave_files_for_logs(connections_max: int | None) -> None:
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (400, most))
    try:
        world = World(limits=ListenerLimits(connections_max=connections_max))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    assert world.listener._shared.crowd.most == 100


async def test_of_one_address_too_many_the_one_is_closed_that_has_asked_for_nothing_for_the_longest_time() -> None:
    world = World(limits=ListenerLimits(connections_per_address_max=2))
    await world.listener.start()
    pairs = [await world.connect() for _ in range(2)]
    pairs[0][1].write(request(1))
    assert await answer(pairs[0][0]) == (1, 10)
    pairs.append(await world.connect())
    assert await closed(pairs[1][0])
    for _, one in pairs:
        one.close()
    await world.listener.stop()


def test_an_answer_of_many_small_buffers_is_few_pieces_and_a_large_one_is_not_copied() -> None:
    large = bytes(2 * PIECE_BYTES + 1)
    buffers: Buffers = [bytes([number % 256]) * 20 for number in range(20_000)] + [large, b"end"]
    found = list(pieces(buffers))
    assert b"".join(found) == b"".join(buffers)
    assert len(found) == 20_000 * 20 // PIECE_BYTES + 1 + 3 + 1
    assert max(map(len, found)) <= PIECE_BYTES
    assert sum(isinstance(piece, memoryview) and piece.obj is large for piece in found) == 3
