"""What clients may take of a broker's memory: a real process, and clients that take all they can get.

The follower is paused, so that what is produced with acks all waits. What is held is read from the broker's metrics,
and its memory from /proc.
"""

import asyncio
import collections
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import Admin, NewTopic, Producer, ProducerSettings
from regnum_local.cluster import LocalCluster, ProcessRow
from regnum_local.plan import Role
from regnum_records.build import build_batch
from regnum_records.header import iterate
from regnum_records.record import NewRecord
from regnum_service.channel import CHANNEL_OPTIONS, aio_channel
from regnum_service.limits.unread_answers import TAKEN_S_MAX
from regnum_service.status import from_rpc_error
from regnum_testing.direct_http import opened_directly
from regnum_testing.process_memory import PeakMemory, resident_bytes
from regnum_testing.under_load import until
from regnum_testing.waiting import within

# In full: what a process holds, and for how long, is measured; beside the rest of the tests it is held longer.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(200),
    pytest.mark.asyncio(loop_scope="module"),
]

LOG = logging.getLogger(__name__)

MIB = 1024 * 1024
TOTAL_MAX = 64 * MIB
PRODUCE_MAX = TOTAL_MAX * 3 // 4
"""What requests may hold of it (``held_bytes.PARTS``)."""
FETCH_MAX = TOTAL_MAX // 2
"""What answers may hold of it."""
CONNECTION_MAX = 16 * MIB
BATCH = build_batch([NewRecord(key=None, value=os.urandom(MIB))], timestamp_ms=1)
STREAMS = {"listener": "client", "kind": "stream"}
"""Labels of calls that are streams of clients."""
AT_ONCE = 6
"""Requests that are given up together: fewer than are read at once."""
MEMORY_PER_HELD = 3.0
"""Bytes of the process for each byte that is counted: the message as it came, as it was parsed, as it is written."""
MEMORY_BESIDE = 300 * MIB
"""Messages that are just being read (64, each up to three times), and connections and calls (0.1 MiB each)."""

Stub = log_pb2_grpc.LogServiceStub


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    # The follower is paused for as long as a test takes, and stays in sync.
    session = ("--session-timeout-s", "300")
    extra = {
        Role.BROKER: (
            *session,
            *("--queued-max-request-bytes", str(TOTAL_MAX)),
            *("--connection-queued-max-bytes", str(CONNECTION_MAX)),
            *("--message-bytes-max", str(2 * MIB)),
            *("--replica-lag-s", "600"),
        ),
        Role.ELECTION: (*session, "--lifeline-detection", "false"),
    }
    folder: Path = tmp_path_factory.mktemp("cluster") / "data"
    async with LocalCluster(folder, brokers=2, elections=1, metadata=1, extra=extra) as started:
        async with Admin(started.bootstrap) as admin:
            await admin.create_topics([NewTopic(name="t", partitions=0, assignment={0: [1, 2]})])
        async with Producer(started.bootstrap) as producer:
            await within(await producer.send("t", b"first", partition=0))
        filling = connected(started)
        # More than readers may hold.
        assert {await produce(filling) for _ in range(TOTAL_MAX // MIB)} == {"ERROR_CODE_NONE"}
        await filling.close()
        yield started


def row(cluster: LocalCluster, name: str = "broker-1") -> ProcessRow:
    return next(one for one in cluster.status() if one.name == name)


def process(cluster: LocalCluster) -> int:
    """The broker's number."""
    pid = row(cluster).pid
    assert pid is not None
    return pid


async def shown(cluster: LocalCluster) -> dict[str, float]:
    """What the broker says of what it holds, by name and purpose."""
    url = f"http://{row(cluster).addresses['metrics']}/metrics"

    def read() -> str:
        with opened_directly(url, timeout=20) as answer:
            return answer.read().decode()

    text = ""

    async def answered() -> bool:
        nonlocal text
        # A broker that is at a thousand connections at once may be too late for one that asks how it is.
        with contextlib.suppress(OSError):
            text = await asyncio.to_thread(read)
        return bool(text)

    await until(answered)
    found: dict[str, float] = collections.Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("regnum_broker_client_"):
                name = sample.name.removeprefix("regnum_broker_client_")
                found[name] += sample.value
                found[f"{name} {sample.labels.get('purpose')}"] += sample.value
            elif sample.name == "regnum_server_calls" and STREAMS.items() <= sample.labels.items():
                found["streams"] = sample.value
    return found


async def held(cluster: LocalCluster) -> float:
    return (await shown(cluster))["held_bytes"]


async def held_of_requests(cluster: LocalCluster) -> float:
    """Without the answers to a follower that is paused: two mebibytes and more, which are never refused."""
    return (await shown(cluster))["held_bytes produce"]


def connected(cluster: LocalCluster) -> grpc.aio.Channel:
    return aio_channel(str(row(cluster).addresses["client"]), options=CHANNEL_OPTIONS)


async def produce(channel: grpc.aio.Channel, *, timeout_s: float = 180.0) -> str:
    """One batch by a call of its own, which waits for the follower as long as a test may take; returns how it ended."""
    request = log_pb2.ProduceRequest(timeout_ms=170_000)
    request.partitions.add(topic="t", partition=0, record_batch=BATCH)
    try:
        answer = await Stub(channel).Produce(request, timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        found = from_rpc_error(error)
        if found.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED:
            return "refused" if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and found.retry_after_ms else "badly"
        return errors_pb2.ErrorCode.Name(found.code)
    return errors_pb2.ErrorCode.Name(answer.results[0].error_code)


async def others_are_told(calls: list[asyncio.Task[str]]) -> None:
    """Wait until no more calls are open than may be."""

    async def few() -> bool:
        return sum(not call.done() for call in calls) <= PRODUCE_MAX / MIB

    await until(few, within_s=60.0)


async def nothing_held(cluster: LocalCluster) -> None:
    async def nothing() -> bool:
        return await held(cluster) == 0

    await until(nothing)


async def test_a_thousand_connections_with_a_request_each_take_no_more_than_there_is(cluster: LocalCluster) -> None:
    channels = [connected(cluster) for _ in range(1_000)]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    peak = PeakMemory(process(cluster))
    watching = asyncio.create_task(peak.watch())
    cluster.pause("broker-2")
    calls: list[asyncio.Task[str]] = []
    try:
        # A hundred times of what it may hold is offered.
        while len(calls) * MIB < 100 * TOTAL_MAX:
            calls += [asyncio.create_task(produce(channel)) for channel in channels]
            await others_are_told(calls)
            LOG.info("%d MiB offered, %d MiB above before", len(calls), peak.above / MIB)
        before = await shown(cluster)
    finally:
        cluster.resume("broker-2")
    outcomes = collections.Counter(await asyncio.gather(*calls))
    watching.cancel()
    LOG.info(
        "%s; at most %d MiB held; broker %d MiB before, %d MiB above that at most",
        dict(outcomes),
        before["held_peak_bytes"] / MIB,
        peak.before / MIB,
        peak.above / MIB,
    )
    assert set(outcomes) == {"ERROR_CODE_NONE", "refused"}
    assert PRODUCE_MAX * 0.9 <= before["held_peak_bytes"] <= TOTAL_MAX
    assert outcomes["ERROR_CODE_NONE"] >= 0.9 * PRODUCE_MAX / MIB
    assert peak.above <= MEMORY_PER_HELD * TOTAL_MAX + MEMORY_BESIDE
    await nothing_held(cluster)
    await asyncio.gather(*(channel.close() for channel in channels))


async def test_one_connection_with_a_thousand_requests_leaves_room_for_others(cluster: LocalCluster) -> None:
    hostile, other = connected(cluster), connected(cluster)
    peak = PeakMemory(process(cluster))
    watching = asyncio.create_task(peak.watch())
    cluster.pause("broker-2")
    try:
        flood = [asyncio.create_task(produce(hostile)) for _ in range(1_000)]

        async def full() -> bool:
            return await held_of_requests(cluster) > CONNECTION_MAX - 2 * MIB

        await until(full)
        mine = [asyncio.create_task(produce(other)) for _ in range(4)]

        async def taken() -> bool:
            return await held_of_requests(cluster) > CONNECTION_MAX + 2 * MIB

        await until(taken)
        # Calls for which there is no memory do not wait: they are told.
        await asyncio.wait(flood, timeout=5.0)
        at_most = await held_of_requests(cluster)
    finally:
        cluster.resume("broker-2")
    assert await asyncio.gather(*mine) == ["ERROR_CODE_NONE"] * 4
    outcomes = collections.Counter(await asyncio.gather(*flood))
    watching.cancel()
    LOG.info("%s; %d MiB held; broker %d MiB above before", dict(outcomes), at_most / MIB, peak.above / MIB)
    assert at_most <= CONNECTION_MAX + 5 * MIB
    assert outcomes["refused"] > 900
    assert peak.above <= MEMORY_PER_HELD * at_most + MEMORY_BESIDE
    await nothing_held(cluster)
    await hostile.close()
    await other.close()


async def test_consumers_that_never_read_take_no_more_than_a_connection_may(cluster: LocalCluster) -> None:
    channel = connected(cluster)
    peak = PeakMemory(process(cluster))
    watching = asyncio.create_task(peak.watch())
    streams = [Stub(channel).Consume(log_pb2.ConsumeRequest(topic="t", partition=0)) for _ in range(300)]

    async def full() -> bool:
        return await held(cluster) > CONNECTION_MAX - 2 * MIB

    await until(full)

    async def all_begun() -> bool:
        # Each was read, and has taken what there was for it or stands in line.
        now = await shown(cluster)
        return now["streams"] == 300 and now["unread"] == 0

    await until(all_begun)
    now = await shown(cluster)
    watching.cancel()
    LOG.info("%d MiB held; broker %d MiB above before", now["held_bytes"] / MIB, peak.above / MIB)
    # A batch may turn out to be larger than what was set aside for it.
    assert now["held_bytes"] <= CONNECTION_MAX * 1.2
    assert peak.above <= MEMORY_PER_HELD * CONNECTION_MAX + MEMORY_BESIDE
    for stream in streams:
        stream.cancel()
    await nothing_held(cluster)
    await channel.close()


async def test_who_takes_nothing_for_thirty_seconds_loses_his_connection_to_a_reader_that_waits(
    cluster: LocalCluster,
) -> None:
    reading = connected(cluster)
    silent = [connected(cluster) for _ in range(4)]
    cut_before = (await shown(cluster))["cut_off_total"]
    looking = Stub(reading).Consume(log_pb2.ConsumeRequest(topic="t", partition=0))
    log_end = (await within(looking.read(), 90.0)).result.high_watermark
    looking.cancel()
    await nothing_held(cluster)
    opened_s = time.monotonic()
    streams = [
        Stub(channel).Consume(log_pb2.ConsumeRequest(topic="t", partition=0)) for channel in silent for _ in range(16)
    ]

    async def full() -> bool:
        return (await shown(cluster))["held_bytes fetch"] > FETCH_MAX - MIB

    await until(full)
    answers, taken = asyncio.Event(), 0

    async def read_on() -> None:
        """From the beginning to the end and again: who only opened a stream would be as silent as the others."""
        nonlocal taken
        while True:
            stream = Stub(reading).Consume(log_pb2.ConsumeRequest(topic="t", partition=0))
            end = 0
            while end < log_end:
                answer = await stream.read()
                taken += 1
                answers.set()
                end = max((header.last_offset + 1 for _, header in iterate(answer.result.record_batches)), default=end)
            stream.cancel()

    late = asyncio.create_task(read_on())
    cut = 0.0

    async def somebody_was_cut_off() -> bool:
        nonlocal cut
        cut = (await shown(cluster))["cut_off_total"] - cut_before
        return cut > 0

    # (What the lines of the silent ones still take makes room for a moment, in which he may have answers.)
    await until(somebody_was_cut_off, within_s=90.0)
    waited_s = time.monotonic() - opened_s
    before = taken
    answers.clear()
    await within(answers.wait(), 90.0)
    LOG.info("cut off after %.1f s for a reader that had %d answers; %d connections", waited_s, before, cut)
    assert not late.done(), "he took what he was sent, and keeps his connection"
    assert waited_s >= TAKEN_S_MAX, "somebody was cut off before his time was over"
    assert 1 <= cut <= len(silent)
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    for stream in streams:
        stream.cancel()
    await nothing_held(cluster)
    for channel in (reading, *silent):
        await channel.close()


async def test_requests_that_are_given_up_leave_nothing_to_the_collector(cluster: LocalCluster) -> None:
    channel = connected(cluster)
    request = log_pb2.ProduceRequest(timeout_ms=50_000)
    request.partitions.add(topic="t", partition=0, record_batch=BATCH)

    async def give_up(rounds: int) -> None:
        for _ in range(rounds):
            calls = [Stub(channel).Produce(request) for _ in range(AT_ONCE)]

            async def taken() -> bool:
                return await held(cluster) >= AT_ONCE * MIB

            await until(taken)
            for call in calls:
                call.cancel()
            await nothing_held(cluster)

    cluster.pause("broker-2")
    try:
        # What it takes once, for the parts of the writer and of gRPC, it has taken then.
        await give_up(1)
        before = resident_bytes(process(cluster))
        await give_up(5)
    finally:
        cluster.resume("broker-2")
    above = resident_bytes(process(cluster)) - before
    LOG.info(
        "%d requests of 1 MiB given up; broker %d MiB before, %d MiB above", 5 * AT_ONCE, before / MIB, above / MIB
    )
    assert above <= 15 * MIB
    await channel.close()


async def test_a_producer_of_the_sdk_is_throttled_and_nothing_is_lost_or_doubled(cluster: LocalCluster) -> None:
    settings = ProducerSettings(batch_bytes=MIB, buffer_bytes=128 * MIB, delivery_timeout_s=120.0)
    value = os.urandom(64 * 1024)
    async with Producer(cluster.bootstrap, settings=settings) as producer:
        begun = (await within(await producer.send("t", b"begin", partition=0))).offset
        cluster.pause("broker-2")
        hostile = [connected(cluster) for _ in range(70)]
        flood = [asyncio.create_task(produce(channel)) for channel in hostile]

        async def full() -> bool:
            return (await held(cluster)) > PRODUCE_MAX - 2 * MIB

        try:
            await until(full)
            sent = [await producer.send("t", b"%d " % number + value, partition=0) for number in range(400)]

            async def refused() -> bool:
                return producer.batches_throttled > 0

            await until(refused)
        finally:
            cluster.resume("broker-2")
        offsets = [(await within(future, 100.0)).offset for future in sent]
        outcomes = collections.Counter(await asyncio.gather(*flood))
        LOG.info("%d times, %.1f s; %s", producer.batches_throttled, producer.throttle_time_s, dict(outcomes))
    assert offsets == sorted(set(offsets))
    # What lies between is the flood's own records, and nothing twice.
    assert offsets[-1] - begun == 400 + outcomes["ERROR_CODE_NONE"]
    for channel in hostile:
        await channel.close()
