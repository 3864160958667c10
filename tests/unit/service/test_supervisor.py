"""Tasks, failures and the order of the end."""

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest
import structlog
from regnum_service.cancellation import end_task
from regnum_service.errors import ExitStatus, PortTakenError
from regnum_service.supervisor import Supervisor
from regnum_testing.waiting import DEADLINE_S


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fail_with(error: BaseException) -> None:
    raise error


async def test_a_stop_undoes_everything_in_reverse_order():
    order: list[str] = []

    async def note(name: str) -> None:
        try:
            await for_ever()
        finally:
            order.append(name)

    async def close() -> None:
        order.append("server")

    supervisor = Supervisor("t")
    supervisor.start("first", note("first"))
    supervisor.defer("server", close)
    supervisor.start("last", note("last"))
    # One turn: both tasks run.
    await asyncio.sleep(0)
    supervisor.stop("enough")
    assert await supervisor.run_until_stopped() is ExitStatus.DONE
    assert order == ["last", "server", "first"]
    assert supervisor.reason == "enough"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_it(signum):
    supervisor = Supervisor("t")
    running = asyncio.create_task(supervisor.run_until_stopped())
    # One turn: it listens to signals.
    await asyncio.sleep(0)
    os.kill(os.getpid(), signum)
    assert await asyncio.wait_for(running, DEADLINE_S) is ExitStatus.DONE
    assert supervisor.reason == signum.name


async def test_a_part_that_fails_ends_the_time_that_stopping_takes():
    supervisor = Supervisor("t")
    failing = asyncio.Event()

    async def part() -> None:
        await failing.wait()
        raise OSError("the disk failed")

    async def unhurried() -> None:
        failing.set()
        await supervisor.hurried.wait()

    supervisor.start("part", part())
    supervisor.defer_first("unhurried", unhurried, timeout_s=2 * DEADLINE_S)
    supervisor.stop("enough")
    assert await asyncio.wait_for(supervisor.run_until_stopped(), DEADLINE_S) is ExitStatus.FAILED


async def test_what_was_started_later_goes_on_until_the_farewell_has_been_said():
    supervisor = Supervisor("t")
    working: asyncio.Task[None] | None = None
    worked: list[bool] = []

    async def farewell() -> None:
        # A turn for whoever might have been cancelled.
        await asyncio.sleep(0)
        worked.append(working is not None and not working.done())

    async def later() -> None:
        worked.append(working is not None and working.done())

    supervisor.defer("later", later)
    supervisor.defer_first("farewell", farewell, timeout_s=60)
    working = supervisor.start("working", for_ever())
    await asyncio.sleep(0)
    await supervisor.unwind()
    assert worked == [True, True]


async def test_a_second_signal_is_known_to_whoever_takes_its_time_to_stop():
    supervisor = Supervisor("t")
    begun = asyncio.Event()

    async def unhurried() -> None:
        begun.set()
        await supervisor.hurried.wait()

    supervisor.defer("unhurried", unhurried, timeout_s=2 * DEADLINE_S)
    running = asyncio.create_task(supervisor.run_until_stopped())
    # One turn: it listens to signals.
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(begun.wait(), DEADLINE_S)
    assert not supervisor.hurried.is_set()
    os.kill(os.getpid(), signal.SIGINT)
    assert await asyncio.wait_for(running, DEADLINE_S) is ExitStatus.DONE
    assert supervisor.reason == "SIGTERM"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_signals_stop_it_even_when_it_was_started_with_them_ignored(signum):
    """As a shell does with SIGINT for what runs in the background."""
    before = signal.signal(signum, signal.SIG_IGN)
    try:
        supervisor = Supervisor("t")
        running = asyncio.create_task(supervisor.run_until_stopped())
        # One turn: it listens to signals.
        await asyncio.sleep(0)
        os.kill(os.getpid(), signum)
        assert await asyncio.wait_for(running, DEADLINE_S) is ExitStatus.DONE
    finally:
        signal.signal(signum, before)


async def test_a_failed_task_stops_the_service_and_is_logged_once():
    with structlog.testing.capture_logs() as logs:
        supervisor = Supervisor("t")
        supervisor.start("bad", fail_with(AssertionError("impossible")))
        other = supervisor.start("other", for_ever())
        assert await asyncio.wait_for(supervisor.run_until_stopped(), DEADLINE_S) is ExitStatus.FAILED
    assert isinstance(supervisor.failure, AssertionError)
    assert other.cancelled()
    failures = [line for line in logs if line["event"] == "failed"]
    assert [(line["part"], line["log_level"]) for line in failures] == [("bad", "critical")]
    assert isinstance(failures[0]["exc_info"], AssertionError)


async def test_the_first_failure_counts():
    supervisor = Supervisor("t")
    supervisor.fail("a", ValueError("first"))
    supervisor.fail("b", KeyError("second"))
    assert isinstance(supervisor.failure, ValueError)
    assert await supervisor.run_until_stopped() is ExitStatus.FAILED


async def test_a_refused_start_has_its_own_exit_status():
    supervisor = Supervisor("t")
    supervisor.start("listener", fail_with(PortTakenError("port 1 is taken")))
    assert await asyncio.wait_for(supervisor.run_until_stopped(), DEADLINE_S) is ExitStatus.CONFLICT


async def test_tasks_may_end_and_owners_may_end_them():
    supervisor = Supervisor("t")
    ended = supervisor.start("ended", asyncio.sleep(0, "result"))
    cancelled = supervisor.start("cancelled", for_ever())
    assert await ended == "result"
    end_task(cancelled)
    await asyncio.wait([cancelled])
    assert not supervisor.stopping
    await supervisor.unwind()
    assert supervisor.failure is None


async def test_a_cancellation_that_nobody_asked_for_is_a_failure():
    """What a cancelled gRPC call raises would otherwise end a task without a word."""
    supervisor = Supervisor("t")
    supervisor.start("reader", fail_with(asyncio.CancelledError()))
    assert await asyncio.wait_for(supervisor.run_until_stopped(), DEADLINE_S) is ExitStatus.FAILED


async def test_a_cancellation_from_outside_is_a_failure_that_says_which_part_is_missing():
    """As a framework cancels all tasks of a loop."""
    supervisor = Supervisor("t")
    supervisor.start("part", for_ever()).cancel()
    assert await asyncio.wait_for(supervisor.run_until_stopped(), DEADLINE_S) is ExitStatus.FAILED
    assert supervisor.reason is not None
    assert supervisor.reason.startswith("part failed: ")
    assert "cancelled" in supervisor.reason


async def test_failures_from_other_threads():
    supervisor = Supervisor("t")
    running = asyncio.create_task(supervisor.run_until_stopped())
    # One turn: it waits.
    await asyncio.sleep(0)
    thread = threading.Thread(target=supervisor.fail, args=("thread", ValueError("x")))
    thread.start()
    assert await asyncio.wait_for(running, DEADLINE_S) is ExitStatus.FAILED
    thread.join()


async def test_a_closer_that_hangs_is_given_up():
    order: list[str] = []

    async def close() -> None:
        order.append("closed")

    supervisor = Supervisor("t")
    supervisor.defer("good", close)
    supervisor.defer("stuck", for_ever, timeout_s=0.01)
    await asyncio.wait_for(supervisor.unwind(), DEADLINE_S)
    assert order == ["closed"]
    assert supervisor.failure is None


async def test_a_closer_that_fails_does_not_spare_the_others():
    order: list[str] = []

    async def close() -> None:
        order.append("closed")

    supervisor = Supervisor("t")
    supervisor.defer("good", close)
    supervisor.defer("bad", lambda: fail_with(OSError("disk")))
    await supervisor.unwind()
    assert order == ["closed"]
    assert isinstance(supervisor.failure, OSError)


async def test_a_guarded_callback_stops_the_service_as_a_task_does():
    supervisor = Supervisor("t")

    def completion(number: int) -> None:
        raise ArithmeticError(number)

    asyncio.get_running_loop().call_soon(supervisor.guarded("completion", completion), 7)
    # One turn: the completion has run.
    await asyncio.sleep(0)
    assert isinstance(supervisor.failure, ArithmeticError)
    assert supervisor.reason == "completion failed: ArithmeticError(7)"


async def test_nothing_starts_once_it_is_unwound():
    supervisor = Supervisor("t")
    await supervisor.unwind()
    with pytest.raises(asyncio.CancelledError):
        supervisor.start("late", for_ever())


def test_run_prints_a_refused_start_without_a_trace():
    """In a process of its own: it takes over what pytest has set up for crashes."""
    program = """
import sys
from regnum_service.errors import PortTakenError
from regnum_service.process import run

async def main():
    raise PortTakenError("port 1 is taken; choose another")

sys.exit(run(main))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == ExitStatus.CONFLICT
    assert done.stderr == "port 1 is taken; choose another\n"


async def test_a_service_is_told_to_stop_before_its_log_says_why():
    """A log may take its time, or all of it."""
    supervisor = Supervisor("t")
    seen: list[bool] = []

    def slow(_logger: object, _method: str, event: dict[str, object]) -> dict[str, object]:
        seen.append(supervisor.stopping)
        raise structlog.DropEvent

    with structlog.testing.capture_logs():
        structlog.configure(processors=[slow])
        supervisor.fail("disk", OSError("no more"))
    assert seen == [True]
