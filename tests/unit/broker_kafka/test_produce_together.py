"""Produce requests that a client has sent ahead: taken together, answered one by one and in their order."""

import asyncio
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.kafka.data import Data
from regnum_broker.kafka.door import Door
from regnum_broker.kafka.listener import KafkaListener
from regnum_broker.kafka.produce_together import ITEMS_AT_ONCE, Told, UnderWay
from regnum_broker.serving.calls.log import LogCalls
from regnum_broker.serving.calls.rights import guarded
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.produce_requests import ProduceRequest
from regnum_model.nodes import Address
from regnum_model.shares import Shares
from regnum_service.access.authorization import EVERYBODY
from regnum_service.access.listener import ListenerAccess, ListenerLimits
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.limits.answers import Answers
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes
from regnum_service.supervisor import Supervisor
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.batches import batch_of, values_of
from regnum_testing.leading_replicas import LEADER, LeadingReplicas
from regnum_testing.waiting import until, within

VERSION = 7
MIB = 1024 * 1024


def frame(
    number: int,
    batch: bytes,
    *,
    partition: int = 0,
    topic: bytes = b"t",
    acks: int = -1,
    who: bytes = b"c",
    n: int = 1,
) -> bytes:
    """A Produce request of one batch, ``n`` times, with its size before it."""
    body = struct.pack(">hhi", -1, acks, 20_000) + struct.pack(">ih", 1, len(topic)) + topic
    body += struct.pack(">i", n) + n * (struct.pack(">ii", partition, len(batch)) + batch)
    head = struct.pack(">hhih", 0, VERSION, number, 1) + who
    return struct.pack(">i", len(head) + len(body)) + head + body


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await within(reader.read(1)) == b""
    except ConnectionResetError:
        return True


async def answer(reader: asyncio.StreamReader) -> tuple[int, int, int]:
    """Correlation id, error and offset of a batch in topic t."""
    (size,) = struct.unpack(">i", await within(reader.readexactly(4)))
    said = await within(reader.readexactly(size))
    number, error, offset = struct.unpack_from(">i", said)[0], *struct.unpack_from(">hq", said, 4 + 4 + 3 + 4 + 4)
    return number, error, offset


class CountedPools:
    """Makes pools of threads, and counts how often each was given something."""

    def __init__(self) -> None:
        self.submitted: Counter[str] = Counter()

    def __call__(self, name: str, threads: int) -> Executor:
        counted = self.submitted

        class Pool(ThreadPoolExecutor):
            def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
                counted[name] += 1
                return super().submit(*args, **kwargs)

        return Pool(threads)


class Unlimited:
    """Throttles nobody."""

    clock = SystemClock()
    is_on = False

    def writing(self, _call: Call) -> Any:
        return self

    def check(self, _client_id: str, _size_bytes: int) -> None:
        pass

    def charge(self, _client_id: str, _size_bytes: int) -> float:
        return 0.0

    def left_ms(self, _until_s: float) -> int:
        return 0


class Taking:
    """Hands requests on to the handler, unless a quota refuses all of them for once."""

    def __init__(self, calls: LogCalls) -> None:
        self.calls = calls
        self.refusals = 0
        self.taken: list[int] = []
        """How many came at a time."""

    async def take(self, requests: Sequence[ProduceRequest], told: Told, *, call: Call) -> Mapping[int, UnderWay]:
        if self.refusals:
            self.refusals -= 1
            raise RegnumError(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, "later", retry_after_ms=1)
        self.taken.append(len(requests))
        return await self.calls.take(requests, told, call=call)


class World:
    """A Kafka listener over partitions that are led here."""

    def __init__(self, leading: LeadingReplicas, pools: CountedPools, metrics: Metrics) -> None:
        clock, throttling = SystemClock(), Unlimited()
        self.leading, self.pools, self.metrics = leading, pools, metrics
        self.supervisor = Supervisor("test")
        nothing: Any = None
        budget = Budget(HeldBytes(Shares(total_max=8 * MIB, connection_max=8 * MIB)), clock)
        calls = LogCalls(
            producing=ProduceHandler(
                replicas=leading.replicas,
                leaders=CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners)),
                storage=leading.storage,
                clock=clock,
                batch_bytes_max=MIB,
                supervisor=self.supervisor,
                metrics=metrics,
            ),
            fetching=nothing,
            offsets=nothing,
            budget=budget,
            throttling=throttling,  # type: ignore[arg-type]
        )
        self.taking = Taking(calls)
        rooms: Any = Rooms()
        self.listener = KafkaListener(
            Address(host="127.0.0.1", port=0),
            door=Door(
                data=Data(log=guarded(calls, nothing, EVERYBODY), addresses=nothing, follows=nothing),
                log=self.taking,
                groups=rooms,
                admin=rooms,
                administration={},
                gates=(),
                answers=Answers(budget, counted_elsewhere=("/regnum.broker.v1.LogService/Produce",)),
                meter=throttling,  # type: ignore[arg-type]
                clock=clock,
                metrics=metrics,
            ),
            budget=budget,
            access=ListenerAccess(limits=ListenerLimits()),
            request_bytes_max=MIB,
            clock=clock,
            supervisor=self.supervisor,
        )

    @property
    def jobs(self) -> int:
        """That the writer has done."""
        return sum(self.metrics.histogram(instruments.WRITER_RUN).counts)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.listener.address.port)


class Rooms:
    """Of calls that are not made here."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise_it: Callable[..., Any] = NotImplementedError
        return raise_it


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    pools, metrics = CountedPools(), Metrics()
    async with LeadingReplicas(tmp_path, partitions=3, metrics=metrics, make_pool=pools) as leading:
        for number in range(2):
            leading.lead(number, isr=(LEADER,))
        leading.lead(2)
        world = World(leading, pools, metrics)
        await world.listener.start()
        yield world
        await world.listener.stop()
        await world.supervisor.unwind()
        assert world.supervisor.failure is None


async def test_what_was_sent_ahead_is_one_hand_over_and_answered_in_order(world: World) -> None:
    reader, writer = await world.connect()
    writer.write(frame(0, batch_of(b"0")))
    assert await answer(reader) == (0, 0, 0)
    handed_over, jobs = world.pools.submitted["log-writer"], world.jobs
    writer.write(b"".join(frame(number, batch_of(b"%d" % number), partition=number % 2) for number in range(1, 21)))
    assert [await answer(reader) for _ in range(20)] == [(number, 0, number // 2) for number in range(1, 21)]
    assert world.taking.taken == [20]
    # (None, where the thread was still at the end of the job before and took this one along.)
    assert world.pools.submitted["log-writer"] - handed_over <= 1
    assert world.jobs - jobs == 1
    stored = values_of(world.leading.partition(1).log.read(0, bytes_max=MIB))
    assert stored == [b"%d" % number for number in range(1, 21, 2)]
    writer.close()


async def test_an_answer_waits_for_its_own_request_and_for_those_before_it_only(world: World) -> None:
    reader, writer = await world.connect()
    # Partition 2 has a follower that never fetches: its batch is not acknowledged.
    sent = (frame(1, batch_of(b"a")), frame(2, batch_of(b"b"), partition=2), frame(3, batch_of(b"c")))
    writer.write(b"".join(sent))
    assert await answer(reader) == (1, 0, 0)
    second = asyncio.create_task(answer(reader))
    log = world.leading.partition(0).log
    await until(lambda: log.log_end_offset == 2)
    assert not second.done()
    world.leading.partition(2).acks.committed(1)
    assert [await second, await answer(reader)] == [(2, 0, 0), (3, 0, 1)]
    writer.close()


async def test_what_a_quota_refuses_is_taken_later_and_in_order(world: World) -> None:
    world.taking.refusals = 2
    reader, writer = await world.connect()
    writer.write(b"".join(frame(number, batch_of(b"%d" % number)) for number in range(4)))
    assert [await answer(reader) for _ in range(4)] == [(number, 0, number) for number in range(4)]
    assert world.taking.taken == [4]
    writer.close()


async def test_a_large_request_and_one_of_another_client_are_answered_by_themselves(world: World) -> None:
    reader, writer = await world.connect()
    small = [frame(number, batch_of(b"%d" % number)) for number in range(5)]
    large = frame(9, b"", partition=7, n=ITEMS_AT_ONCE + 1)
    other = frame(5, batch_of(b"5"), who=b"d")
    writer.write(b"".join((*small[:2], large, *small[2:], other)))
    assert [await answer(reader) for _ in range(2)] == [(0, 0, 0), (1, 0, 1)]
    number, error, _ = await answer(reader)
    assert number == 9
    assert error
    assert [await answer(reader) for _ in range(4)] == [(2, 0, 2), (3, 0, 3), (4, 0, 4), (5, 0, 5)]
    assert world.taking.taken == [2, 3]
    writer.close()


async def test_those_before_a_request_that_cannot_be_read_are_answered(world: World) -> None:
    reader, writer = await world.connect()
    torn = bytearray(frame(2, batch_of(b"torn")))
    torn[4 + 11 + 8 : 4 + 11 + 12] = b"\x7f\xff\xff\xff"
    unknown = frame(1, batch_of(b"elsewhere"), partition=9)
    writer.write(frame(0, batch_of(b"a")) + unknown + torn + frame(3, batch_of(b"never")))
    assert await answer(reader) == (0, 0, 0)
    number, error, offset = await answer(reader)
    assert (number, offset) == (1, -1)
    assert error
    assert await within(reader.read(1)) == b""
    assert world.leading.partition(0).log.log_end_offset == 1
    writer.close()


async def test_a_producer_that_waits_for_no_answer_gets_none(world: World) -> None:
    reader, writer = await world.connect()
    writer.write(frame(1, batch_of(b"a"), acks=0) + frame(2, batch_of(b"b")) + frame(3, batch_of(b"c"), acks=5))
    assert await answer(reader) == (2, 0, 1)
    number, error, _ = await answer(reader)
    assert (number, error) == (3, errors_pb2.ERROR_CODE_INVALID_REQUIRED_ACKS)
    writer.close()


@pytest.mark.parametrize("ahead", [False, True])
async def test_the_connection_ends_of_a_producer_that_waits_for_no_answer_and_is_refused(
    world: World, ahead: bool
) -> None:
    reader, writer = await world.connect()
    before = [frame(1, batch_of(b"a"), acks=0)] if ahead else []
    refused = [frame(number, batch_of(b"elsewhere"), partition=9, acks=0) for number in (2, 3)[: 1 + ahead]]
    writer.write(b"".join((*before, *refused)))
    assert await closed(reader)
    await until(lambda: world.leading.partition(0).log.log_end_offset == len(before))
    counted = world.metrics.histogram(instruments.KAFKA_REQUESTS, "Produce", str(VERSION), "UNKNOWN_TOPIC_OR_PARTITION")
    assert sum(counted.counts) == len(refused)
    writer.close()


async def test_a_client_that_hangs_up_is_waited_for_no_more(world: World) -> None:
    _, writer = await world.connect()
    writer.write(frame(1, batch_of(b"a"), partition=2) + frame(2, batch_of(b"b"), partition=2))
    await until(lambda: world.leading.partition(2).log.log_end_offset == 2)
    writer.transport.abort()
    await until(lambda: world.listener.connections == 0)
    assert world.taking.taken == [2]
