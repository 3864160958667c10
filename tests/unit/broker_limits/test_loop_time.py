"""The time of a call's turns: what it does counts, what it waits for does not."""

import asyncio

import pytest
from regnum_broker.limits.loop_time import Timed
from regnum_testing.clock import FakeClock, settle


async def test_what_a_call_does_counts_and_what_it_waits_for_does_not():
    clock = FakeClock()
    go_on = asyncio.Event()

    async def call() -> str:
        clock.skip(0.25)
        await go_on.wait()
        clock.skip(0.5)
        return "done"

    timed = Timed(call(), clock.monotonic)

    async def wait() -> str:
        return await timed

    task = asyncio.create_task(wait())
    await settle()
    clock.skip(100.0)
    go_on.set()
    assert await task == "done"
    assert timed.spent_s == pytest.approx(0.75)


async def test_an_error_passes_and_the_time_until_then_counts():
    clock = FakeClock()

    async def call() -> None:
        clock.skip(0.25)
        raise KeyError("no")

    timed = Timed(call(), clock.monotonic)
    with pytest.raises(KeyError):
        await timed
    assert timed.spent_s == pytest.approx(0.25)


async def test_a_cancellation_reaches_the_call_which_may_clean_up():
    clock = FakeClock()
    cleaned: list[bool] = []

    async def call() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            clock.skip(0.125)
            cleaned.append(True)

    timed = Timed(call(), clock.monotonic)

    async def wait() -> None:
        await timed

    task = asyncio.create_task(wait())
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned == [True]
    assert timed.spent_s == pytest.approx(0.125)
