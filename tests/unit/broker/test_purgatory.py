"""Waiting requests are completed exactly once."""

import asyncio
from functools import partial

from regnum_broker.replication.purgatory import AckOutcome, AckQueue, LongPoll, Signal


async def test_the_high_watermark_completes_what_it_reached_and_no_more() -> None:
    queue = AckQueue()
    later, first, second = queue.wait_for(9), queue.wait_for(3), queue.wait_for(5)
    queue.committed(5)
    assert (first.result(), second.result()) == (AckOutcome.COMMITTED, AckOutcome.COMMITTED)
    assert not later.done()
    assert len(queue) == 1


async def test_deposition_completes_the_rest_once() -> None:
    queue = AckQueue()
    first, second = queue.wait_for(3), queue.wait_for(9)
    queue.committed(3)
    queue.depose()
    queue.committed(9)
    assert (first.result(), second.result()) == (AckOutcome.COMMITTED, AckOutcome.DEPOSED)


async def test_who_gave_up_is_left_alone() -> None:
    queue = AckQueue()
    queue.wait_for(3).cancel()
    queue.committed(3)
    assert len(queue) == 0


async def test_waits_that_were_given_up_are_no_more_than_there_are_others_however_long_nothing_is_committed() -> None:
    queue, told = AckQueue(), list[int]()
    kept = [queue.tell(1_000 * number, partial(note, told, number)) for number in range(1, 101)]
    for offset in range(50_000):
        queue.give_up(queue.tell(1 + offset % 1_000, partial(note, told, -1)))
    assert len(queue) <= 2 * len(kept) + 2
    queue.give_up(kept[0])
    queue.committed(100_000)
    assert told == list(range(2, 101))
    assert len(queue) == 0


async def test_a_wait_that_was_told_is_not_counted_among_those_that_were_given_up() -> None:
    queue, told = AckQueue(), list[int]()
    over = [queue.tell(1, partial(note, told, 1)) for _ in range(1_000)]
    queue.committed(1)
    for wait in over:
        queue.give_up(wait)
    queue.tell(2, partial(note, told, 2))
    queue.give_up(queue.tell(3, partial(note, told, 3)))
    assert len(queue) == 2, "one that was given up, and was not in the way of anybody"
    queue.committed(3)
    assert told == [1] * 1_000 + [2]


async def test_futures_that_were_cancelled_do_not_add_up() -> None:
    queue = AckQueue()
    for _ in range(1_000):
        queue.wait_for(3).cancel()
        # In the next turn the queue hears of it.
        await asyncio.sleep(0)
    assert len(queue) <= 100


def note(told: list[int], number: int, _outcome: AckOutcome) -> None:
    told.append(number)


async def test_a_poll_sees_what_fires_while_it_is_attached() -> None:
    signal = Signal()
    with LongPoll([signal], wait_s=5.0) as poll:
        signal.fire()
        assert await poll.moved()
    assert len(signal) == 0


async def test_a_poll_ends_with_its_time() -> None:
    signal = Signal()
    with LongPoll([signal], wait_s=0.0) as poll:
        assert not await poll.moved()


async def test_a_cancelled_poll_detaches() -> None:
    signal = Signal()

    async def wait() -> None:
        with LongPoll([signal], wait_s=60.0) as poll:
            await poll.moved()

    task = asyncio.create_task(wait())
    # One turn: it has attached itself.
    await asyncio.sleep(0)
    assert len(signal) == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(signal) == 0
