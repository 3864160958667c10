"""From the controller's change to every broker: one serialisation, acknowledged by each (safety rules S17, S18)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from regnum.types.v1 import errors_pb2
from regnum_metadata.delivery import ByteBudget, Patience
from regnum_metadata.gauges import show_propagation
from regnum_metadata.lane import Receiver
from regnum_metadata.propagation import BROKERS_PER_TURN, Propagation
from regnum_model.ids import ControllerEpoch, MetadataId
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_telemetry.instruments import metadata as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.metadata_values import ReceivingBroker, broker, change, topic
from regnum_testing.waiting import DEADLINE_S, until, within

ONE, TWO = MetadataId(1), MetadataId(2)
EPOCH = ControllerEpoch(1)


async def anybody(_epoch: int) -> bool:
    return True


async def nowhere(_epoch: int) -> bool:
    return False


class World:
    """Metadata processes and brokers of one cluster, without any wire."""

    def __init__(self) -> None:
        self.brokers: dict[int, ReceivingBroker] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.shows = nowhere
        """What the store says of an epoch."""
        self.patience = Patience()
        self.budget = ByteBudget()

    async def process(self, id: MetadataId = ONE) -> Propagation:
        propagation = Propagation(
            id=id,
            open_stream=self._open,
            clock=SystemClock(),
            spawn=self._spawn,
            believes=anybody,
            shows=self.shows,
            budget=self.budget,
            patience=self.patience,
        )
        await propagation.processes_are(frozenset({id}))
        return propagation

    def add(self, *ids: int) -> None:
        for id in ids:
            self.brokers[id] = ReceivingBroker(epoch=id)

    def _open(self, receiver: Receiver) -> ReceivingBroker:
        return self.brokers[receiver.internal.port - 20_000]

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
    process = await world.process()
    await process.take(change(0, 1, topic("a", 1), brokers=live(*ids)))
    await until(lambda: world.all_at(1))
    assert process.payload_serialisations == 1
    for version in range(2, 6):
        await process.take(change(version - 1, version, topic("a", version), newest=count))
        await until(partial(world.all_at, version))
    assert process.payload_serialisations == 5
    metrics = Metrics()
    show_propagation(metrics, process)
    shown = {one.instrument: dict(one.numbers) for one in metrics.read()}
    assert shown[instruments.PAYLOADS] == {("full",): 1, ("interval",): 4}
    made, (sent,) = shown[instruments.PAYLOAD_BYTES], shown[instruments.PAYLOAD_BYTES_SENT].values()
    # Made once, sent to each; and a question to each at the beginning.
    assert count * sum(made.values()) < sent < count * (sum(made.values()) + 100)
    assert all(one.leaders == {"a": {0: 5}} for one in world.brokers.values())
    # The very same object went to all of them: memory does not grow with brokers.
    assert len({id(part) for one in world.brokers.values() for parts in one.taken for part in parts}) == 6


async def test_brokers_that_missed_much_share_one_change_to_the_present(world: World) -> None:
    """It was a queue of all they had missed, or the full picture."""
    world.add(*range(1, 10))
    process = await world.process()
    await process.take(
        change(0, 1, topic("a", 1), *(topic(f"t{n}", 1) for n in range(50)), brokers=live(*range(1, 10)))
    )
    await until(lambda: world.all_at(1))
    for one in world.brokers.values():
        one.down = True
        one.taken.clear()
    for version in range(2, 700):
        await process.take(change(version - 1, version, topic("a", version), newest=9))
    before = process.payload_serialisations
    for one in world.brokers.values():
        one.recover()
    await until(lambda: world.all_at(699))
    assert process.payload_serialisations == before + 1
    assert all(len(one.taken) == 1 for one in world.brokers.values())
    assert all(sum(map(len, one.taken[0])) < 200 for one in world.brokers.values())
    assert all(one.leaders["a"] == {0: 699} and len(one.leaders) == 51 for one in world.brokers.values())


async def test_two_processes_share_the_brokers_and_one_takes_over(world: World) -> None:
    world.add(*range(1, 10))
    first, second = await world.process(ONE), await world.process(TWO)
    for process in (first, second):
        await process.processes_are(frozenset({ONE, TWO}))
        await process.take(change(0, 1, topic("a", 1), brokers=live(*range(1, 10))))
    await until(lambda: world.all_at(1))
    shares = [{lane.receiver.id for lane in process.lanes} for process in (first, second)]
    assert shares[0] | shares[1] == set(range(1, 10))
    assert not shares[0] & shares[1]
    for one in world.brokers.values():
        one.taken.clear()
    await second.processes_are(frozenset({TWO}))
    await second.take(change(1, 2, topic("a", 2), newest=9))
    await until(lambda: world.all_at(2))
    # Asked first, nobody was sent the full picture again.
    assert all(len(one.taken) == 1 for one in world.brokers.values())
    assert second.payload_serialisations == 2
    await first.processes_are(frozenset({TWO}))
    assert first.lanes == ()


async def test_a_process_that_takes_over_goes_on_from_the_brokers_version(world: World) -> None:
    world.add(1)
    first, second = await world.process(ONE), await world.process(TWO)
    await first.processes_are(frozenset({ONE}))
    await second.processes_are(frozenset({ONE}))
    await second.take(change(0, 1, topic("a", 1), brokers=live(1)))
    await first.take(change(0, 1, topic("a", 1), brokers=live(1)))
    await until(lambda: world.all_at(1))
    # The first dies here; what it would have sent comes from the second.
    await first.processes_are(frozenset())
    await second.take(change(1, 3, topic("b", 2), newest=1))
    await second.processes_are(frozenset({TWO}))
    await until(lambda: world.all_at(3))
    assert world.brokers[1].leaders == {"a": {0: 1}, "b": {0: 2}}


async def test_a_new_controller_that_starts_over_costs_the_brokers_what_differs(world: World) -> None:
    world.add(1, 2, 3)
    process = await world.process()
    same = [topic(f"t{n}", 1, 2, 3) for n in range(200)]
    await process.take(change(0, 8, topic("a", 1), topic("gone", 1), *same, brokers=live(1, 2, 3)))
    await until(lambda: world.all_at(8))
    for one in world.brokers.values():
        one.taken.clear()
    await process.take(change(0, 1, topic("a", 2), *same, brokers=live(1, 2, 3), epoch=2))
    await until(lambda: world.all_at(1))
    assert all(one.leaders["a"] == {0: 2} and len(one.leaders) == 201 for one in world.brokers.values())
    assert all(len(one.taken) == 1 and sum(map(len, one.taken[0])) < 400 for one in world.brokers.values())
    async with refused_with(errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH):
        await process.take(change(8, 9, topic("a", 1), epoch=1))


async def test_a_reign_that_goes_on_reaches_brokers_as_a_change(world: World) -> None:
    world.add(1, 2, 3)
    process = await world.process()
    await process.take(change(0, 8, topic("a", 1), topic("b", 1), brokers=live(1, 2, 3)))
    await until(lambda: world.all_at(8))
    world.brokers[3].down = True
    await process.take(change(8, 9, topic("b", 2), newest=3))
    await until(lambda: world.brokers[1].version == world.brokers[2].version == 9)
    await process.take(change(9, 10, topic("a", 3), brokers=live(1, 2, 3), epoch=2, base=(1, 9)))
    world.brokers[3].recover()
    await until(lambda: world.all_at(10))
    assert all(one.known_under == 2 and one.leaders == {"a": {0: 3}, "b": {0: 2}} for one in world.brokers.values())
    # The one that was behind too: both reigns in one change.
    assert all(len(one.taken) == (2 if id == 3 else 3) for id, one in world.brokers.items())


async def test_a_broker_beyond_the_base_of_a_reign_gets_everything(world: World) -> None:
    """The predecessor published more than its successor knows, and another process has sent it on."""
    world.add(1)
    process = await world.process()
    await process.take(change(0, 8, topic("a", 1), brokers=live(1)))
    await until(lambda: world.all_at(8))
    one = world.brokers[1]
    one.version, one.leaders = 9, {"a": {0: 1}, "never": {0: 1}}
    await process.take(change(8, 9, topic("b", 3), brokers=live(1), epoch=2, base=(1, 8)))
    await until(lambda: (one.known_under, one.version) == (2, 9))
    assert one.leaders == {"a": {0: 1}, "b": {0: 3}}


async def test_a_gap_changes_nothing_and_says_what_is_needed(world: World) -> None:
    process = await world.process()
    await process.take(change(1, 2, topic("a", 1)))
    assert process.image.version == 0
    await process.take(change(0, 2, topic("a", 1)))
    await process.take(change(3, 4, topic("b", 1)))
    assert process.image.version == 2
    assert set(process.image.topics) == {"a"}


async def test_a_broker_that_obeys_a_later_controller_deposes_the_earlier_one_if_the_store_does(
    world: World,
) -> None:
    world.add(1)
    world.brokers[1].controller_epoch = 5

    async def fifth(epoch: int) -> bool:
        return epoch <= 5

    world.shows = fifth
    process = await world.process()
    await process.take(change(0, 1, topic("a", 1), brokers=live(1)))
    await until(lambda: process.highest_epoch == 5)
    async with refused_with(errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH):
        await process.take(change(1, 2, topic("a", 2), brokers=live(1)))
    assert process.image.version == 1, "what the deposed one says is not taken up"


async def test_a_broker_that_registered_anew_is_told_from_the_snapshot_that_knows_it(world: World) -> None:
    """A payload from before its registration would be refused for ever (safety rule S18)."""
    world.add(1, 2)
    process = await world.process()
    await process.take(change(0, 1, topic("a", 1), brokers=live(1, 2)))
    await until(lambda: world.all_at(1))
    world.brokers[2] = ReceivingBroker(epoch=50)
    await process.take(change(1, 2, topic("a", 2), brokers=[broker(2, epoch=50)]))
    await until(lambda: world.all_at(2))
    assert world.brokers[2].leaders == {"a": {0: 2}}


async def test_a_broker_that_is_down_holds_nobody_up_and_catches_up(world: World) -> None:
    world.add(1, 2, 3)
    world.brokers[2].down = True
    process = await world.process()
    await process.take(change(0, 1, topic("a", 1), brokers=live(1, 2, 3)))
    await until(lambda: world.brokers[1].version == world.brokers[3].version == 1)
    lag = {lane.receiver.id: (lane.acknowledged, lane.behind_ms) for lane in process.lanes}
    assert lag[2][0] == 0
    assert lag[2][1] > 0
    assert lag[1] == lag[3] == (1, 0)
    metrics = Metrics()
    show_propagation(metrics, process)
    shown = {one.instrument: dict(one.numbers) for one in metrics.read()}
    assert shown[instruments.METADATA_VERSION] == {(): 1}
    assert (shown[instruments.BROKERS_SERVED], shown[instruments.BROKERS_BEHIND]) == ({(): 3}, {(): 1})
    assert shown[instruments.BROKER_LAG] == {("2",): 1}
    world.brokers[2].recover()
    await until(lambda: world.all_at(1))
    await process.reached(EPOCH, 1, 5.0)
    assert [lane.behind_ms for lane in process.lanes] == [0, 0, 0]


async def test_waiting_for_the_brokers_ends_when_the_last_has_it(world: World) -> None:
    world.add(1, 2)
    world.brokers[2].down = True
    process = await world.process()
    await process.take(change(0, 1, brokers=live(1, 2)))
    waiting: Awaitable[None] = asyncio.ensure_future(process.reached(EPOCH, 1, DEADLINE_S))
    await until(lambda: world.brokers[1].version == 1)
    assert not waiting.done()  # type: ignore[attr-defined]
    world.brokers[2].recover()
    await waiting
    assert world.all_at(1)
    await process.reached(EPOCH, 99, 0.001)
    await process.reached(ControllerEpoch(0), 99, DEADLINE_S)


async def test_a_broker_that_leaves_is_hung_up_on(world: World) -> None:
    world.add(1, 2)
    process = await world.process()
    await process.take(change(0, 1, brokers=live(1, 2)))
    await until(lambda: world.all_at(1))
    await process.take(change(1, 2, gone=[2]))
    await until(lambda: world.brokers[2].closed)
    assert [lane.receiver.id for lane in process.lanes] == [1]


async def test_what_a_cut_off_call_began_is_finished_by_its_repeat(world: World) -> None:
    """The controller dies while its first image is taken: brokers beyond the first fifty had nobody for good."""
    count = 3 * BROKERS_PER_TURN
    world.add(*range(1, count + 1))
    propagation = await world.process()
    first = change(0, 1, brokers=[broker(id) for id in world.brokers])
    taking = asyncio.create_task(propagation.take(first))
    while not propagation.lanes:
        await asyncio.sleep(0)
    taking.cancel()
    await asyncio.wait([taking])
    assert 0 < len(propagation.lanes) < count
    await propagation.take(first)
    assert len(propagation.lanes) == count
    await within(reached(world, 1))


async def reached(world: World, version: int) -> None:
    await until(lambda: world.all_at(version), f"every broker at version {version}")
