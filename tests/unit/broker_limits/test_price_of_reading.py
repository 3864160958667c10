"""A reader pays for what is unpacked for it before it is unpacked; nobody's reads keep others from theirs."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.servicers.log_messages import StepContent, consume_response, fetch_request, fill_fetched
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.reader import GRANTED_BYTES_MIN
from regnum_broker.serving.fetching.reading import Read, read_logs
from regnum_broker.serving.fetching.requests import FetchPartition, FetchRequest, FetchResult, StoredBatches
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_model.principals import NOBODY, Principal
from regnum_model.shares import Shares
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Holding, Purpose
from regnum_service.limits.turns_of_callers import TurnsOfCallers
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import LEADER, LeadingReplicas
from regnum_testing.waiting import DEADLINE_S, eventually, within

MIB = 1024 * 1024
RECORDS, BATCHES = log_pb2.RECORD_FORM_RECORDS, log_pb2.RECORD_FORM_BATCHES


class Reading:
    """Partitions that are led here, and readers with a bound on what is held for them."""

    def __init__(self, leading: LeadingReplicas, held_max: int = 256 * MIB, clock: Clock | None = None) -> None:
        leaders = CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners))
        self.leading = leading
        self.held = HeldBytes(Shares(total_max=held_max, connection_max=held_max))
        self.fetching = FetchHandler(replicas=leading.replicas, leaders=leaders, storage=leading.storage, clock=clock)

    def holding(self, connection: str = "a") -> Holding:
        return Holding(self.held, connection, Purpose.FETCH)

    async def fetch(
        self, *offsets: int, form: log_pb2.RecordForm.ValueType = RECORDS, max_bytes: int = 0, by: Holding | None = None
    ) -> log_pb2.FetchResponse:
        items = [log_pb2.FetchPartition(topic="t", partition=n, offset=at) for n, at in enumerate(offsets)]
        request = log_pb2.FetchRequest(form=form, max_bytes=max_bytes, partitions=items)
        message = log_pb2.FetchResponse()
        asked = await fetch_request(request, message)
        await fill_fetched(message, await within(self.fetching.fetch(asked, holding=by or self.holding())))
        return message


@pytest.fixture
async def reading(tmp_path: Path) -> AsyncIterator[Reading]:
    async with LeadingReplicas(tmp_path) as leading:
        for number in (0, 1):
            leading.lead(number, isr=(LEADER,))
        yield Reading(leading)


def bomb(values: int, size: int) -> bytes:
    """A few kilobytes that unpack to much."""
    batch = batch_of(*[bytes(size)] * values, codec="zstd")
    assert len(batch) < values * size // 100
    return batch


class SteppingClock(FakeClock):
    """Each look at it takes 10 ms, and is counted."""

    looks = 0

    def monotonic(self) -> float:
        self.looks += 1
        return super().monotonic() + self.looks * 0.01


async def append(reading: Reading, partition: int, batch: bytes) -> None:
    log = reading.leading.partition(partition).log
    await reading.leading.storage.write(lambda: log.append_as_leader([batch], leader_epoch=0))  # type: ignore[arg-type]
    reading.leading.partition(partition).high_watermark = log.log_end_offset


async def test_what_is_unpacked_is_reserved_before_and_no_more_than_there_is(tmp_path: Path) -> None:
    """Twelve readers that take nothing, of a batch of a kilobyte that unpacks to thousands of times as much."""
    size = 8 * MIB
    async with LeadingReplicas(tmp_path) as leading:
        leading.lead(0, isr=(LEADER,))
        reading = Reading(leading, held_max=64 * MIB)
        await append(reading, 0, bomb(1, size))
        holdings = [reading.holding(f"connection {number}") for number in range(12)]
        answers = await asyncio.gather(
            *(reading.fetch(0, max_bytes=MIB, by=holding) for holding in holdings), return_exceptions=True
        )
        assert reading.held.total_peak <= reading.held.total_max // 2
        held = [holding.size for holding in holdings if holding.size]
        assert 1 <= len(held) <= 4
        assert min(held) >= size
        refused = [answer for answer in answers if isinstance(answer, RegnumError)]
        assert {error.code for error in refused} == {errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED}
        assert len(refused) + len(held) == 12
        for holding in holdings:
            holding.close()
        (result,) = (await reading.fetch(0)).results
        assert len(result.records[0].value) == size, "and when they are gone, it is read"


async def test_who_waits_for_much_rests_between_two_reads_of_all_that_there_is(tmp_path: Path) -> None:
    """A read takes 10 ms by its clock: the next begins 40 ms later, however often something is committed."""
    async with LeadingReplicas(tmp_path) as leading:
        leading.lead(0, isr=(LEADER,))
        clock = SteppingClock()
        reading = Reading(leading, clock=clock)
        items = [FetchPartition("t", 0)]
        request = FetchRequest(max_wait_ms=60_000, min_bytes=20_000, partitions=items)
        began_s = time.monotonic()
        waiting = asyncio.create_task(reading.fetching.fetch(request, holding=reading.holding()))
        while not waiting.done():
            await append(reading, 0, batch_of(bytes(100)))
            leading.partition(0).committed.fire()
        took_s = time.monotonic() - began_s
        (result,) = (await within(waiting)).results
        assert isinstance(result.content, StoredBatches)
        assert len(result.content.batches) >= 20_000
        # Of some 120 commits, which take a millisecond each on an idle machine.
        assert clock.looks // 2 <= took_s / 0.04 + 2


async def test_a_stream_waits_for_memory_and_is_served(reading: Reading) -> None:
    await append(reading, 0, bomb(1, 10 * MIB))
    other = reading.holding("other")
    other.grant(120 * MIB, 120 * MIB)
    stream = reading.fetching.consume(
        FetchPartition("t", 0), form=RECORDS, make_content=StepContent, holding=reading.holding("stream")
    )
    first = asyncio.ensure_future(anext(stream))

    async def waits() -> bool:
        return reading.held.waiting == 1

    await eventually(waits)
    other.close()
    assert len(consume_response(await within(first)).result.records[0].value) == 10 * MIB
    await stream.aclose()


async def test_a_call_pays_for_what_it_unpacks_and_not_for_what_it_answers(reading: Reading) -> None:
    """The last of many records, of each partition: an answer of some bytes for megabytes of work."""
    await append(reading, 0, bomb(4_000, 1_000))
    await append(reading, 1, bomb(4_000, 1_000))
    (first, second) = (await reading.fetch(3_999, 3_999, max_bytes=5 * MIB)).results
    assert ([record.offset for record in first.records], list(second.records)) == ([3_999], [])
    (first, second) = (await reading.fetch(3_999, 3_999, max_bytes=9 * MIB)).results
    assert [len(result.records) for result in (first, second)] == [1, 1]


async def test_a_record_that_is_too_large_is_told_though_it_took_the_memory_of_the_next_partition(
    reading: Reading,
) -> None:
    """As much as any batch needs is reserved by then: to ask for it again would be without an end."""
    await append(reading, 0, bomb(1, 40 * MIB))
    await append(reading, 1, bomb(1, 31 * MIB))
    (first, second) = (await reading.fetch(0, 0)).results
    assert (first.error_code, first.next_offset) == (errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, 1)
    assert (second.error_code, len(second.records)) == (errors_pb2.ERROR_CODE_NONE, 0)
    (_, second) = (await reading.fetch(first.next_offset, 0)).results
    assert len(second.records) == 1


async def test_a_large_batch_for_a_small_request_is_reserved_too(reading: Reading) -> None:
    size = 3 * MIB
    await append(reading, 0, batch_of(bytes(size)))
    holding = reading.holding()
    (result,) = (await reading.fetch(0, form=BATCHES, max_bytes=1, by=holding)).results
    assert len(result.record_batches) > size
    assert holding.size == holding.sent == len(result.record_batches)
    # And where there is not so much memory, it waits for its time.
    other = reading.holding("other")
    other.grant(reading.held.total_max // 2 - 4 * MIB, MIB)
    with pytest.raises(RegnumError) as refused:
        await reading.fetch(0, form=BATCHES, max_bytes=1, by=reading.holding("third"))
    assert refused.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    assert reading.held.total_peak <= reading.held.total_max // 2


async def test_many_small_records_count_with_what_they_take(reading: Reading) -> None:
    await append(reading, 0, batch_of(*[b""] * 5_000))
    holding = reading.holding()
    (result,) = (await reading.fetch(0, by=holding)).results
    assert len(result.records) == 5_000
    assert holding.sent == result.ByteSize()
    assert holding.size >= 5_000 * 48 > 2 * holding.sent


async def test_a_partition_is_asked_for_once_in_a_request(reading: Reading) -> None:
    items = [FetchPartition("t", 0) for _ in range(2)]
    with pytest.raises(RegnumError, match="twice") as refused:
        await reading.fetching.fetch(FetchRequest(items))
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_nothing_is_read_for_a_caller_that_has_left(reading: Reading) -> None:
    await append(reading, 0, batch_of(b"v"))
    log = reading.leading.partition(0).log
    results = [FetchResult("t", 0, StepContent()) for _ in range(3)]
    reads = [Read(log=log, offset=0, bytes_max=MIB, end_offset=1, result=result) for result in results]
    left = iter((False, False, True, True))
    read_logs(reads, form=RECORDS, total_max=MIB, memory_max=MIB, abandoned=lambda: next(left))
    assert [len(result.content) for result in results] == [1, 0, 0]


async def test_a_caller_that_hangs_up_leaves_its_thread_to_others(reading: Reading) -> None:
    """While a job waits for its thread its caller leaves: the job comes to its turn, and does nothing."""
    await append(reading, 0, bomb(1, MIB))
    taken, let = threading.Semaphore(0), threading.Event()
    storage = reading.leading.storage

    def hold() -> bool:
        taken.release()
        return let.wait(DEADLINE_S)

    holders = [asyncio.ensure_future(storage.read(hold)) for _ in range(2)]
    for _ in holders:
        assert await asyncio.to_thread(taken.acquire, timeout=DEADLINE_S)
    holding = reading.holding()
    call = asyncio.ensure_future(reading.fetch(0, by=holding))

    async def reserved() -> bool:
        return holding.size >= GRANTED_BYTES_MIN

    await eventually(reserved)
    call.cancel()
    await asyncio.wait([call])
    holding.close()
    assert await within(storage.read_for_brokers(lambda: "followers are read to meanwhile"))
    let.set()
    await asyncio.gather(*holders)
    assert len((await reading.fetch(0)).results[0].records) == 1


async def test_callers_take_turns_however_much_they_bring() -> None:
    turns, order, first = TurnsOfCallers(1), list[str](), asyncio.Event()

    async def one(caller: str) -> None:
        async with turns.turn(caller):
            order.append(caller)
            await first.wait()

    calls = [asyncio.ensure_future(one("many")) for _ in range(100)]
    await asyncio.sleep(0)
    calls.append(asyncio.ensure_future(one("few")))
    await asyncio.sleep(0)
    first.set()
    await within(asyncio.gather(*calls))
    assert order[:3] == ["many", "many", "few"]
    assert order.count("many") == 100
    async with turns.turn("afterwards"):
        assert turns.waiting == 0


async def test_a_caller_that_leaves_its_line_keeps_no_place() -> None:
    turns, held = TurnsOfCallers(1), asyncio.Event()

    async def one(caller: str) -> str:
        async with turns.turn(caller):
            await held.wait()
            return caller

    first, leaves, last = (asyncio.ensure_future(one(name)) for name in "abc")
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.wait([leaves])
    assert turns.waiting == 1
    held.set()
    assert await within(asyncio.gather(first, last)) == ["a", "c"]


def test_turns_are_principals_and_connections_of_those_who_say_nothing() -> None:
    """One principal on many connections is one caller."""

    def turn(name: str, connection: str) -> str:
        return Call(peer=connection, principal=Principal(name)).payer

    assert [turn("CN=app", connection) for connection in "ab"] == ["User:CN=app"] * 2
    assert [turn(NOBODY.name, connection) for connection in "ab"] == ["a", "b"]
