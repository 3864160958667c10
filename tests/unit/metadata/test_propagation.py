"""From the controller's change to every broker: one serialisation, acknowledged by each (safety rules S17, S18)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from regnum.types.v1 import errors_pb2
from regnum_metadata.propagation import Propagation
from regnum_model.ids import ControllerEpoch, MetadataId
from regnum_model.nodes import Address
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.metadata_values import ReceivingBroker, broker, change, topic

ONE, TWO = MetadataId(1), MetadataId(2)
EPOCH = ControllerEpoch(1)
WAIT_S = 10.0


async def anybody(epoch: int) -> bool:
    return True


class World:
    """Metadata processes and brokers of one cluster, without any wire."""

    def __init__(self) -> None:
        self.brokers: dict[int, ReceivingBroker] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def process(self, id: MetadataId = ONE) -> Propagation:
        propagation = Propagation(
            id=id, open_stream=self._open, clock=SystemClock(), spawn=self._spawn, believes=anybody
        )
        propagation.processes_are(frozenset({id}))
        return propagation

    def add(self, *ids: int) -> None:
        for id in ids:
            self.brokers[id] = ReceivingBroker(epoch=id)

    def _open(self, address: Address) -> ReceivingBroker:
        return self.brokers[address.port - 20_000]

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    def all_at(self, version: int) -> bool:
        return all(one.version == version for one in self.brokers.values())


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for task in made.tasks:
        task.cancel()
    for result in await asyncio.gather(*made.tasks, return_exceptions=True):
        assert isinstance(result, asyncio.CancelledError), result


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def refused_with(code: errors_pb2.ErrorCode.ValueType) -> AsyncIterator[None]:
    with pytest.raises(RegnumError) as refused:
        yield
    assert refused.value.code == code


def live(*ids: int) -> list[Any]:
    return [broker(id) for id in ids]


@pytest.mark.parametrize("count", [3, 9])
async def test_one_serialisation_for_a_change_whatever_the_number_of_brokers(world: World, count: int) -> None:
    ids = range(1, count + 1)
    world.add(*ids)
    process = world.process()
    await process.take(change(0, 1, topic("a", 1), brokers=live(*ids)))
    await until(lambda: world.all_at(1))
    assert process.payload_serialisations == 1
    for version in range(2, 6):
        await process.take(change(version - 1, version, topic("a", version), brokers=live(*ids)))
    await until(lambda: world.all_at(5))
    assert process.payload_serialisations == 5
    assert all(one.leaders == {"a": {0: 5}} for one in world.brokers.values())
    # The very same object went to all of them: memory does not grow with brokers.
    assert len({id(parts) for one in world.brokers.values() for parts in one.taken}) == 5


async def test_brokers_that_missed_too_much_share_one_full_picture(world: World) -> None:
    world.add(*range(1, 10))
    process = world.process()
    await process.take(change(0, 1, topic("a", 1), brokers=live(*range(1, 10))))
    await until(lambda: world.all_at(1))
    for one in world.brokers.values():
        one.down = True
    for version in range(2, 700):
        await process.take(change(version - 1, version, topic("a", version), brokers=live(*range(1, 10))))
    before = process.payload_serialisations
    for one in world.brokers.values():
        one.down = False
    await until(lambda: world.all_at(699))
    assert process.payload_serialisations == before + 1


async def test_two_processes_share_the_brokers_and_one_takes_over(world: World) -> None:
    world.add(*range(1, 10))
    first, second = world.process(ONE), world.process(TWO)
    for process in (first, second):
        process.processes_are(frozenset({ONE, TWO}))
        await process.take(change(0, 1, topic("a", 1), brokers=live(*range(1, 10))))
    await until(lambda: world.all_at(1))
    shares = [{lane.receiver.id for lane in process.lanes} for process in (first, second)]
    assert shares[0] | shares[1] == set(range(1, 10))
    assert not shares[0] & shares[1]
    for one in world.brokers.values():
        one.taken.clear()
    second.processes_are(frozenset({TWO}))
    await second.take(change(1, 2, topic("a", 2), brokers=live(*range(1, 10))))
    await until(lambda: world.all_at(2))
    # Asked first, nobody was sent the full picture again.
    assert all(len(one.taken) == 1 for one in world.brokers.values())
    assert second.payload_serialisations == 2
    first.processes_are(frozenset({TWO}))
    assert first.lanes == ()


async def test_a_process_that_takes_over_goes_on_from_the_brokers_version(world: World) -> None:
    world.add(1)
    first, second = world.process(ONE), world.process(TWO)
    first.processes_are(frozenset({ONE}))
    second.processes_are(frozenset({ONE}))
    await second.take(change(0, 1, topic("a", 1), brokers=live(1)))
    await first.take(change(0, 1, topic("a", 1), brokers=live(1)))
    await until(lambda: world.all_at(1))
    # The first dies here; what it would have sent comes from the second.
    first.processes_are(frozenset())
    await second.take(change(1, 3, topic("b", 2), brokers=live(1)))
    second.processes_are(frozenset({TWO}))
    await until(lambda: world.all_at(3))
    assert world.brokers[1].leaders == {"a": {0: 1}, "b": {0: 2}}


async def test_a_new_controller_starts_over_with_a_full_image(world: World) -> None:
    world.add(1, 2, 3)
    process = world.process()
    await process.take(change(0, 8, topic("a", 1), topic("gone", 1), brokers=live(1, 2, 3)))
    await until(lambda: world.all_at(8))
    await process.take(change(0, 1, topic("a", 2), brokers=live(1, 2, 3), epoch=2))
    await until(lambda: world.all_at(1))
    assert all(one.leaders == {"a": {0: 2}} for one in world.brokers.values())
    assert process.version_for_controller == 1
    async with refused_with(errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH):
        await process.take(change(8, 9, topic("a", 1), epoch=1))


async def test_a_gap_changes_nothing_and_says_what_is_needed(world: World) -> None:
    process = world.process()
    await process.take(change(1, 2, topic("a", 1)))
    assert process.version_for_controller == 0
    await process.take(change(0, 2, topic("a", 1)))
    await process.take(change(3, 4, topic("b", 1)))
    assert process.version_for_controller == 2
    assert set(process.image.topics) == {"a"}


async def test_a_broker_that_obeys_a_later_controller_deposes_the_earlier_one(world: World) -> None:
    world.add(1)
    world.brokers[1].controller_epoch = 5
    process = world.process()
    await process.take(change(0, 1, topic("a", 1), brokers=live(1)))
    await until(lambda: process.highest_epoch == 5)
    async with refused_with(errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH):
        await process.take(change(1, 2, topic("a", 2), brokers=live(1)))
    assert process.version_for_controller == 0


async def test_a_broker_that_registered_anew_is_told_from_the_snapshot_that_knows_it(world: World) -> None:
    """A payload from before its registration would be refused for ever (safety rule S18)."""
    world.add(1, 2)
    process = world.process()
    await process.take(change(0, 1, topic("a", 1), brokers=live(1, 2)))
    await until(lambda: world.all_at(1))
    world.brokers[2] = ReceivingBroker(epoch=50)
    await process.take(change(1, 2, topic("a", 2), brokers=[broker(1), broker(2, epoch=50)]))
    await until(lambda: world.all_at(2))
    assert world.brokers[2].leaders == {"a": {0: 2}}


async def test_a_broker_that_is_down_holds_nobody_up_and_catches_up(world: World) -> None:
    world.add(1, 2, 3)
    world.brokers[2].down = True
    process = world.process()
    await process.take(change(0, 1, topic("a", 1), brokers=live(1, 2, 3)))
    await until(lambda: world.brokers[1].version == world.brokers[3].version == 1)
    lag = {lane.receiver.id: (lane.acknowledged, lane.behind_ms) for lane in process.lanes}
    assert lag[2][0] == 0
    assert lag[2][1] > 0
    assert lag[1] == lag[3] == (1, 0)
    world.brokers[2].down = False
    await until(lambda: world.all_at(1))
    await process.reached(EPOCH, 1, 5.0)
    assert [lane.behind_ms for lane in process.lanes] == [0, 0, 0]


async def test_waiting_for_the_brokers_ends_when_the_last_has_it(world: World) -> None:
    world.add(1, 2)
    world.brokers[2].down = True
    process = world.process()
    await process.take(change(0, 1, brokers=live(1, 2)))
    waiting: Awaitable[None] = asyncio.ensure_future(process.reached(EPOCH, 1, WAIT_S))
    await until(lambda: world.brokers[1].version == 1)
    assert not waiting.done()  # type: ignore[attr-defined]
    world.brokers[2].down = False
    await waiting
    assert world.all_at(1)
    await process.reached(EPOCH, 99, 0.001)
    await process.reached(ControllerEpoch(0), 99, WAIT_S)


async def test_a_broker_that_leaves_is_hung_up_on(world: World) -> None:
    world.add(1, 2)
    process = world.process()
    await process.take(change(0, 1, brokers=live(1, 2)))
    await until(lambda: world.all_at(1))
    await process.take(change(1, 2, brokers=live(1)))
    await until(lambda: world.brokers[2].closed)
    assert [lane.receiver.id for lane in process.lanes] == [1]
