"""Room in a producer's buffer, turn by turn of the event loop: first come, first served, and never in vain."""

import asyncio
from typing import Any

import pytest
from regnum_client import BufferFullError, TopicPartition
from regnum_client.producer.batches.lane import Batch
from regnum_client.producer.outcomes import Appended, Outcomes, Receipt
from regnum_testing.waiting import within

P = TopicPartition("t", 0)


def filled(*sizes: int) -> tuple[Outcomes, list[Batch[Receipt]]]:
    """A buffer of ten bytes, and the batches in it."""
    outcomes = Outcomes(buffer_bytes=10, delivery_timeout_s=1.0)
    batches = []
    for size_bytes in sizes:
        nothing: Any = None
        batch = Batch[Receipt](nothing, opened_s=0.0, deadline_s=1.0)
        batch.size_bytes = size_bytes
        outcomes.take_in(batch, size_bytes)
        batches.append(batch)
    return outcomes, batches


def room(outcomes: Outcomes, size_bytes: int, *, wait_s: float) -> "asyncio.Task[None]":
    return asyncio.create_task(outcomes.room(size_bytes, wait_s=wait_s, because=lambda: ""))


async def test_room_that_comes_in_the_turn_in_which_the_time_is_over_is_taken() -> None:
    outcomes, (batch,) = filled(10)
    waiting = room(outcomes, 10, wait_s=0.0)
    await asyncio.sleep(0)
    # It waits, and its timer fires in the turn that comes next.
    outcomes.acknowledged(P, batch, Appended(0))
    await within(waiting)
    assert outcomes.has_room(10)


async def test_who_came_later_does_not_take_that_room_from_those_before() -> None:
    outcomes, (batch, _) = filled(5, 5)
    first = room(outcomes, 10, wait_s=1_000.0)
    await asyncio.sleep(0)
    second = room(outcomes, 5, wait_s=0.0)
    await asyncio.sleep(0)
    outcomes.acknowledged(P, batch, Appended(0))
    with pytest.raises(BufferFullError):
        await within(second)
    outcomes.abandon()
    await asyncio.gather(first, return_exceptions=True)


async def test_whose_turn_it_is_but_for_the_turn_that_tells_it_goes_in() -> None:
    outcomes, (batch,) = filled(10)
    first, second = room(outcomes, 5, wait_s=1_000.0), room(outcomes, 5, wait_s=0.0)
    await asyncio.sleep(0)
    outcomes.acknowledged(P, batch, Appended(0))
    await within(first)
    await within(second)
    assert outcomes.has_room(10), "nobody is in the line any more"


async def test_nobody_comes_in_between_one_who_has_got_room_and_the_next() -> None:
    outcomes, (batch,) = filled(10)
    has_room: list[bool] = []

    async def gets_room() -> None:
        await outcomes.room(5, wait_s=1_000.0, because=lambda: "")
        has_room.append(outcomes.has_room(10))

    first = asyncio.create_task(gets_room())
    await asyncio.sleep(0)
    second = room(outcomes, 5, wait_s=1_000.0)
    await asyncio.sleep(0)
    outcomes.acknowledged(P, batch, Appended(0))
    await within(asyncio.gather(first, second))
    assert has_room == [False], "the next one waits, and is not woken yet"
    assert outcomes.has_room(10)
