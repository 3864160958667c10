"""What an entity took and sent counts for the entity, whichever connection asks next."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.limits.client_quotas import ClientQuotas
from regnum_broker.limits.throttling import Throttling
from regnum_broker.retention.mover import StartMover
from regnum_broker.servicers.log import LogServicer
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.delete_records import DeleteRecordsHandler
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.offsets import OffsetsHandler
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.replica_descriptions import ReplicaDescriber
from regnum_model.bucket import Windows
from regnum_model.quotas import CONSUMER_BYTE_RATE, DEFAULT, PRODUCER_BYTE_RATE, QuotaEntity, QuotaTable
from regnum_model.shares import Shares
from regnum_records.header import iterate
from regnum_service.errors import RegnumError
from regnum_service.gates import Messages, Sized
from regnum_service.limits.budget import Budget
from regnum_service.limits.held_bytes import HeldBytes
from regnum_service.status import from_status
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import LEADER, LeadingReplicas
from regnum_testing.served import Caller
from regnum_testing.waiting import within

RATE = 1_000_000
SPAN_S = Windows().span_s
VALUE = bytes(100_000)
FETCH_BYTES = 2_000_000
BOUNDS = {QuotaEntity(client_id=DEFAULT): float(RATE)}
QUOTAS = QuotaTable(client_rates={CONSUMER_BYTE_RATE: BOUNDS, PRODUCER_BYTE_RATE: BOUNDS})


class Served:
    """LogService over a partition that this broker leads alone, under quotas of 1 MB/s for each client id."""

    def __init__(self, leading: LeadingReplicas) -> None:
        leaders = CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners))
        self.leading, self.clock, self.quotas = leading, FakeClock(), ClientQuotas()
        self.quotas.take_up(QUOTAS)
        self.connections = 0
        self.log = LogServicer(
            producing=ProduceHandler(
                replicas=leading.replicas,
                leaders=leaders,
                storage=leading.storage,
                clock=FakeClock(),
                batch_bytes_max=1 << 24,
                supervisor=Supervisor("broker"),
            ),
            fetching=FetchHandler(replicas=leading.replicas, leaders=leaders, storage=leading.storage),
            offsets=OffsetsHandler(replicas=leading.replicas, leaders=leaders, storage=leading.storage),
            describing=ReplicaDescriber(replicas=leading.replicas, storage=leading.storage),
            throttling=Throttling(self.quotas, clock=self.clock),
            budget=Budget(HeldBytes(Shares(total_max=1 << 40, connection_max=1 << 40)), FakeClock()),
            deleting=DeleteRecordsHandler(
                replicas=leading.replicas,
                leaders=leaders,
                mover=StartMover(storage=leading.storage, moved=lambda _: None, clock=FakeClock()),
            ),
        )

    def somebody_new(self) -> Caller:
        """A call on a connection of its own."""
        self.connections += 1
        return Caller(30.0, peer=f"ipv4:127.0.0.1:{self.connections}")

    async def fetch(self, client_id: str = "c", *, wait_ms: int = 0, min_bytes: int = 1) -> log_pb2.FetchResponse:
        item = log_pb2.FetchPartition(topic="t", partition=0)
        request = log_pb2.FetchRequest(
            max_bytes=FETCH_BYTES, partitions=[item], max_wait_ms=wait_ms, min_bytes=min_bytes
        )
        request.header.client_id = client_id
        return await self.log.Fetch(request, self.somebody_new())

    @property
    def end(self) -> int:
        return self.leading.partition(0).log.log_end_offset


def produced(size: int, client_id: str = "c") -> log_pb2.ProduceRequest:
    request = log_pb2.ProduceRequest(acks=log_pb2.ACKS_ALL)
    request.header.client_id = client_id
    request.partitions.add(topic="t", partition=0, record_batch=batch_of(bytes(size)))
    return request


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with LeadingReplicas(tmp_path) as leading:
        leading.lead(0, isr=(LEADER,))
        yield Served(leading)


async def fill(served: Served, batches: int = 30) -> None:
    for _ in range(batches):
        await served.leading.append(0, VALUE)


async def test_a_new_connection_for_each_fetch_reads_no_more_than_the_quota_allows(served: Served) -> None:
    await fill(served)
    read, told_ms, seconds = 0, 0, 40
    for _ in range(seconds * 10):
        answer = await served.fetch()
        read += len(answer.results[0].record_batches)
        told_ms += answer.throttle_time_ms
        served.clock.skip(0.1)
    assert told_ms > 0
    assert RATE * (seconds - SPAN_S) <= read <= RATE * (seconds + SPAN_S) + FETCH_BYTES


async def test_an_answer_under_a_debt_has_no_records_and_says_how_long_to_wait(served: Served) -> None:
    await fill(served)
    while not (await served.fetch()).throttle_time_ms:
        pass
    answer = await served.fetch(wait_ms=300_000, min_bytes=1_000)
    (result,) = answer.results
    assert (result.error_code, result.record_batches, result.high_watermark) == (0, b"", 30)
    assert answer.throttle_time_ms > 0
    assert (await served.fetch("somebody else")).results[0].record_batches
    # It is true: who waits for so long is served.
    served.clock.skip(answer.throttle_time_ms / 1000 + 0.001)
    assert (await served.fetch()).results[0].record_batches


async def test_a_hundred_connections_at_once_are_paid_for_by_whoever_comes_later(served: Served) -> None:
    await fill(served)
    answers = await asyncio.gather(*(served.fetch() for _ in range(100)))
    read = sum(len(answer.results[0].record_batches) for answer in answers)
    assert read > 20 * RATE, "else this tells nothing"
    # Kafka's windows have forgotten after eleven seconds; the debt has not.
    served.clock.skip(2 * SPAN_S)
    assert not (await served.fetch()).results[0].record_batches
    served.clock.skip(read / RATE)
    assert (await served.fetch()).results[0].record_batches


@pytest.mark.full
async def test_no_answer_is_larger_than_what_the_quota_allows_in_its_windows(served: Served) -> None:
    await fill(served)
    small = {QuotaEntity(client_id=DEFAULT): RATE / 100}
    served.quotas.take_up(QuotaTable(client_rates={CONSUMER_BYTE_RATE: small}))
    answer = await served.fetch(min_bytes=FETCH_BYTES, wait_ms=60_000)
    # The first batch of an answer is whole, and min_bytes is no more than what may come.
    assert [header.base_offset for _, header in iterate(answer.results[0].record_batches)] == [0]


async def test_streams_that_waited_for_records_together_read_within_one_quota(served: Served) -> None:
    """Idle streams have passed every check at their beginning; the check that counts is right before a read."""
    count = 40

    async def consume(streams: list[AsyncIterator[log_pb2.ConsumeResponse]]) -> list[int]:
        sizes: list[int] = []
        note = sizes.append

        async def one(stream: AsyncIterator[log_pb2.ConsumeResponse]) -> None:
            async for answer in stream:
                note(len(answer.result.record_batches))

        tasks = [asyncio.create_task(one(stream)) for stream in streams]
        for _ in range(10):
            await served.leading.append(0, VALUE, VALUE, VALUE, VALUE)
            # Ten turns: readers that are let through have read it; those that are held wait for the clock.
            for _ in range(10):
                await asyncio.sleep(0)
        await served.clock.advance(10.0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return sizes

    request = log_pb2.ConsumeRequest(topic="t", partition=0)
    request.header.client_id = "c"
    streams = [served.log.Consume(request, Caller(peer=f"ipv4:127.0.0.1:{number}")) for number in range(count)]
    sizes = await consume(streams)
    for stream in streams:
        with contextlib.suppress(StopAsyncIteration):
            await stream.aclose()
    # 40 streams x 4 MB were there to be read. Each may have read its first step at once with the others.
    assert 0 < sum(sizes) <= RATE * (10 + SPAN_S) + count * 1_100_000


async def test_who_sends_each_request_on_a_new_connection_gets_no_more_appended(served: Served) -> None:
    size, seconds = 500_000, 30
    refused: list[RegnumError] = []
    for _ in range(seconds * 10):
        before, known = served.end, len(refused)
        try:
            await within(served.log.Produce(produced(size), served.somebody_new()))
        except RegnumError as error:
            refused.append(error)
        assert served.end == before + (len(refused) == known), "what is refused is not appended"
        served.clock.skip(0.1)
    assert {error.code for error in refused} == {errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED}
    assert all(error.retry_after_ms for error in refused)
    assert RATE * (seconds - SPAN_S) <= served.end * size <= RATE * (seconds + SPAN_S) + 2 * size


async def test_a_request_that_crossed_the_line_is_appended_and_the_next_one_of_its_size_too(served: Served) -> None:
    size = 12 * RATE
    first = await within(served.log.Produce(produced(size), served.somebody_new()))
    assert first.throttle_time_ms > 0
    second = await within(served.log.Produce(produced(size), served.somebody_new()))
    assert second.throttle_time_ms > first.throttle_time_ms
    with pytest.raises(RegnumError) as refused:
        await within(served.log.Produce(produced(size), served.somebody_new()))
    assert refused.value.retry_after_ms is not None
    assert refused.value.retry_after_ms >= second.throttle_time_ms - 1
    assert served.end == 2
    assert (await within(served.log.Produce(produced(size, "other"), served.somebody_new()))).throttle_time_ms > 0


async def test_a_stream_on_a_new_connection_is_told_for_each_request_and_may_send_again(served: Served) -> None:
    size = 12 * RATE
    for _ in range(2):
        await within(served.log.Produce(produced(size), served.somebody_new()))

    async def requests() -> AsyncIterator[Sized]:
        for number in range(2):
            yield Sized(1_000, log_pb2.ProduceStreamRequest(correlation_id=number, request=produced(900)))
        served.clock.skip(60.0)
        yield Sized(1_000, log_pb2.ProduceStreamRequest(correlation_id=2, request=produced(900)))

    async def at_once() -> None:
        """No gate."""

    stream = served.log.ProduceStream(Messages(requests(), at_once), served.somebody_new())
    answers = {answer.correlation_id: answer async for answer in stream}
    for number in range(2):
        error = from_status(answers[number].error)
        assert error is not None
        assert error.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    assert answers[2].response.results[0].base_offset == 2
    assert served.end == 3


@given(
    st.lists(
        st.tuples(st.floats(min_value=0.0, max_value=30.0), st.integers(min_value=0, max_value=40 * RATE)),
        min_size=1,
        max_size=60,
    )
)
def test_who_takes_only_while_nothing_is_owed_stays_within_rate_windows_and_one_answer(
    asked: list[tuple[float, int]],
) -> None:
    quotas, now_s, began_s, taken, largest = ClientQuotas(), 0.0, 0.0, 0, 0
    quotas.take_up(QUOTAS)
    for pause_s, size in asked:
        now_s += pause_s
        if quotas.debt(CONSUMER_BYTE_RATE, "u", "c", now_s).wait_s == 0.0:
            quotas.wait_s(CONSUMER_BYTE_RATE, "u", "c", size, now_s)
            taken, largest = taken + size, max(largest, size)
            # Twice the windows: a rate is measured over ten of them at least, and what they forget is not owed.
            assert taken <= RATE * (now_s - began_s + 2 * SPAN_S) + largest


def test_a_debt_is_settled_anew_when_the_quota_changes() -> None:
    quotas = ClientQuotas()
    quotas.take_up(QUOTAS)
    quotas.wait_s(CONSUMER_BYTE_RATE, "u", "c", 100 * RATE, 0.0)
    assert quotas.debt(CONSUMER_BYTE_RATE, "u", "c", 50.0).wait_s > 0.0
    # The same quotas, announced again with another change: nobody is forgiven.
    quotas.take_up(QuotaTable(client_rates={CONSUMER_BYTE_RATE: dict(BOUNDS)}, change=2))
    assert quotas.debt(CONSUMER_BYTE_RATE, "u", "c", 50.0).wait_s > 0.0
    quotas.take_up(QuotaTable(client_rates={CONSUMER_BYTE_RATE: {QuotaEntity(client_id=DEFAULT): 200.0 * RATE}}))
    assert quotas.debt(CONSUMER_BYTE_RATE, "u", "c", 50.0).wait_s == 0.0
    quotas.take_up(QuotaTable())
    assert quotas.debt(CONSUMER_BYTE_RATE, "u", "c", 50.0).wait_s == 0.0
