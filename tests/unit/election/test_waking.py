"""When publications are sent that nobody waits for."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from regnum_election.publication.waking import INTERVAL_S, Waking
from regnum_testing.clock import FakeClock, settle


class Woken:
    """When senders were woken."""

    def __init__(self, clock: FakeClock) -> None:
        self.at_s: list[float] = []
        self._clock = clock

    def __call__(self) -> None:
        self.at_s.append(round(self._clock.monotonic() - 1_000.0, 3))


Stage = tuple[FakeClock, Woken, Waking]


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    clock = FakeClock(start_s=1_000.0)
    woken = Woken(clock)
    waking = Waking(woken, clock=clock, spawn=lambda name, task: asyncio.create_task(task, name=name))
    yield clock, woken, waking
    await waking.close()


async def several(clock: FakeClock, times: int, every_s: float, do: Callable[[], None]) -> None:
    for _ in range(times):
        do()
        await clock.advance(every_s)


async def test_what_can_wait_does_not_where_all_is_quiet(stage: Stage) -> None:
    clock, woken, waking = stage
    waking.soon()
    assert woken.at_s == [0.0]
    await clock.advance(10.0)
    waking.soon()
    assert woken.at_s == [0.0, 10.0]


async def test_a_flood_of_small_news_wakes_once_in_an_interval(stage: Stage) -> None:
    """A broker comes back and joins a hundred ISRs in a second, one after another."""
    clock, woken, waking = stage
    await several(clock, 100, 0.01, waking.soon)
    await clock.advance(INTERVAL_S)
    assert woken.at_s == [0.0, 0.5, 1.0]


async def test_what_cannot_wait_does_not_and_takes_along_what_does(stage: Stage) -> None:
    clock, woken, waking = stage
    waking.soon()
    await clock.advance(0.1)
    waking.soon()
    await clock.advance(0.1)
    waking.at_once()
    assert woken.at_s == [0.0, 0.2]
    await clock.advance(10.0)
    assert woken.at_s == [0.0, 0.2], "nobody is woken again for what was taken along"
    waking.soon()
    assert woken.at_s == [0.0, 0.2, 10.2]


async def test_what_waits_can_be_hurried_and_where_nothing_does_nobody_is_woken(stage: Stage) -> None:
    clock, woken, waking = stage
    waking.hurry()
    assert woken.at_s == []
    waking.soon()
    await clock.advance(0.1)
    waking.hurry()
    assert woken.at_s == [0.0]
    waking.soon()
    await clock.advance(0.1)
    waking.hurry()
    waking.hurry()
    assert woken.at_s == [0.0, 0.2]


async def test_nobody_is_woken_after_the_end(stage: Stage) -> None:
    clock, woken, waking = stage
    waking.soon()
    waking.soon()
    await settle()
    await waking.close()
    await clock.advance(10.0)
    assert woken.at_s == [0.0]
