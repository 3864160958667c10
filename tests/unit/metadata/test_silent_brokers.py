"""Nobody waits for somebody else: silent, frozen, slow and lying brokers among healthy ones."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_metadata.delivery import SMALL_BYTES, ByteBudget, Delivery, Patience, TooManySlowError, deliver
from regnum_metadata.lane import Receiver
from regnum_metadata.propagation import Propagation
from regnum_model.ids import MetadataId
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.metadata_values import ReceivingBroker, broker, change, topic
from regnum_testing.waiting import until

BROKERS = range(1, 201)
SILENT = range(1, 71)
HEALTHY = range(71, 201)
FOR_EVER = Patience(lend_s=3_600.0, write_s=3_600.0, answer_s=3_600.0)
LARGE = [topic(f"t{number:04}", *[1] * 50) for number in range(60)]
"""A picture too large to go out without asking."""

NONE = errors_pb2.ERROR_CODE_NONE
Response = control_pb2.UpdateMetadataResponse


async def anybody(_epoch: int) -> bool:
    return True


async def nowhere(_epoch: int) -> bool:
    return False


class World:
    """One metadata process and 200 brokers."""

    def __init__(self) -> None:
        self.brokers = {id: ReceivingBroker(epoch=id) for id in BROKERS}
        self.tasks: list[asyncio.Task[None]] = []
        self.budget = ByteBudget(5 * SMALL_BYTES)

    async def process(self, patience: Patience) -> Propagation:
        process = Propagation(
            id=MetadataId(1),
            open_stream=self._open,
            clock=SystemClock(),
            spawn=self._spawn,
            believes=anybody,
            shows=nowhere,
            budget=self.budget,
            patience=patience,
        )
        await process.processes_are(frozenset({MetadataId(1)}))
        return process

    def _open(self, receiver: Receiver) -> ReceivingBroker:
        return self.brokers[receiver.internal.port - 20_000]

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    def healthy_at(self, version: int) -> bool:
        return all(self.brokers[id].version == version for id in HEALTHY)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for task in made.tasks:
        task.cancel()
    for result in await asyncio.gather(*made.tasks, return_exceptions=True):
        assert isinstance(result, asyncio.CancelledError), result


ALL = [broker(id) for id in BROKERS]


async def test_seventy_silent_brokers_hold_up_none_of_the_others(world: World) -> None:
    """None of 130 had a change after 5 s: 64 places were held while answers were awaited. Here they are for ever."""
    process = await world.process(FOR_EVER)
    for id in SILENT:
        world.brokers[id].silent = True
    await process.take(change(0, 1, *LARGE, brokers=ALL))
    await until(lambda: world.healthy_at(1))
    for version in range(2, 12):
        await process.take(change(version - 1, version, topic("a", version), newest=200))
        await until(partial(world.healthy_at, version))
    # One for the full picture, and one for each change.
    assert process.payload_serialisations == 11
    # Who does not answer a few bytes is sent nothing large.
    assert all(world.brokers[id].sent_bytes < 1_000 for id in SILENT)


async def test_what_was_silent_gets_one_change_when_it_answers(world: World) -> None:
    process = await world.process(FOR_EVER)
    await process.take(change(0, 1, *LARGE, brokers=ALL))
    await until(lambda: all(one.version == 1 for one in world.brokers.values()))
    for id in SILENT:
        world.brokers[id].silent = True
        world.brokers[id].taken.clear()
    for version in range(2, 60):
        await process.take(change(version - 1, version, topic("a", version), newest=200))
        await until(partial(world.healthy_at, version))
    before = process.payload_serialisations
    for id in SILENT:
        world.brokers[id].recover()
    await until(lambda: all(one.version == 59 for one in world.brokers.values()))
    # What was under way when they fell silent, and all the rest at once.
    assert all(len(world.brokers[id].taken) == 2 for id in SILENT)
    assert process.payload_serialisations <= before + 1


async def test_brokers_that_stop_reading_in_the_middle_give_their_bytes_back(world: World) -> None:
    """More of them than the budget has room for; none of them is given up meanwhile."""
    process = await world.process(Patience(lend_s=0.05, write_s=3_600.0, answer_s=3_600.0))
    for id in SILENT:
        world.brokers[id].stuck = True
    await process.take(change(0, 1, *LARGE, brokers=ALL))
    await until(lambda: world.healthy_at(1))
    await process.take(change(1, 2, topic("a", 2), newest=200))
    await until(lambda: world.healthy_at(2))
    assert all(world.brokers[id].version == 0 for id in SILENT)
    for id in SILENT:
        world.brokers[id].recover()
    await until(lambda: all(one.version == 2 for one in world.brokers.values()))
    assert world.budget.lent == 0


async def test_a_broker_that_stops_reading_is_given_up_and_asked_before_it_gets_anything_large(world: World) -> None:
    process = await world.process(Patience(lend_s=0.02, write_s=0.1, answer_s=0.1))
    frozen = world.brokers[1]
    frozen.stuck = True
    await process.take(change(0, 1, *LARGE, brokers=ALL[:5]))
    await until(lambda: all(world.brokers[id].version == 1 for id in range(2, 6)))
    # Asked, told the beginning, given up, and asked again.
    await until(lambda: frozen.abandoned > 1)
    frozen.silent = True
    asked = frozen.abandoned
    await until(lambda: frozen.abandoned > asked + 1)
    assert frozen.sent_bytes < SMALL_BYTES
    frozen.recover()
    await until(lambda: frozen.version == 1)
    assert len(frozen.leaders) == 60


def once_more(times: int) -> Callable[[], bool]:
    """True when it was asked so often: as many milliseconds later."""
    asked = iter(range(times))
    return lambda: next(asked, None) is None


def lie(
    *,
    controller_epoch: int = 1,
    version: int = 0,
    version_epoch: int = 0,
    code: errors_pb2.ErrorCode.ValueType = NONE,
) -> Response:
    return Response(controller_epoch=controller_epoch, version=version, version_epoch=version_epoch, error_code=code)


@pytest.mark.parametrize(
    "said",
    [
        lie(version=2**31 - 1, version_epoch=1),
        lie(version=2**31 - 1, version_epoch=2**31 - 1),
        lie(version=5, version_epoch=7, controller_epoch=7),
        lie(version=-1, version_epoch=1),
        lie(version=-(2**63), version_epoch=-1),
        lie(),
        lie(code=errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH, controller_epoch=2),
        lie(code=errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH, controller_epoch=2**31 - 1),
        lie(code=errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH),
        lie(code=errors_pb2.ERROR_CODE_INVALID_REQUEST, version=3, version_epoch=1),
    ],
)
async def test_lying_brokers_mislead_and_stop_nobody(world: World, said: Response) -> None:
    process = await world.process(Patience())
    for id in SILENT:
        world.brokers[id].lies = lambda _head: said
    await process.take(change(0, 1, *LARGE, brokers=ALL))
    await until(lambda: world.healthy_at(1))
    for version in range(2, 20):
        await process.take(change(version - 1, version, topic("a", version), newest=200))
        await until(partial(world.healthy_at, version))
    assert (process.highest_epoch, process.head.number) == (1, 19)
    # Nor do they have everything sent to them with each change: the pauses grow, and news do not shorten them.
    whole = sum(map(len, world.brokers[200].taken[0]))
    assert max(world.brokers[id].sent_bytes for id in SILENT) < 10 * whole


async def test_bytes_are_lent_first_come_first_served_and_small_messages_need_none() -> None:
    budget = ByteBudget(100_000)
    order: list[str] = []
    gate = asyncio.Event()

    async def borrow(name: str, count: int) -> None:
        with budget.delivery() as delivery:
            async with delivery.lend(count, for_s=3_600.0):
                order.append(name)
                await gate.wait()

    tasks = [asyncio.ensure_future(borrow("first", 80_000))]
    await until(lambda: order == ["first"])
    tasks.extend(asyncio.ensure_future(borrow(name, 60_000)) for name in ("second", "third"))
    tasks.append(asyncio.ensure_future(borrow("small", SMALL_BYTES)))
    await until(lambda: order == ["first", "small"])
    assert budget.lent == 80_000
    tasks[1].cancel()
    gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (order, budget.lent) == (["first", "small", "third"], 0)
    # More than there is: all there is.
    with budget.delivery() as delivery:
        async with delivery.lend(500_000, for_s=3_600.0):
            assert budget.lent == 100_000
    assert budget.lent == 0


async def test_bytes_are_taken_away_only_when_others_wait_and_are_given_back_once() -> None:
    budget = ByteBudget(100_000)
    with budget.delivery() as slow:
        async with slow.lend(60_000, for_s=0.001):
            # Many times as long, and nobody wants them.
            await until(once_more(50))
            assert (budget.lent, slow.is_slow) == (60_000, False)
            with budget.delivery() as other:
                async with other.lend(100_000, for_s=3_600.0):
                    assert (budget.lent, budget.slow, slow.is_slow) == (100_000, 1, True)
        # What is slow needs none of them for its next messages, and leaves them to the others.
        async with slow.lend(60_000, for_s=0.001):
            assert budget.lent == 0
    assert (budget.lent, budget.slow, budget.given_up) == (0, 0, 0)


async def test_of_more_slow_ones_than_may_be_those_that_come_later_are_given_up() -> None:
    """Bytes held are bounded, whatever their number, and whoever was slow first comes to an end."""
    budget = ByteBudget(50_000, slow=3)
    gate = asyncio.Event()
    held: list[int] = []

    async def read_slowly(number: int) -> bool:
        try:
            with budget.delivery() as delivery:
                for _ in range(3):
                    async with delivery.lend(50_000, for_s=0.001):
                        held.append(number)
                        await gate.wait()
        except TooManySlowError:
            return False
        return True

    tasks = [asyncio.ensure_future(read_slowly(number)) for number in range(10)]
    # The last one keeps what it has: nobody waits for it.
    await until(lambda: len(held) == 10)
    await until(lambda: budget.given_up == 6)
    assert (budget.slow, budget.lent, sum(not task.done() for task in tasks)) == (3, 50_000, 4)
    gate.set()
    assert await asyncio.gather(*tasks) == [True] * 3 + [False] * 6 + [True]
    assert (budget.lent, budget.slow) == (0, 0)


async def test_nobody_is_slow_because_all_were_held_up_for_a_while() -> None:
    """As when the loop of this process, or the network, stood still for longer than a message may take."""
    budget = ByteBudget(100_000, slow=0)
    with budget.delivery() as first, budget.delivery() as second:
        async with first.lend(100_000, for_s=0.05):
            waiting = asyncio.ensure_future(enter(second, 100_000))
            await asyncio.sleep(0)
            assert budget.is_wanted()
            time.sleep(0.1)
            # Late by now, and overtaken by nobody: it is looked at in the first of these turns, and may go on.
            for _ in range(3):
                await asyncio.sleep(0)
        await waiting
    assert (budget.given_up, budget.read, budget.lent) == (0, 200_000, 0)


async def enter(delivery: Delivery, count: int) -> None:
    """Lend and send at once."""
    async with delivery.lend(count, for_s=3_600.0):
        pass


async def test_a_broker_that_neither_reads_nor_answers_is_given_up() -> None:
    one = ReceivingBroker()
    one.stuck = one.silent = True
    patience = Patience(lend_s=0.001, write_s=0.001, answer_s=0.001)
    for parts in ([b"x" * 2 * SMALL_BYTES], [b"x"]):
        with pytest.raises(RegnumError) as caught:
            await deliver(one, parts, ByteBudget(), patience)
        assert caught.value.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
