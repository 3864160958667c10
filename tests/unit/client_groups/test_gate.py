"""Where an application and its member meet, turn by turn of the event loop."""

import asyncio

from regnum_client.consumer.groups.gate import Gate
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import within


async def test_a_member_that_begins_in_the_turn_in_which_a_reads_time_is_over_is_waited_for() -> None:
    gate = Gate(clock=FakeClock(), wake=lambda: None)
    began, go_on = asyncio.Event(), asyncio.Event()

    async def acts() -> None:
        async with gate.meeting(needed=True):
            began.set()
            await go_on.wait()

    async def nothing_in_time() -> bool:
        """What a timer that has fired makes of a wait: the reader is inside for a turn, and then its time is over."""
        member = asyncio.create_task(acts())
        await began.wait()
        members.append(member)
        return False

    members: list[asyncio.Task[None]] = []
    gate.enter()
    assert await within(gate.unless_acting(nothing_in_time()))
    reading = asyncio.create_task(gate.attend(0.0))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not reading.done(), "the listener would run beside what the caller does next"
    go_on.set()
    assert not await within(reading), "its time was over"
    await within(members[0])


async def test_a_read_whose_time_is_over_ends_when_nobody_acts() -> None:
    gate = Gate(clock=FakeClock(), wake=lambda: None)

    async def nothing_in_time() -> bool:
        return False

    gate.enter()
    assert not await gate.unless_acting(nothing_in_time())
