"""Where an application and its member meet, turn by turn of the event loop."""

import asyncio
import random
from collections.abc import Iterable
from typing import Any

import pytest
from regnum_client import ConsumerSettings, RebalanceListener, TopicPartition
from regnum_client.consumer.groups.gate import Gate
from regnum_client.consumer.groups.handover import Handover
from regnum_client.consumer.groups.members.member_events import GiveUp
from regnum_client.tasks import Tasks
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


async def test_what_a_listener_does_at_its_end_is_waited_for_when_a_rebalance_is_given_up() -> None:
    """It may commit to a database, and what the application does next may depend on that."""
    gate = Gate(clock=FakeClock(), wake=lambda: None)
    told, cleaned_up = asyncio.Event(), asyncio.Event()

    class Careful(RebalanceListener):
        async def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
            try:
                told.set()
                await asyncio.Event().wait()
            finally:
                await cleaned_up.wait()
                raise ZeroDivisionError

    unused: Any = None
    handover = Handover(
        "g",
        gate=gate,
        commits=unused,
        fetcher=unused,
        metadata=unused,
        lookup=unused,
        listener=Careful(),
        settings=ConsumerSettings(),
        clock=FakeClock(),
        chance=random.Random(1),
        tasks=Tasks("consumer"),
    )
    gate.enter()
    giving = asyncio.create_task(handover.give_up(GiveUp(partitions=frozenset({TopicPartition("t", 0)}), lost=True)))
    await within(told.wait())
    giving.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not giving.done()
    assert gate.acting, "nothing is handed out, and no read returns"
    cleaned_up.set()
    with pytest.raises(asyncio.CancelledError):
        await within(giving)
    assert not gate.acting
    with pytest.raises(ZeroDivisionError):
        await gate.attend(None)
