"""Which controller epochs are believed by those who only listen."""

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Store
from regnum_coordination.recipes.believed_epochs import READ_INTERVAL_S, BelievedEpochs
from regnum_model.epochs import EPOCH_LEAP_MAX
from regnum_model.ids import ControllerEpoch
from regnum_testing.clock import FakeClock

LEAP = EPOCH_LEAP_MAX


class World:
    """A store whose epoch a test writes, and a count of the looks into it."""

    def __init__(self) -> None:
        self.server, self.clock = MemoryServer(), FakeClock()
        self.session: Store | None = MemoryStore(self.server)
        self.looks = 0
        self.epochs = BelievedEpochs(self._store, self.clock)

    def _store(self) -> Store | None:
        self.looks += 1
        return self.session

    async def believes(self, epoch: int) -> bool:
        return await self.epochs.believes(ControllerEpoch(epoch))


async def test_epochs_near_the_last_one_read_are_believed_without_a_look() -> None:
    world = World()
    assert await world.believes(LEAP)
    assert world.looks == 0


async def test_an_epoch_far_above_is_believed_only_when_the_store_says_so() -> None:
    world = World()
    assert not await world.believes(LEAP + 1)
    world.server.overwrite("/controller_epoch", b"70000")
    await world.clock.advance(READ_INTERVAL_S)
    assert await world.believes(70_000)
    assert await world.believes(70_000 + LEAP)
    assert not await world.believes(70_001 + LEAP)


async def test_many_messages_cost_one_look_in_a_second() -> None:
    world = World()
    world.server.overwrite("/controller_epoch", b"5")
    assert not await world.believes(70_000)
    world.server.overwrite("/controller_epoch", b"70000")
    for _ in range(100):
        assert not await world.believes(70_000)
    await world.clock.advance(READ_INTERVAL_S)
    assert await world.believes(70_000)


@pytest.mark.parametrize("content", [b"garbage", b"99999999999"])
async def test_without_a_readable_epoch_only_near_ones_are_believed(content: bytes) -> None:
    world = World()
    world.server.overwrite("/controller_epoch", content)
    assert not await world.believes(2**31 - 1)
    world.session = None
    await world.clock.advance(READ_INTERVAL_S)
    assert not await world.believes(2**31 - 1)
    assert await world.believes(3)
