"""What processes take of the machine: event loops and threads of their own, and ids."""

import asyncio
import random
import threading

import pytest
from regnum_service.machine import MACHINE, Machine
from regnum_service.pools import DaemonThread
from regnum_testing.waiting import DEADLINE_S


async def test_a_loop_of_its_own_runs_what_is_handed_to_it_on_its_thread() -> None:
    loop = MACHINE.loop("beside", daemon=True)
    ran: list[str] = []
    ended = asyncio.Event()

    async def work() -> None:
        ran.append(threading.current_thread().name)
        await ended.wait()

    async def more() -> None:
        ran.append(threading.current_thread().name)

    # Also before it runs.
    loop.call(ran.append, "called")
    async with asyncio.timeout(DEADLINE_S):
        running = asyncio.create_task(loop.run(work()))
        while len(ran) < 2:
            await asyncio.sleep(0)
        await loop.do(more())
        loop.call(ended.set)
        await running
    assert sorted(ran) == ["beside", "beside", "called"]
    loop.call(ran.append, "too late")
    assert len(ran) == 3


async def test_what_fails_on_a_loop_of_its_own_is_raised_where_it_is_waited_for() -> None:
    async def fail() -> None:
        raise ValueError("as told")

    with pytest.raises(ValueError, match="as told"):
        await MACHINE.loop("beside").run(fail())


def test_a_daemon_thread_does_its_jobs_in_order_and_goes_on_after_one_that_fails() -> None:
    thread, done = DaemonThread("daemon"), []

    def fail() -> None:
        raise ValueError("as told")

    first = thread.submit(done.append, 1)
    failed = thread.submit(fail)
    last = thread.submit(lambda: done.append(threading.current_thread().name))
    thread.shutdown()
    last.result(DEADLINE_S)
    assert (first.result(), done) == (None, [1, "daemon"])
    with pytest.raises(ValueError, match="as told"):
        failed.result()


def test_ids_come_from_the_chance_of_the_machine() -> None:
    class Repeating(Machine):
        def __init__(self) -> None:
            self.chance = random.Random(1)

    assert Repeating().new_id() == Repeating().new_id()
    assert len({MACHINE.new_id() for _ in range(100)}) == 100
