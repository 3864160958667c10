"""What a metadata process holds for its brokers besides the payload is bounded, whatever their number."""

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import pytest
from regnum_metadata.delivery import SMALL_BYTES, ByteBudget, Patience, deliver
from regnum_metadata.lane import SLOW_RETRY_INTERVAL_S_MAX, Receiver
from regnum_metadata.payload import PART_BYTES, Payload
from regnum_metadata.propagation import Propagation
from regnum_model.ids import MetadataId
from regnum_service.clock import SystemClock
from regnum_testing.metadata_values import ReceivingBroker, broker, change, topic
from regnum_testing.waiting import until

IN_FLIGHT = 4 * PART_BYTES
SLOW = 3
SIZES = (1, 50, 200)
TURNS = 20
"""So many that without a bound most brokers would have a message under way at once."""
FOR_EVER_S = 3_600.0
LARGE = [topic(f"t{number:04}", *[1] * 1_000) for number in range(25)]
"""Several messages."""


class Held:
    """Bytes of messages that streams have and brokers have not, as gRPC holds them."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    def add(self, count: int) -> None:
        self.now += count
        self.most = max(self.most, self.now)


class HeldUntilRead(ReceivingBroker):
    """A broker whose stream holds a message until it is read, which takes some turns of the loop."""

    def __init__(self, epoch: int, held: Held) -> None:
        super().__init__(epoch)
        self.held = held

    async def send(self, part: bytes) -> None:
        self.held.add(len(part))
        try:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            await super().send(part)
        finally:
            self.held.add(-len(part))


class QuickClock(SystemClock):
    """Notes how long was slept; no sleep takes long."""

    def __init__(self) -> None:
        self.slept_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        await asyncio.sleep(0)


class World:
    """A metadata process with a small budget, and 200 brokers."""

    def __init__(self) -> None:
        self.held = Held()
        self.brokers = {id: HeldUntilRead(id, self.held) for id in range(1, 201)}
        self.budget = ByteBudget(IN_FLIGHT, slow=SLOW)
        self.tasks: list[asyncio.Task[None]] = []

    async def process(self, patience: Patience, clock: SystemClock | None = None) -> Propagation:
        process = Propagation(
            id=MetadataId(1),
            open_stream=self._open,
            clock=clock or SystemClock(),
            spawn=self._spawn,
            believes=self._anybody,
            shows=self._anybody,
            budget=self.budget,
            patience=patience,
        )
        await process.processes_are(frozenset({MetadataId(1)}))
        return process

    def have(self, version: int, ids: Sequence[int]) -> bool:
        return all(self.brokers[id].version == version for id in ids)

    async def _anybody(self, _epoch: int) -> bool:
        return True

    def _open(self, receiver: Receiver) -> ReceivingBroker:
        return self.brokers[receiver.internal.port - 20_000]

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for task in made.tasks:
        task.cancel()
    for result in await asyncio.gather(*made.tasks, return_exceptions=True):
        assert isinstance(result, asyncio.CancelledError), result


def payloads_alive() -> int:
    """Of this interpreter."""
    return sum(isinstance(one, Payload) for one in gc.get_objects())


@pytest.mark.parametrize("brokers", SIZES)
async def test_however_many_brokers_are_sent_everything_the_same_bytes_are_under_way(
    world: World, brokers: int
) -> None:
    process = await world.process(Patience(lend_s=FOR_EVER_S, write_s=FOR_EVER_S, answer_s=FOR_EVER_S))
    ids = range(1, brokers + 1)
    await process.take(change(0, 1, *LARGE, brokers=[broker(id) for id in ids]))
    await until(lambda: world.have(1, ids))
    assert process.payload_serialisations == 1
    # Small ones need no bytes of the budget: the question, and what is left of the picture, of each broker.
    assert world.held.most <= IN_FLIGHT + brokers * SMALL_BYTES
    assert max(len(part) for part in world.brokers[1].taken[0]) > SMALL_BYTES
    assert world.held.now == 0


@pytest.mark.parametrize("brokers", [1, 20, 80])
async def test_brokers_that_never_read_hold_a_bounded_number_of_bytes_whatever_their_number(
    world: World, brokers: int
) -> None:
    process = await world.process(Patience(lend_s=0.001, write_s=FOR_EVER_S, answer_s=FOR_EVER_S))
    ids = range(1, brokers + 1)
    for id in ids:
        world.brokers[id].stuck = True
    await process.take(change(0, 1, *LARGE, brokers=[broker(id) for id in ids]))
    # Every one of them is tried, and all that may be slow are; the rest are given up.
    await until(lambda: world.budget.slow == min(SLOW, max(brokers - 4, 0)))
    if brokers > SLOW + 4:
        await until(lambda: world.budget.given_up >= brokers)
    assert world.held.most <= IN_FLIGHT + SLOW * PART_BYTES + brokers * SMALL_BYTES
    for id in ids:
        world.brokers[id].recover()
    await until(lambda: world.have(1, ids))
    assert (world.budget.slow, world.budget.lent, world.held.now) == (0, 0, 0)


@pytest.mark.full
async def test_seventy_that_answer_questions_and_read_nothing_large_hold_up_no_large_change(world: World) -> None:
    """As behind a link that lets small packets through; each try costs the others bytes, so the tries get rarer."""
    clock = SystemClock()
    process = await world.process(Patience(lend_s=0.05, write_s=FOR_EVER_S, answer_s=FOR_EVER_S), clock)
    silent, healthy = range(1, 71), range(71, 201)
    for id in silent:
        world.brokers[id].stuck = True
    await process.take(change(0, 1, *LARGE, brokers=[broker(id) for id in range(1, 201)]))
    await until(lambda: world.have(1, healthy))
    for version in range(2, 6):
        names = [topic(f"t{number:04}", *[version] * 1_000) for number in range(3)]
        await process.take(change(version - 1, version, *names, newest=200))
        await until(lambda wanted=version: world.have(wanted, healthy))
    assert world.have(0, silent)
    assert world.budget.slow == SLOW
    # One for each of them and for each version, as without the silent ones.
    assert process.payload_serialisations <= 2 * 5


async def test_the_tries_of_a_broker_that_only_answers_questions_get_rarer(world: World) -> None:
    clock = QuickClock()
    process = await world.process(Patience(lend_s=0.001, write_s=FOR_EVER_S, answer_s=FOR_EVER_S), clock)
    ids = range(1, 10)
    for id in ids:
        world.brokers[id].stuck = True
    await process.take(change(0, 1, *LARGE, brokers=[broker(id) for id in ids]))
    await until(lambda: SLOW_RETRY_INTERVAL_S_MAX in clock.slept_s)
    first = [clock.slept_s.index(pause_s) for pause_s in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, SLOW_RETRY_INTERVAL_S_MAX)]
    assert first == sorted(first)
    # Who had to wait long and is read at last is quick again.
    for id in ids:
        world.brokers[id].recover()
    await until(lambda: world.have(1, ids))
    clock.slept_s.clear()
    world.brokers[1].down = True
    await process.take(change(1, 2, topic("t0000", 7), newest=9))
    await until(lambda: clock.slept_s)
    assert clock.slept_s[0] == 0.1


async def test_payloads_of_the_past_are_gone_whoever_has_not_answered_them(world: World) -> None:
    """Each broker falls silent when it has been sent another one."""
    gc.collect()
    before = payloads_alive()
    process = await world.process(Patience(lend_s=FOR_EVER_S, write_s=FOR_EVER_S, answer_s=FOR_EVER_S))
    ids = range(1, 13)
    await process.take(change(0, 1, *LARGE, brokers=[broker(id) for id in ids]))
    await until(lambda: world.have(1, ids))
    for id in ids[:-1]:
        world.brokers[id].silent = True
        sent = world.brokers[id].sent_bytes
        await process.take(change(id, id + 1, topic("t0000", *[id] * 1_000), newest=12))
        await until(lambda id=id, sent=sent: world.brokers[id].sent_bytes > sent)
        await until(lambda id=id: world.have(id + 1, ids[id:]))
    assert process.payload_serialisations == 1 + 11
    # The full picture, and the last change.
    assert payloads_alive() - before <= 2


async def test_whoever_owes_an_answer_holds_none_of_the_bytes_that_it_was_sent() -> None:
    """A payload that later ones have replaced is gone, however many brokers have not answered it."""
    parts = tuple(bytes(PART_BYTES) for _ in range(3))
    before = sys.getrefcount(parts[0]), sys.getrefcount(parts)
    brokers = [ReceivingBroker() for _ in range(20)]
    for one in brokers:
        one.silent = True
    patience = Patience(lend_s=FOR_EVER_S, write_s=FOR_EVER_S, answer_s=FOR_EVER_S)
    budget = ByteBudget()
    tasks = [asyncio.ensure_future(deliver(one, iter(parts), budget, patience)) for one in brokers]
    await until(lambda: all(one.sent_bytes == 3 * PART_BYTES for one in brokers))
    for one in brokers:
        # What the broker itself has is not counted.
        one.forget()
    assert (sys.getrefcount(parts[0]), sys.getrefcount(parts)) == before
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
