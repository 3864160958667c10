"""What brokers tell controllers of others that failed, over real lifelines: for traces."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_election.reign.witnesses import Sign
from regnum_model.ids import BrokerEpoch, BrokerId, ElectionId
from regnum_telemetry import tracing
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import BrokerWorld
from regnum_testing.election_values import broker
from regnum_testing.lifeline_controllers import Controllers
from regnum_testing.waiting import until


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    world = BrokerWorld(tmp_path)
    await world.begin()
    yield world
    await world.close()


@pytest.fixture
async def controllers(world: BrokerWorld) -> AsyncIterator[Controllers]:
    controllers = Controllers(world)
    yield controllers
    await controllers.end()


async def test_a_follower_tells_that_its_leader_went_and_the_next_controller_hears_it_as_well(
    world: BrokerWorld, controllers: Controllers
) -> None:
    await controllers.next()
    await world.start(1, 2)
    await world.elect(1, [1, 2])
    await world.produce(1, batch_of(b"a"))
    epoch, _ = await world.registration(1)
    own, _ = await world.registration(2)

    def seen() -> tuple[Sign, ...]:
        thread = controllers.thread
        assert thread is not None
        thread.show(controllers.epoch, {BrokerId(2): broker(2, epoch=own)})
        return tuple(sign for sign in thread.of_broker(BrokerId(1), epoch).broken if sign.seen_by == "follower fetch 2")

    await world.log_ends_at(2, 1)
    assert seen() == ()
    stopped_unix_nano = tracing.now_unix_nano()
    await world.stop(1)
    await until(lambda: bool(seen()))
    (said,) = seen()
    assert said.unix_nano >= stopped_unix_nano
    # Of another life nothing is known.
    assert controllers.thread is not None
    assert not controllers.thread.of_broker(BrokerId(1), BrokerEpoch(epoch + 1)).broken
    ended_unix_nano = tracing.now_unix_nano()
    await controllers.next()
    await until(lambda: bool(seen()))
    assert seen() == (said,)
    # And how the controller before ended.
    of_controller = controllers.thread.of_controller(ElectionId(1))
    (heard,) = of_controller.heard
    assert heard.seen_by == "last sign of life 2"
    assert all(sign.unix_nano >= ended_unix_nano for sign in of_controller.broken)
    assert controllers.thread.of_controller(ElectionId(2)).heard == ()
