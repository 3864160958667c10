"""Jobs of the log writer: in order, each with its own outcome, and together where they come together."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum_broker.storage import Storage
from regnum_broker.writer import LogWriter
from regnum_service.clock import SystemClock
from regnum_testing.clock import FakeClock
from regnum_testing.log_directories import ReopenedDirectory
from regnum_testing.waiting import DEADLINE_S, within


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[Storage]:
    storage = Storage(ReopenedDirectory(tmp_path).open())
    storage.start()
    yield storage
    await storage.close(clean=False)


class Line:
    """A writer whose thread is held up by its first job until the test lets it go."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.outcomes: list[object] = []
        self.told: list[int] = []
        """How many outcomes there were, each time the loop was told."""
        self._begun, self._gate = threading.Event(), threading.Event()
        self.writer = LogWriter(tell=lambda: self.told.append(len(self.outcomes)), clock=clock)
        self.add(self._hold_up)
        assert self._begun.wait(DEADLINE_S)

    def add(self, job: object) -> None:
        """Hand a job in."""
        self.writer.hand_in(job, lambda value, error: self.outcomes.append(error or value))  # type: ignore[arg-type]

    def _hold_up(self) -> bool:
        self._begun.set()
        return self._gate.wait(DEADLINE_S)

    def run(self) -> None:
        """Let them run, to the last."""
        self._gate.set()
        self.writer.shutdown(wait=True)


def test_jobs_that_came_while_the_thread_was_busy_are_told_of_once() -> None:
    line = Line(FakeClock())
    for number in range(50):
        line.add(lambda number=number: number)
    line.run()
    assert line.outcomes == [True, *range(50)]
    assert line.told == [51]


def test_jobs_that_ended_are_not_kept_waiting_for_one_that_takes_long() -> None:
    clock = FakeClock()
    line = Line(clock)
    line.add(lambda: clock.skip(0.01))
    line.add(lambda: "next")
    line.run()
    assert line.told == [2, 3]


async def test_a_job_that_ended_is_told_of_while_one_behind_it_hangs(tmp_path: Path) -> None:
    """The thread itself would say so when it has time again: here its clock stands still."""
    storage = Storage(ReopenedDirectory(tmp_path).open(), clock=FakeClock())
    storage.start()
    before, behind = threading.Event(), threading.Event()
    first = await storage.write_later(lambda: before.wait(DEADLINE_S))
    quick = await storage.write_later(lambda: "quick")
    slow = await storage.write_later(lambda: behind.wait(DEADLINE_S))
    before.set()
    assert await within(first)
    assert await within(quick) == "quick"
    assert not slow.done()
    behind.set()
    assert await within(slow)
    await storage.close(clean=False)


def test_a_job_after_the_end_is_refused_each_time() -> None:
    writer = LogWriter(tell=lambda: None, clock=FakeClock())
    writer.shutdown(wait=True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shutdown"):
            writer.hand_in(lambda: None, lambda *_: None)


async def test_what_one_job_raises_is_its_own_and_the_next_one_runs(storage: Storage) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    first, second = await storage.write_later(broken), await storage.write_later(lambda: 2)
    assert await within(second) == 2
    with pytest.raises(ZeroDivisionError):
        await first


async def test_jobs_from_a_thousand_tasks_run_in_the_order_in_which_they_came(storage: Storage) -> None:
    ran: list[int] = []

    async def some(numbers: range) -> None:
        for number in numbers:
            await storage.write_later(lambda number=number: ran.append(number))
            if number % 7 == 0:
                # One turn, now and then: callers interleave.
                await asyncio.sleep(0)

    await within(asyncio.gather(*(some(range(base, 10_000, 1_000)) for base in range(1_000))))
    await within(storage.write(lambda: None))
    assert sorted(ran) == list(range(10_000))
    for base in (0, 7, 999):
        assert [number for number in ran if number % 1_000 == base] == list(range(base, 10_000, 1_000))


def test_a_thread_that_went_to_sleep_is_woken_again() -> None:
    ended = threading.Semaphore(0)
    writer = LogWriter(tell=ended.release, clock=SystemClock())
    outcomes: list[object] = []
    for number in range(200):
        writer.hand_in(lambda number=number: number, lambda value, _: outcomes.append(value))
        assert ended.acquire(timeout=DEADLINE_S)
    writer.shutdown(wait=True)
    assert outcomes == list(range(200))


def test_what_goes_first_goes_before_what_waits_and_in_its_own_order() -> None:
    line = Line(FakeClock())
    for number in range(3):
        line.add(lambda number=number: number)
    for name in ("a", "b"):
        line.writer.hand_in(
            lambda name=name: name, lambda value, error: line.outcomes.append(error or value), first=True
        )
    line.add(lambda: 3)
    line.run()
    assert line.outcomes == [True, "a", "b", 0, 1, 2, 3]


def test_a_thread_at_rest_is_woken_by_what_goes_first() -> None:
    line = Line(FakeClock())
    line.run()
    rested = LogWriter(tell=lambda: None, clock=FakeClock())
    done = threading.Event()
    rested.hand_in(done.set, lambda _value, _error: None, first=True)
    assert done.wait(DEADLINE_S)
    rested.shutdown(wait=True)
    with pytest.raises(RuntimeError):
        rested.hand_in(done.set, lambda _value, _error: None, first=True)
    assert not rested.is_busy
