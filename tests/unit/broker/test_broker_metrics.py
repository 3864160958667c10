"""What a broker counts, and what its log writer says of jobs that hold it up."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.figures.gauges import show_broker
from regnum_broker.figures.log_sizes import LogSizing
from regnum_broker.replication.partition import Following
from regnum_broker.servicers.log_messages import MessageContent
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.requests import FetchPartition, FetchRequest, RecordForm, StoredBatches
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.produce_requests import Acks, ProducePartition, ProduceRequest
from regnum_broker.serving.topic_traffic import TopicTraffic
from regnum_broker.storage import Storage
from regnum_broker.writer_times import WriterTimes, name_of
from regnum_model.ids import LeaderEpoch
from regnum_records.header import count_records
from regnum_service.supervisor import Supervisor
from regnum_telemetry.instruments import Instrument, topics
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import OTHER, Labels, Metrics
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import FOLLOWER, LEADER, LeadingReplicas
from structlog.testing import capture_logs


class Broker:
    """Handlers over partitions that are led, with metrics that a test reads."""

    def __init__(self, leading: LeadingReplicas) -> None:
        self.metrics = Metrics()
        self.leading = leading
        self.traffic = TopicTraffic(topics_max=2, clock=leading.clock, metrics=self.metrics)
        self.sizing = LogSizing(leading.storage, self.traffic, leading.clock)
        self.sizing.show(self.metrics)
        leaders = CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners))
        self.producing = ProduceHandler(
            replicas=leading.replicas,
            leaders=leaders,
            storage=leading.storage,
            clock=leading.clock,
            batch_bytes_max=1 << 20,
            supervisor=Supervisor("test"),
            metrics=self.metrics,
            traffic=self.traffic,
        )
        self.fetching = FetchHandler(
            replicas=leading.replicas,
            leaders=leaders,
            storage=leading.storage,
            metrics=self.metrics,
            traffic=self.traffic,
        )
        show_broker(self.metrics, leading.replicas, leading.storage)

    async def produce(self, *batches: bytes) -> list[int]:
        """Send a batch to each partition from 0 on, not waiting for followers; the errors."""
        request = ProduceRequest(
            acks=Acks.LEADER,
            partitions=[
                ProducePartition(topic="t", partition=number, record_batch=batch)
                for number, batch in enumerate(batches)
            ],
        )
        return [result.error_code for result in (await self.producing.produce(request)).results]

    def numbers(self, instrument: Instrument) -> dict[Labels, float]:
        """Counters or gauges as they are now."""
        (reading,) = [one for one in self.metrics.read() if one.instrument is instrument]
        return dict(reading.numbers)

    def count(self, instrument: Instrument) -> int:
        """Values in a histogram."""
        (reading,) = [one for one in self.metrics.read() if one.instrument is instrument]
        return sum(sum(one.counts) for _, one in reading.histograms)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with LeadingReplicas(tmp_path) as leading:
        for number in (0, 1):
            leading.lead(number, isr=(LEADER,))
        yield Broker(leading)


async def test_what_is_appended_is_counted_once_and_what_is_refused_is_not(broker: Broker) -> None:
    first, second = batch_of(b"a", b"b", b"c"), batch_of(b"d")
    assert await broker.produce(first, second) == [errors_pb2.ERROR_CODE_NONE] * 2
    assert broker.numbers(instruments.RECORDS_IN) == {(): 4}
    assert broker.numbers(instruments.BYTES_IN) == {(): len(first) + len(second)}
    broken = bytearray(first)
    broken[-1] ^= 1
    assert await broker.produce(bytes(broken), second, second) == [
        errors_pb2.ERROR_CODE_CORRUPT_MESSAGE,
        errors_pb2.ERROR_CODE_NONE,
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert broker.numbers(instruments.RECORDS_IN) == {(): 5}
    assert broker.numbers(instruments.BATCHES_REFUSED) == {(): 2}
    assert broker.numbers(instruments.PRODUCE_ERRORS) == {("CORRUPT_MESSAGE",): 1, ("UNKNOWN_TOPIC_OR_PARTITION",): 1}
    assert broker.numbers(topics.TOPIC_RECORDS_IN) == {(OTHER,): 0, ("t",): 5}
    assert broker.numbers(topics.TOPIC_BYTES_IN)["t",] == broker.numbers(instruments.BYTES_IN)[()]
    assert broker.count(instruments.PRODUCE_DURATION) == 2


async def test_what_consumers_get_is_counted_in_either_form(broker: Broker) -> None:
    batch = batch_of(b"a", b"b", b"c")
    await broker.produce(batch)
    for form, records in ((RecordForm.BATCHES, 3), (RecordForm.RECORDS, 6)):
        asked = FetchPartition("t", 0, content=MessageContent(log_pb2.FetchResult()))
        answer = await broker.fetching.fetch(FetchRequest(partitions=[asked], form=form))
        assert answer.results[0].error_code == errors_pb2.ERROR_CODE_NONE
        assert broker.numbers(instruments.RECORDS_OUT) == {(): records}
    assert broker.numbers(instruments.BYTES_OUT)[()] > len(batch)
    assert broker.count(instruments.FETCH_DURATION) == 2
    assert broker.numbers(topics.TOPIC_RECORDS_OUT) == {(OTHER,): 0, ("t",): 6}
    assert broker.numbers(topics.TOPIC_BYTES_OUT)["t",] == broker.numbers(instruments.BYTES_OUT)[()]
    nowhere = FetchPartition(topic="elsewhere", partition=0, offset=0)
    beyond = FetchPartition(topic="t", partition=0, offset=99)
    await broker.fetching.fetch(FetchRequest(partitions=[nowhere, beyond]))
    assert broker.numbers(instruments.FETCH_ERRORS) == {
        ("UNKNOWN_TOPIC_OR_PARTITION",): 1,
        ("OFFSET_OUT_OF_RANGE",): 1,
    }


async def test_a_consumer_that_is_streamed_to_counts_as_one_that_asks(broker: Broker) -> None:
    batch = batch_of(b"a", b"b")
    await broker.produce(batch)
    stream = broker.fetching.consume(FetchPartition("t", 0), form=RecordForm.BATCHES, make_content=StoredBatches)
    await anext(stream)
    assert broker.numbers(topics.TOPIC_RECORDS_OUT)["t",] == broker.numbers(instruments.RECORDS_OUT)[()] == 2
    await stream.aclose()
    refused = broker.fetching.consume(
        FetchPartition("elsewhere", 0), form=RecordForm.BATCHES, make_content=StoredBatches
    )
    assert len([answer async for answer in refused]) == 1
    assert broker.numbers(instruments.FETCH_ERRORS) == {("UNKNOWN_TOPIC_OR_PARTITION",): 1}


async def test_what_logs_take_is_added_up_once_for_all_that_ask(broker: Broker) -> None:
    batch = batch_of(b"a", b"b", b"c")
    await broker.produce(batch, batch)
    broker.metrics.read()
    assert broker.numbers(instruments.LOG_SIZE) == {(): 2 * len(batch)}
    assert broker.numbers(instruments.LOG_SEGMENTS) == {(): 2}
    assert broker.numbers(topics.TOPIC_LOG_SIZE) == {(OTHER,): 0, ("t",): 2 * len(batch)}
    assert broker.sizing.walks == 1


async def test_a_replica_that_a_reassignment_brings_in_is_not_missing(broker: Broker) -> None:
    """Moves take hours, and whoever is alerted for them does not look any more."""
    broker.leading.lead(0, epoch=1, isr=(LEADER,), adding=(FOLLOWER,))
    assert broker.numbers(instruments.UNDER_REPLICATED) == {(): 1}, "partition 1 alone"
    broker.leading.lead(1, epoch=1, isr=(LEADER,), adding=(FOLLOWER,), min_insync=2)
    assert broker.numbers(instruments.UNDER_REPLICATED) == {(): 0}
    assert broker.numbers(instruments.UNDER_MIN_ISR) == {(): 1}


async def test_replicas_are_shown_by_role_and_incomplete_ones_by_what_they_lack(broker: Broker) -> None:
    replicas = broker.leading.replicas
    assert broker.numbers(instruments.REPLICAS) == {("leader",): 2, ("follower",): 0, ("idle",): 0}
    assert broker.numbers(instruments.UNDER_REPLICATED) == {(): 2}
    assert broker.numbers(instruments.UNDER_MIN_ISR) == {(): 0}
    broker.leading.lead(0, epoch=1, isr=(LEADER, FOLLOWER))
    broker.leading.lead(1, epoch=1, isr=(LEADER,), min_insync=2)
    assert broker.numbers(instruments.UNDER_REPLICATED) == {(): 1}
    assert broker.numbers(instruments.UNDER_MIN_ISR) == {(): 1}
    following = Following(leader=FOLLOWER, leader_epoch=LeaderEpoch(2))
    replicas.give(broker.leading.partition(0), following)
    replicas.give(broker.leading.partition(0), following)
    replicas.give(broker.leading.partition(1), None)
    assert broker.numbers(instruments.REPLICAS) == {("leader",): 0, ("follower",): 1, ("idle",): 1}
    replicas.remove(broker.leading.partition(0).key)
    assert broker.numbers(instruments.REPLICAS) == {("leader",): 0, ("follower",): 0, ("idle",): 1}


async def test_jobs_of_the_writer_are_timed_and_a_long_one_is_a_line_in_the_log(tmp_path: Path) -> None:
    clock, metrics = FakeClock(), Metrics()
    times = WriterTimes(clock, metrics)

    def quick() -> int:
        clock.skip(0.0625)
        return 7

    def slow() -> None:
        clock.skip(0.25)
        raise OSError("the disk is slow, and then it fails")

    with capture_logs() as logs:
        brought_s = times.now_s()
        assert times.timed(quick, brought_s)() == 7
        with pytest.raises(OSError, match="slow"):
            times.timed(slow, brought_s)()
    (said,) = logs
    assert (said["event"], said["log_level"], said["ran_ms"], said["waited_ms"]) == (
        "log writer held up",
        "warning",
        250,
        62,
    )
    assert said["job"].endswith("slow")
    readings = {reading.instrument: reading for reading in metrics.read()}
    assert readings[instruments.WRITER_RUN].histograms[0][1].total == pytest.approx(0.3125)
    assert readings[instruments.WRITER_WAIT].histograms[0][1].total == pytest.approx(0.0625)


async def test_the_writer_of_a_broker_is_timed(broker: Broker, tmp_path: Path) -> None:
    metrics = Metrics()
    async with LeadingReplicas(tmp_path / "other") as leading:
        storage = Storage(leading.storage.directory, metrics=metrics)
        storage.start()
        await asyncio.gather(*(storage.write(lambda: None) for _ in range(5)))
        assert (storage.jobs_pending, storage.bytes_pending) == (0, 0)
    (reading,) = [one for one in metrics.read() if one.instrument is instruments.WRITER_RUN]
    assert sum(reading.histograms[0][1].counts) == 5


def test_a_job_is_named_by_where_it_comes_from() -> None:
    assert name_of(partial(batch_of, b"x")) == "batch_of"
    assert name_of(lambda: None).endswith("<lambda>")


def test_records_of_batches_are_counted_by_their_heads() -> None:
    assert count_records(b"") == 0
    assert count_records(batch_of(b"a", b"b") + batch_of(b"c") + batch_of(*[b"d"] * 40)) == 43
