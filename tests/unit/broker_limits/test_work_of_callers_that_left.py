"""What a thread works with stays paid for until the thread has ended, whatever its caller does meanwhile."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.offsets import RESERVED_BYTES, OffsetLookup, OffsetsHandler
from regnum_broker.serving.fetching.reader import GRANTED_BYTES_MIN
from regnum_broker.serving.fetching.requests import FetchPartition, FetchRequest, OffsetQuery
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.storage import Storage
from regnum_model.principals import Principal
from regnum_model.shares import Shares
from regnum_records.read import Placed
from regnum_service.errors import RegnumError
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes, Holding, Purpose
from regnum_service.limits.turns_of_callers import TurnsOfCallers
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock, settle
from regnum_testing.leading_replicas import LEADER, LeadingReplicas
from regnum_testing.waiting import DEADLINE_S, eventually, within

MIB = 1024 * 1024


class Broker:
    """Two partitions that are led here, and a budget for who reads them."""

    def __init__(self, leading: LeadingReplicas) -> None:
        leaders = CurrentLeaders(leading.replicas, MetadataCache(Fence(), leading.replicas.learn_listeners))
        self.leading, self.storage = leading, leading.storage
        self.held = HeldBytes(Shares(total_max=256 * MIB, connection_max=256 * MIB))
        self.charged: list[Call] = []
        self.budget = Budget(self.held, FakeClock(), charge=lambda call, _seconds: self.charged.append(call))
        self.fetching = FetchHandler(replicas=leading.replicas, leaders=leaders, storage=leading.storage)
        self.offsets = OffsetsHandler(replicas=leading.replicas, leaders=leaders, storage=leading.storage)

    def holding(self, purpose: Purpose, peer: str = "a") -> Holding:
        return self.budget.holding(self.budget.call(peer=peer), purpose)

    async def append(self, partition: int, batch: bytes) -> None:
        log = self.leading.partition(partition).log
        await self.storage.write(lambda: log.append_as_leader([batch], leader_epoch=0))  # type: ignore[arg-type]
        self.leading.partition(partition).high_watermark = log.log_end_offset

    def lookup(self, partition: int, timestamp_ms: int) -> OffsetLookup:
        query = OffsetQuery(topic="t", partition=partition, timestamp_ms=timestamp_ms)
        found = self.offsets.list_offsets(query)
        assert isinstance(found, OffsetLookup)
        return found


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with LeadingReplicas(tmp_path) as leading:
        for number in (0, 1):
            leading.lead(number, isr=(LEADER,))
        yield Broker(leading)


@asynccontextmanager
async def busy_readers(storage: Storage) -> AsyncIterator[threading.Event]:
    """All threads that read for clients work, until the event is set."""
    taken, let = threading.Semaphore(0), threading.Event()

    def hold() -> bool:
        taken.release()
        return let.wait(DEADLINE_S)

    holders = [asyncio.ensure_future(storage.read(hold)) for _ in range(2)]
    for _ in holders:
        assert await asyncio.to_thread(taken.acquire, timeout=DEADLINE_S)
    try:
        yield let
    finally:
        let.set()
        await asyncio.gather(*holders)


async def test_a_cancelled_fetch_keeps_its_turn_and_its_memory_until_its_thread_has_ended(broker: Broker) -> None:
    await broker.append(0, batch_of(b"v"))
    holding = broker.holding(Purpose.FETCH)
    items = [FetchPartition(topic="t", partition=0, offset=0)]

    async def reserved() -> bool:
        return holding.size >= GRANTED_BYTES_MIN

    async def all_free() -> bool:
        return broker.storage.turns.free == 2 and broker.held.total == 0

    async with busy_readers(broker.storage) as let:
        call = asyncio.ensure_future(broker.fetching.fetch(FetchRequest(partitions=items), holding=holding))
        await eventually(reserved)
        call.cancel()
        await asyncio.wait([call])
        holding.close()
        await settle()
        assert (broker.storage.turns.free, broker.held.total) == (1, holding.size)
        assert holding.size >= GRANTED_BYTES_MIN
        assert holding.call.is_gone
        let.set()
        await eventually(all_free)
    assert broker.charged == [holding.call], "and its time is its caller's"


async def test_a_cancelled_query_by_time_does_the_same_and_unpacks_nothing_more(broker: Broker) -> None:
    await broker.append(0, batch_of(b"v", codec="zstd"))
    holding = broker.holding(Purpose.UNPACKED)
    lookups = [broker.lookup(0, at_ms) for at_ms in range(8)]

    async def reserved() -> bool:
        return holding.size == RESERVED_BYTES

    async def all_free() -> bool:
        return broker.storage.turns.free == 2 and broker.budget.unpacked.total == 0

    async with busy_readers(broker.storage) as let:
        call = asyncio.ensure_future(broker.offsets.look_up(lookups, holding))
        await eventually(reserved)
        call.cancel()
        await asyncio.wait([call])
        holding.close()
        assert (broker.storage.turns.free, broker.budget.unpacked.held_for(Purpose.UNPACKED)) == (1, RESERVED_BYTES)
        let.set()
        await eventually(all_free)
    assert all(lookup.result.offset == -1 for lookup in lookups)


async def test_a_search_by_time_looks_between_batches_whether_its_caller_is_there(broker: Broker) -> None:
    for _ in range(3):
        await broker.append(0, batch_of(b"v"))
    log = broker.leading.partition(0).log
    asked = iter((False, True))
    looked: list[bool] = []

    def is_gone() -> bool:
        looked.append(next(asked))
        return looked[-1]

    assert log.record_at_or_after(0, is_gone=is_gone) is not None
    assert log.record_at_or_after(0, is_gone=lambda: True) == Placed(0, None), "and decodes none for one that is not"


async def test_queries_by_time_reserve_what_they_unpack(broker: Broker) -> None:
    """A kilobyte that unpacks to eight mebibytes, between two that do not."""
    large = batch_of(bytes(8 * MIB), codec="zstd")
    await broker.append(0, batch_of(b"v"))
    await broker.append(1, large)
    lookups = [broker.lookup(0, 1), broker.lookup(1, 1), broker.lookup(0, 2)]
    holding = broker.holding(Purpose.UNPACKED)
    await broker.offsets.look_up(lookups, holding)
    assert [lookup.result.offset for lookup in lookups] == [0, 0, 0]
    assert 8 * MIB <= broker.budget.unpacked.total_peak <= 32 * MIB
    assert broker.budget.unpacked.total == 0


async def test_a_query_by_time_is_refused_where_there_is_no_memory_for_its_batch(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path) as leading:
        leading.lead(0, isr=(LEADER,))
        broker = Broker(leading)
        await broker.append(0, batch_of(bytes(8 * MIB), codec="zstd"))
        unpacked = broker.budget.unpacked
        others = unpacked.part_of(Purpose.UNPACKED)
        broker.holding(Purpose.UNPACKED, "other").grant(others, others)
        holding = broker.holding(Purpose.UNPACKED)
        with pytest.raises(RegnumError) as refused:
            await broker.offsets.look_up([broker.lookup(0, 1)], holding)
        assert refused.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
        holding.close()
        assert unpacked.total == others


class Ticking(FakeClock):
    """Time passes with each look at it."""

    def monotonic(self) -> float:
        self.looked = getattr(self, "looked", 0.0) + 1.0
        return self.looked


async def test_time_of_a_thread_is_charged_also_to_a_caller_that_left() -> None:
    charged: list[tuple[str, float]] = []
    held = HeldBytes(Shares(total_max=100, connection_max=100))
    budget = Budget(held, FakeClock(), charge=lambda call, seconds: charged.append((call.client_id, seconds)))
    turns = TurnsOfCallers(1, Ticking())
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def submit(job: object) -> asyncio.Future[None]:
        assert callable(job)
        job()
        return ended

    call = budget.call(peer="a", principal=Principal("CN=app"), client_id="app")

    async def work() -> None:
        async with turns.turn(call.payer) as turn:
            await turn.run(submit, lambda: None, call=call)

    task = asyncio.create_task(work())
    await settle()
    task.cancel()
    await asyncio.wait([task])
    assert (charged, turns.free, call.is_gone) == ([], 0, True)
    ended.set_result(None)
    await settle()
    assert (charged, turns.free) == ([("app", 1.0)], 1)


def take_all(held: HeldBytes, purpose: Purpose, principal: str) -> int:
    """One principal on as many connections as it likes; returns how much it got."""
    count = 0
    while count < 1_000 and held.take(f"{principal} {count}", 1, purpose, principal=principal):
        count += 1
    return count


def test_a_principal_leaves_room_for_others_however_many_connections_it_has() -> None:
    held = HeldBytes(Shares(total_max=1_000, connection_max=1_000))
    first = take_all(held, Purpose.PRODUCE, "User:first")
    assert first == 562, "three quarters of three quarters"
    second = take_all(held, Purpose.PRODUCE, "User:second")
    assert 100 < second < 188
    assert take_all(held, Purpose.PRODUCE, "User:third") > 25
    held.let_go("User:first 0", 1, Purpose.PRODUCE, principal="User:first")
    assert held.of_principal("User:first", Purpose.PRODUCE) == first - 1
    # A single thing that is larger than its share gets in where it holds nothing else.
    assert held.take("x", 200, Purpose.FETCH, principal="User:fourth")


async def test_nothing_is_remembered_of_a_principal_that_holds_nothing() -> None:
    held = HeldBytes(Shares(total_max=100, connection_max=100))
    call = Call(peer="a", principal=Principal("CN=app"))
    holding = Holding.of(call, held, Purpose.FETCH)
    assert holding.grant(40, 10) == 40
    assert held.of_principal(call.entity, Purpose.FETCH) == 40
    waiting = asyncio.create_task(held.wait_for("b", 30, Purpose.FETCH, principal=call.entity))
    await settle()
    assert held.waiting == 1, "by another connection"
    holding.close()
    await within(waiting)
    held.let_go("b", 30, Purpose.FETCH, principal=call.entity)
    assert (held.total, held.of_principal(call.entity, Purpose.FETCH)) == (0, 0)
