"""Waiting requests are completed exactly once."""

import asyncio

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
