"""``traffic`` and ``singles``: what a program with the SDK gets, as the performance tools of other products measure it.

``traffic`` writes as fast as the producer takes records and reads them again, one client each. A record counts from
``send`` to its acknowledgement, the time in the producer's buffer included. ``singles`` has many tasks that write a
record and wait for its acknowledgement before the next. Over TLS (``tls``) a second cluster is measured in turn with
the first, and its figures begin with ``tls_``. Megabytes have 10**6 bytes, of values.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

from regnum_client import EARLIEST, Consumer, Producer, ProducerSettings
from regnum_client.records import RecordMetadata

from regnum_bench.figures import Round, quantile
from regnum_bench.hop import Hop, hop
from regnum_bench.shape import Shape
from regnum_bench.stand import Measured, Run, Stand, stand
from regnum_bench.throughput import CALL_S, READ_RECORDS, hop_tls, secured

TIMED_EACH: Final = 16
"""Of so many records one is timed: a callback for each costs as much as the rest of its client's work."""

HOP_BYTES_MAX: Final = 256 * 10**6
"""Bytes that go over the raw hop: enough to be steady."""

TOLD_EACH: Final = 100_000
"""Records between two lines of progress."""


async def traffic(run: Run) -> Measured:
    """Figures of each repetition."""
    rounds: list[Round] = []
    async with AsyncExitStack() as ends:
        stands = [(await ends.enter_async_context(stand(one, tls=tls)), name) for one, tls, name in _stands(run)]
        raws = [await ends.enter_async_context(hop(hop_tls(cluster))) for cluster, _ in stands]
        for cluster, _ in stands:
            await cluster.fill()
        for number in range(run.shape.warm_up + run.shape.repetitions):
            figures: dict[str, float] = {}
            for (cluster, name), raw in zip(stands, raws, strict=True):
                found = await _all_ways(cluster, raw)
                figures |= {f"{name}{key}": value for key, value in found.items()}
            if run.shape.tls:
                figures["tls_produce_of_plain_ratio"] = figures["tls_produce_mb_s"] / figures["produce_mb_s"]
                figures["tls_hop_of_plain_ratio"] = figures["tls_hop_mb_s"] / figures["hop_mb_s"]
            if number >= run.shape.warm_up:
                rounds.append(figures)
    return Measured(rounds=tuple(rounds))


def _stands(run: Run) -> list[tuple[Run, bool, str]]:
    """Clusters, whether each uses TLS, and how its figures begin."""
    plain = [(run, False, "")]
    return [*plain, (secured(run), True, "tls_")] if run.shape.tls else plain


async def _all_ways(cluster: Stand, raw: Hop) -> Round:
    await cluster.settle()
    run = cluster.run
    figures = {
        **await _written(cluster),
        **await _read_as_records(cluster),
        **await _read_as_batches(cluster),
        "hop_mb_s": await _hopped(raw, run.shape),
    }
    figures["produce_of_hop_ratio"] = figures["produce_mb_s"] / figures["hop_mb_s"]
    run.progress.detail(
        f"{'over TLS: ' if cluster.cluster.tls else ''}written {figures['produce_mb_s']:.1f} MB/s"
        f" (p99 {figures['produce_p99_ms']:.0f} ms), read {figures['consume_mb_s']:.1f}, as batches"
        f" {figures['consume_batches_mb_s']:.1f}, hop {figures['hop_mb_s']:.1f}"
    )
    return figures


async def singles(run: Run) -> Measured:
    """Figures of each repetition."""
    rounds: list[Round] = []
    async with stand(run) as cluster:
        await cluster.fill()
        for number in range(run.shape.warm_up + run.shape.repetitions):
            await cluster.settle()
            figures = await _one_by_one(cluster)
            run.progress.detail(f"p50 {figures['ack_p50_ms']:.1f} ms, p99 {figures['ack_p99_ms']:.1f} ms")
            if number >= run.shape.warm_up:
                rounds.append(figures)
    return Measured(rounds=tuple(rounds))


def settings_of(shape: Shape) -> ProducerSettings:
    """The producer that a shape asks for; what it says nothing of is the SDK's default."""
    return ProducerSettings(
        batch_bytes=shape.batch_bytes, batch_bytes_max=shape.batch_grows_to, delivery_timeout_s=shape.deadline_s
    )


async def _written(cluster: Stand) -> Round:
    shape, value = cluster.run.shape, bytes(cluster.run.shape.size)
    names, waits_s = shape.names, list[float]()

    def timed(sent_s: float, acknowledged: asyncio.Future[RecordMetadata]) -> None:
        acknowledged.result()
        waits_s.append(time.perf_counter() - sent_s)

    async with (
        Producer(cluster.cluster.bootstrap, settings=settings_of(shape), tls=cluster.cluster.tls) as producer,
        cluster.watched("produce") as spent,
    ):
        begun_s = time.perf_counter()
        for number in range(shape.records):
            sent_s = time.perf_counter()
            delivery = await producer.send(names[number % len(names)], value)
            if number % TIMED_EACH == 0:
                delivery.add_done_callback(partial(timed, sent_s))
            if number % TOLD_EACH == 0:
                cluster.run.progress.count(number, shape.records, "records written")
        await producer.flush()
        took_s = time.perf_counter() - begun_s
    return {
        "produce_mb_s": _megabytes(shape) / took_s,
        "produce_s": took_s,
        "produce_p50_ms": quantile(waits_s, 0.5) * 1000,
        "produce_p99_ms": quantile(waits_s, 0.99) * 1000,
        **spent,
    }


async def _read_as_records(cluster: Stand) -> Round:
    async def read(consumer: Consumer) -> int:
        return len(await consumer.read(records_max=READ_RECORDS, timeout_s=1.0))

    return await _read_with(cluster, "consume", read)


async def _read_as_batches(cluster: Stand) -> Round:
    async def read(consumer: Consumer) -> int:
        batch = await consumer.read_batch(timeout_s=1.0)
        return 0 if batch is None else batch.next_offset - batch.first_offset

    return await _read_with(cluster, "consume_batches", read)


async def _read_with(cluster: Stand, name: str, read: Callable[[Consumer], Awaitable[int]]) -> Round:
    """Read as many records as were written, from the beginning."""
    shape = cluster.run.shape
    deadline = cluster.run.deadline(f"{shape.records:,} records to be read")
    async with Consumer(cluster.cluster.bootstrap, tls=cluster.cluster.tls) as consumer, cluster.watched(name) as spent:
        begun_s, got = time.perf_counter(), 0
        for topic in shape.names:
            await consumer.assign(topic, start=EARLIEST)
        while got < shape.records:
            got += await read(consumer)
            deadline.check(f"{got:,} read")
        took_s = time.perf_counter() - begun_s
    return {f"{name}_mb_s": _megabytes(shape) / took_s, f"{name}_s": took_s, **spent}


async def _hopped(raw: Hop, shape: Shape) -> float:
    data = bytes(shape.batch_bytes)
    calls = max(1, min(HOP_BYTES_MAX, shape.records * shape.size) // len(data))
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            await raw.take(data, CALL_S)

    begun_s = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(shape.in_flight)))
    return calls * len(data) / 1e6 / (time.perf_counter() - begun_s)


async def _one_by_one(cluster: Stand) -> Round:
    shape, value = cluster.run.shape, bytes(cluster.run.shape.size)
    left, waits_s = iter(range(shape.records)), list[float]()
    async with (
        Producer(cluster.cluster.bootstrap, settings=settings_of(shape), tls=cluster.cluster.tls) as producer,
        cluster.watched("singles") as spent,
    ):

        async def task() -> None:
            for number in left:
                sent_s = time.perf_counter()
                await (await producer.send(shape.names[number % len(shape.names)], value))
                waits_s.append(time.perf_counter() - sent_s)

        begun_s = time.perf_counter()
        await asyncio.gather(*(task() for _ in range(shape.tasks)))
        took_s = time.perf_counter() - begun_s
    return {
        "ack_p50_ms": quantile(waits_s, 0.5) * 1000,
        "ack_p99_ms": quantile(waits_s, 0.99) * 1000,
        "acks_per_s": shape.records / took_s,
        **spent,
    }


def _megabytes(shape: Shape) -> float:
    return shape.records * shape.size / 1e6
