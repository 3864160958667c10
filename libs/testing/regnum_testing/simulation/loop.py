"""An event loop under virtual time, whose callbacks know which simulated process they belong to.

Time moves when nothing is left to run, and a little with each turn. A callback of a dead process is dropped, one of a
paused process is kept until it goes on: so both are exact to the callback, as they are for a real process to the
instruction.

Sets of tasks and futures are iterated in the order of their hashes. Those made here are numbered, and hashed by their
numbers, so that the order is the same in every run.
"""

import asyncio
import contextvars
import heapq
import itertools
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

START_S: Final = 1_000.0
"""Where time begins."""

TASKS_KEPT: Final = 256
"""Tasks of a process after which those that have ended are forgotten."""

TURN_S: Final = 1e-7
"""What a turn of the loop takes: what is due at a moment is looked at after it, and not for ever in it."""

TURNS_MAX: Final = 200_000
"""Turns in a row without a pause after which something is taken to turn for ever."""

AT_REST: Final = "nothing will ever happen: every task waits for another one"


class Process:
    """A simulated process, as the loop knows it."""

    def __init__(self, name: str) -> None:
        """Only assigns."""
        self.name: Final = name
        self.dead = False
        self.paused = False
        self.held: list[asyncio.Handle] = []
        """Callbacks that wait for the end of a pause."""
        self._tasks: list[asyncio.Task[Any]] = []
        """Its tasks. Those of a dead process are kept: nothing of theirs may run, not even ``finally``."""
        self._pruned_at = TASKS_KEPT

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Take a task as one of this process."""
        self._tasks.append(task)
        if len(self._tasks) >= self._pruned_at:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._pruned_at = max(TASKS_KEPT, 2 * len(self._tasks))

    def __repr__(self) -> str:
        return self.name


PROCESS: Final[contextvars.ContextVar[Process | None]] = contextvars.ContextVar("simulated_process", default=None)
"""Which process runs; None: the world around them."""

_NUMBERS: Final = itertools.count(1)


class _Task(asyncio.Task[T]):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._number = next(_NUMBERS)
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class _Future(asyncio.Future[T]):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._number = next(_NUMBERS)
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._number

    __eq__ = object.__eq__


class _Handle(asyncio.Handle):
    __slots__ = ("process",)
    process: Process | None

    def _run(self) -> None:
        process = self.process
        if process is not None:
            if process.dead:
                return
            if process.paused:
                process.held.append(self)
                return
        super()._run()


class _TimerHandle(asyncio.TimerHandle):
    __slots__ = ("process",)
    process: Process | None

    def _run(self) -> None:
        process = self.process
        if process is not None:
            if process.dead:
                return
            if process.paused:
                process.held.append(self)
                return
        super()._run()


class _NoFiles:
    """In place of a selector: nothing is waited for but time."""

    def __init__(self, loop: "SimulatedLoop") -> None:
        self._loop = loop
        self._turns = 0

    def select(self, timeout_s: float | None) -> list[object]:
        if timeout_s is None:
            raise RuntimeError(AT_REST)
        self._turns = 0 if timeout_s > 0 else self._turns + 1
        if self._turns > TURNS_MAX:
            raise RuntimeError(f"nothing waits any more, as {self._loop.turning()}")
        self._loop.advance(max(timeout_s, TURN_S))
        return []

    def close(self) -> None:
        pass


class SimulatedLoop(asyncio.base_events.BaseEventLoop):
    """One thread, no files, no clock."""

    def __init__(self) -> None:
        """Makes it."""
        super().__init__()
        self._now_s = START_S
        self._selector = _NoFiles(self)
        self._clock_resolution = 1e-9
        self.failures: Final[list[dict[str, Any]]] = []
        """What went to the exception handler of the loop."""
        self.run_job: Callable[[Callable[[], object]], Future[Any]] | None = None
        """Runs a job of ``run_in_executor``, as a thread would."""
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    @property
    def elapsed_s(self) -> float:
        """Virtual seconds since the start."""
        return self._now_s - START_S

    def advance(self, seconds: float) -> None:
        """Move time."""
        self._now_s += seconds

    def turning(self) -> str:
        """What is to run next, for people."""
        return ", ".join(f"{handle.process} {handle!r}" for handle in tuple(self._ready)[:5])  # type: ignore[attr-defined]

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Run a callback next, for the process of its context."""
        if self._closed:  # type: ignore[attr-defined]
            raise RuntimeError("Event loop is closed")
        context = contextvars.copy_context() if context is None else context
        handle = _Handle(callback, args, self, context)
        handle.process = context.get(PROCESS)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback at that time, for the process of its context."""
        context = contextvars.copy_context() if context is None else context
        handle = _TimerHandle(when, callback, args, self, context)
        handle.process = context.get(PROCESS)
        heapq.heappush(self._scheduled, handle)  # type: ignore[attr-defined]
        handle._scheduled = True  # type: ignore[attr-defined]  # noqa: SLF001 - as the base class does
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Run a callback after that time."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def in_world(self, delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Run a callback after that time for no process: it happens whoever is dead or paused."""
        return self.call_later(delay_s, callback, *args, context=contextvars.Context())

    def go_on(self, process: Process) -> None:
        """End a pause."""
        process.paused = False
        held, process.held = process.held, []
        self._ready.extend(handle for handle in held if not handle.cancelled())  # type: ignore[attr-defined]

    def create_future(self) -> asyncio.Future[Any]:
        """A numbered future."""
        return _Future(loop=self)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Run a job as a thread would: later, in the same process. Whose threads they are makes no difference."""
        del executor
        if self.run_job is None:
            raise RuntimeError("the loop has no machine")
        done = self.run_job(lambda: func(*args))
        return asyncio.wrap_future(done, loop=self)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what nothing else handled."""
        self.failures.append(context)

    def set_exception_handler(self, handler: Any) -> None:
        """A process may set one for its loop; this one belongs to all of them."""

    def add_signal_handler(  # type: ignore[override]
        self, sig: int, callback: Callable[..., object], *args: Any
    ) -> None:
        """Signals are calls of the supervisor here."""

    def remove_signal_handler(self, sig: int) -> bool:  # noqa: ARG002
        """See ``add_signal_handler``."""
        return True

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **named: Any
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = _Task(work, loop=loop, **named)
        context = named.get("context")
        process = PROCESS.get() if context is None else context.get(PROCESS)
        if process is not None:
            process.keep(task)
        return task

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: list[object]) -> None:
        pass
