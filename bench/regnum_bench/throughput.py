"""``produce`` and ``consume``: megabytes a second, beside one raw gRPC hop of the same bytes in the same repetition.

Two ways each: the wire (batches that are built once, sent by the calls that every client uses, and as requests of a
stream: what brokers can do) and the SDK (records one by one: what a Python program gets). All figures count bytes of
values, a megabyte is 10**6 bytes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import EARLIEST, Consumer, Producer, ProducerSettings
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.security.channels import channels_to
from regnum_client.producer.streams import ProduceStreams
from regnum_client.tasks import Tasks
from regnum_local.plan import PROCESSES, Role
from regnum_model.nodes import Address
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.clock import SystemClock

from regnum_bench.figures import Round, quantile
from regnum_bench.hop import Hop, HopTls, hop
from regnum_bench.shape import Shape, ShapeError
from regnum_bench.stand import Measured, Run, Stand, stand
from regnum_bench.waiting import MeasureError

CALL_S: Final = 60.0
FETCH_BYTES: Final = 8 * 1024 * 1024
"""Asked for in one call: the server's own default."""
READ_RECORDS: Final = 5_000
"""Records of one read of the SDK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A partition and how its leader is called."""

    topic: str
    partition: int
    stub: "log_pb2_grpc.LogServiceAsyncStub"
    address: Address
    """Its client listener."""
    streams: ProduceStreams
    """Streams to all leaders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is written in one repetition."""

    batch: bytes
    """One batch as it travels."""
    records_each: int
    """Records in it."""
    batches: int
    """How many are sent."""
    payload_bytes: int
    """Bytes of values in all of them."""


Ready: TypeAlias = tuple[Stand, list[Place], Hop]
"""A cluster, its partitions with their leaders, and a hop beside it."""


async def produce(run: Run) -> Measured:
    """Figures of each repetition."""
    rounds: list[Round] = []
    async with _ready(run) as (cluster, places, raw), _over_tls(run) as secured:
        work = work_of(run.shape)
        for number in range(run.shape.warm_up + run.shape.repetitions):
            hop_s, _ = await timed(run.shape, [partial(raw.take, work.batch, CALL_S)] * work.batches)
            async with cluster.watched("produce") as spent:
                wire_s, calls_s = await timed(run.shape, sends(places, work))
            stream_s, _ = await timed(run.shape, sends(places, work, streamed=True))
            sdk_s = await _send_by_sdk(cluster, work)
            megabytes = work.payload_bytes / 1e6
            figures = {
                "produce_mb_s": megabytes / wire_s,
                "hop_mb_s": megabytes / hop_s,
                "produce_of_hop_ratio": hop_s / wire_s,
                "stream_produce_mb_s": megabytes / stream_s,
                "call_p50_ms": quantile(calls_s, 0.5) * 1000,
                "call_p99_ms": quantile(calls_s, 0.99) * 1000,
                "sdk_produce_mb_s": megabytes / sdk_s,
                "broker_cpu_per_batch_ms": 1000 * spent["produce_cpu_broker_s"] / work.batches,
            }
            if secured is not None:
                figures |= await _secured(run.shape, secured, work, figures)
            run.progress.detail(f"{figures['produce_mb_s']:.1f} MB/s, hop {figures['hop_mb_s']:.1f} MB/s")
            if number >= run.shape.warm_up:
                rounds.append(figures)
    return Measured(rounds=tuple(rounds), details={"batch_bytes": len(work.batch), "batches": work.batches})


async def consume(run: Run) -> Measured:
    """Figures of each repetition: everything that was written before is read from the beginning."""
    rounds: list[Round] = []
    async with _ready(run) as (cluster, places, raw):
        work = work_of(run.shape)
        await timed(run.shape, sends(places, work))
        for number in range(run.shape.warm_up + run.shape.repetitions):
            begun_s = time.perf_counter()
            read_bytes, answers = _sum(await asyncio.gather(*(fetch_all(place) for place in places)))
            wire_s = time.perf_counter() - begun_s
            each = read_bytes // answers
            hop_s, _ = await timed(run.shape, [partial(raw.give, each, CALL_S)] * answers)
            sdk_s = await _read_by_sdk(cluster, work)
            megabytes = work.payload_bytes / 1e6
            figures = {
                "consume_mb_s": megabytes / wire_s,
                "hop_mb_s": megabytes / hop_s,
                "consume_of_hop_ratio": hop_s / wire_s,
                "sdk_consume_mb_s": megabytes / sdk_s,
            }
            run.progress.detail(f"{figures['consume_mb_s']:.1f} MB/s, hop {figures['hop_mb_s']:.1f} MB/s")
            if number >= run.shape.warm_up:
                rounds.append(figures)
    return Measured(rounds=tuple(rounds), details={"batch_bytes": len(work.batch), "answers": answers})


async def _secured(shape: Shape, secured: Ready, work: Work, plain: Round) -> Round:
    """The same over TLS, and what is kept of what it was without.

    ``produce_keeps_ratio`` is the share of its throughput that produce keeps, divided by the share that the hop keeps:
    below 1 TLS and access rules cost a broker more than TLS alone costs gRPC.
    """
    cluster, places, raw = secured
    hop_s, _ = await timed(shape, [partial(raw.take, work.batch, CALL_S)] * work.batches)
    async with cluster.watched("produce") as spent:
        wire_s, calls_s = await timed(shape, sends(places, work))
    megabytes = work.payload_bytes / 1e6
    hop_ratio = megabytes / hop_s / plain["hop_mb_s"]
    produce_ratio = megabytes / wire_s / plain["produce_mb_s"]
    return {
        "tls_produce_mb_s": megabytes / wire_s,
        "tls_hop_mb_s": megabytes / hop_s,
        "tls_call_p99_ms": quantile(calls_s, 0.99) * 1000,
        "tls_broker_cpu_per_batch_ms": 1000 * spent["produce_cpu_broker_s"] / work.batches,
        "tls_hop_of_plain_ratio": hop_ratio,
        "tls_produce_of_plain_ratio": produce_ratio,
        "produce_keeps_ratio": produce_ratio / hop_ratio,
    }


@asynccontextmanager
async def _over_tls(run: Run) -> AsyncIterator[Ready | None]:
    """A second cluster, all over TLS and with access rules, where the shape wants it.

    The client is no super user: each of its calls is decided, as it is where there are rules for it.
    """
    if not run.shape.tls:
        yield None
        return
    async with _ready(secured(run), tls=True) as ready:
        yield ready


def secured(run: Run) -> Run:
    """The run of a second cluster, with access rules, in a directory of its own."""
    told = ("--authorizer", "acl", "--super-users", f"User:{PROCESSES}", "--allow-everyone-if-no-acl-found", "true")
    roles = (Role.ELECTION, Role.BROKER, Role.METADATA)
    extra = {**run.extra, **{role: (*run.extra.get(role, ()), *told) for role in roles}}
    return replace(run, directory=run.directory / "tls", extra=extra)


@asynccontextmanager
async def _ready(run: Run, *, tls: bool = False) -> AsyncIterator[Ready]:
    """A cluster with its topics, its partitions with their leaders, and the hop."""
    async with AsyncExitStack() as ends:
        cluster = await ends.enter_async_context(stand(run, tls=tls))
        raw = await ends.enter_async_context(hop(hop_tls(cluster)))
        await cluster.fill()
        leaders = await cluster.look.leaders(cluster.brokers[0])
        head = await cluster.look.head(cluster.brokers[0])
        if head is None:
            raise MeasureError("no broker answers")
        channels = channels_to(cluster.cluster.bootstrap, cluster.cluster.tls)
        streams = ProduceStreams(Connections(channels), clock=SystemClock(), tasks=Tasks("benchmark"))
        members = {member.name: member.address("client") for member in cluster.cluster.plan.members if member.ports}
        try:
            yield (
                cluster,
                [
                    Place(
                        topic=topic,
                        partition=partition,
                        stub=log_pb2_grpc.LogServiceStub(channels.get(members[f"broker-{leader}"])),
                        address=members[f"broker-{leader}"],
                        streams=streams,
                    )
                    for (topic, partition), leader in sorted(leaders.items())
                ],
                raw,
            )
        finally:
            await streams.close()
            await channels.close()


def hop_tls(cluster: Stand) -> HopTls | None:
    """What a hop beside that cluster shows; None: the cluster has no TLS."""
    files = cluster.cluster.tls
    if files is None or files.ca is None:
        return None
    folder = files.ca.parent
    return HopTls(ca=files.ca, certificate=folder / "broker-1.pem", key=folder / "broker-1.key")


def work_of(shape: Shape) -> Work:
    """What a shape has written in one repetition. Raises ShapeError where that is not even one batch."""
    each = max(1, shape.batch_bytes // shape.size)
    batches = shape.records // each
    if not batches:
        raise ShapeError(f"{shape.records} records do not fill a batch of {shape.batch_bytes} bytes")
    records = [NewRecord(key=None, value=bytes(shape.size)) for _ in range(each)]
    batch = build_batch(records, timestamp_ms=time.time_ns() // 1_000_000)
    return Work(batch=batch, records_each=each, batches=batches, payload_bytes=batches * each * shape.size)


async def timed(shape: Shape, calls: Iterable[Callable[[], Awaitable[object]]]) -> tuple[float, list[float]]:
    """Make all calls, ``in_flight`` at once; seconds in all, and of each."""
    waiting = iter(calls)
    each_s: list[float] = []

    async def worker() -> None:
        for call in waiting:
            begun_s = time.perf_counter()
            await call()
            each_s.append(time.perf_counter() - begun_s)

    begun_s = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(shape.in_flight)))
    return time.perf_counter() - begun_s, each_s


def sends(places: Sequence[Place], work: Work, *, streamed: bool = False) -> Iterable[Callable[[], Awaitable[None]]]:
    """Calls that write all batches, to one partition after another; as requests of a stream, or by themselves."""
    for number in range(work.batches):
        yield _sending(places[number % len(places)], work.batch, streamed=streamed)


def _sending(place: Place, batch: bytes, *, streamed: bool) -> Callable[[], Awaitable[None]]:
    part = log_pb2.ProducePartition(topic=place.topic, partition=place.partition, record_batch=batch)
    message = log_pb2.ProduceStreamRequest(request=log_pb2.ProduceRequest(acks=log_pb2.ACKS_ALL, partitions=[part]))

    async def send() -> None:
        if streamed:
            answer = await place.streams.produce(place.address, message, timeout_s=CALL_S)
        else:
            answer = await place.stub.Produce(message.request, timeout=CALL_S)
        (result,) = answer.results
        if result.error_code != errors_pb2.ERROR_CODE_NONE:
            raise MeasureError(f"{place.topic}-{place.partition} took no batch: {result.error_message}")

    return send


async def fetch_all(place: Place) -> tuple[int, int]:
    """Bytes of batches up to the high watermark, and answers that they took."""
    offset, size, answers = 0, 0, 0
    while True:
        wanted = log_pb2.FetchPartition(topic=place.topic, partition=place.partition, offset=offset)
        request = log_pb2.FetchRequest(max_bytes=FETCH_BYTES, partitions=[wanted])
        (result,) = (await place.stub.Fetch(request, timeout=CALL_S)).results
        if result.error_code != errors_pb2.ERROR_CODE_NONE:
            raise MeasureError(f"{place.topic}-{place.partition} cannot be read: {result.error_message}")
        if result.record_batches:
            size, answers = size + len(result.record_batches), answers + 1
            offset = offset_after(result.record_batches)
        if offset >= result.high_watermark:
            return size, answers
        if not result.record_batches:
            raise MeasureError(f"{place.topic}-{place.partition} gives nothing at {offset} of {result.high_watermark}")


def offset_after(batches: bytes | memoryview) -> int:
    """Offset after the last whole batch: a header at the start of each names base offset, length and last delta."""
    at, offset = 0, 0
    while at + 27 <= len(batches):
        length = int.from_bytes(batches[at + 8 : at + 12], "big") + 12
        if at + length > len(batches):
            break
        offset = int.from_bytes(batches[at : at + 8], "big") + int.from_bytes(batches[at + 23 : at + 27], "big") + 1
        at += length
    return offset


def _sum(pairs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(size for size, _ in pairs), max(1, sum(answers for _, answers in pairs))


async def _send_by_sdk(cluster: Stand, work: Work) -> float:
    shape = cluster.run.shape
    settings = ProducerSettings(batch_bytes=shape.batch_bytes, delivery_timeout_s=shape.deadline_s)
    value = bytes(shape.size)
    names = shape.names
    async with Producer(cluster.cluster.bootstrap, settings=settings) as producer:
        begun_s = time.perf_counter()
        for number in range(work.batches * work.records_each):
            await producer.send(names[number % len(names)], value)
        await producer.flush()
        return time.perf_counter() - begun_s


async def _read_by_sdk(cluster: Stand, work: Work) -> float:
    """Read so many records; how long it took."""
    wanted, got = work.batches * work.records_each, 0
    deadline = cluster.run.deadline(f"{wanted:,} records to be read")
    async with Consumer(cluster.cluster.bootstrap) as consumer:
        begun_s = time.perf_counter()
        for name in cluster.run.shape.names:
            await consumer.assign(name, start=EARLIEST)
        while got < wanted:
            got += len(await consumer.read(records_max=READ_RECORDS, timeout_s=1.0))
            deadline.check(f"{got:,} read")
        return time.perf_counter() - begun_s
