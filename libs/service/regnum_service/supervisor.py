"""Life of a service: named tasks, what to close at the end, and why it stopped.

A task that fails stops the service: a failed assertion is a crash, not a line in a log. What was started or deferred is
undone in reverse order, each step with a deadline, so that a stuck peer cannot keep a process alive.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

import structlog
from regnum_telemetry import tracing

from regnum_service.cancellation import end_task, is_asked_to_end
from regnum_service.errors import ExitStatus, StartRefusedError

T = TypeVar("T")
P = ParamSpec("P")

Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a named task that belongs to the service's supervisor (``Supervisor.start``)."""

CLOSE_TIMEOUT_S: Final = 10.0
"""Time that one step of the unwinding may take, unless it asks for another."""


def unasked_end() -> RuntimeError:
    """Why a task failed that was cancelled, and not by its owner: from outside, or by a call inside it."""
    return RuntimeError("cancelled, and not by its owner: the process cannot go on without this part")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Closer:
    name: str
    close: Callable[[], Awaitable[object]]
    timeout_s: float


class Supervisor:
    """Owns the tasks of one service. Belongs to one event loop; ``fail`` and ``stop`` may be called from any thread."""

    def __init__(self, service: str) -> None:
        self._log = structlog.get_logger(service)
        self._stack: dict[asyncio.Task[Any] | _Closer, None] = {}
        self._stopped = asyncio.Event()
        self.hurried: Final = asyncio.Event()
        """Set by a second signal, or a failure, while the service stops: who could go at once goes at once."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unwinding = False
        self._reason: str | None = None
        self._failure: BaseException | None = None
        self._farewells: list[_Closer] = []
        self.serving: Final[dict[str, bool]] = {}
        """What the process's listeners say of their services, by full proto name; written by them, on any thread."""

    @property
    def stopping(self) -> bool:
        """True once the service has been told to stop or has failed."""
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """Why the service stops; None while it does not."""
        return self._reason

    @property
    def failure(self) -> BaseException | None:
        """What made the service fail; None while nothing did."""
        return self._failure

    @property
    def exit_status(self) -> ExitStatus:
        """Exit status of the process as of now."""
        match self._failure:
            case None:
                return ExitStatus.DONE
            case StartRefusedError() as refused:
                return refused.exit_status
            case _:
                return ExitStatus.FAILED

    def start(self, name: str, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a named task. It may end, or be ended by its owner (``cancellation.end_task``).

        If it fails, or is cancelled by anything else, the service stops.
        """
        self._loop = asyncio.get_running_loop()
        if self._unwinding:
            coroutine.close()
            raise asyncio.CancelledError(f"{name}: the service is stopping")
        # A task of its own belongs to no call: it must not carry on the trace of whoever happened to start it.
        with tracing.within(""):
            task = self._loop.create_task(coroutine, name=name)
        self._stack[task] = None
        task.add_done_callback(self._task_done)
        return task

    def defer(self, name: str, close: Callable[[], Awaitable[object]], *, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Call ``close`` when the service stops, after everything started or deferred later has been undone."""
        self._stack[_Closer(name=name, close=close, timeout_s=timeout_s)] = None

    def guarded(self, name: str, callback: Callable[P, None]) -> Callable[P, None]:
        """A callback for an event loop, which would only log what it fails with: this one stops the service."""

        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                callback(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - a task that fails ends in the same place
                self.fail(name, error)

        return run

    def defer_first(self, name: str, close: Callable[[], Awaitable[object]], *, timeout_s: float) -> None:
        """Call ``close`` when the service stops, before anything is undone, what was started later included."""
        self._farewells.append(_Closer(name=name, close=close, timeout_s=timeout_s))

    def fail(self, name: str, error: BaseException) -> None:
        """Record the failure of a part, stop the service, log it once. Any thread.

        In that order: the log may take its time, or all of it.
        """
        if self._failure is None:
            self._failure = error
        if self.stopping and self._loop is not None and not self._loop.is_closed():
            # Whoever takes its time to stop relied on this part.
            self._loop.call_soon_threadsafe(self.hurried.set)
        self.stop(f"{name} failed: {error!r}")
        if isinstance(error, StartRefusedError):
            self._log.error("start refused", part=name, reason=str(error))
        else:
            self._log.critical("failed", part=name, error=repr(error), exc_info=error)

    def stop(self, reason: str) -> None:
        """Ask the service to stop; returns at once. The first reason counts. Any thread."""
        if self._reason is None:
            self._reason = reason
        loop = self._loop
        if loop is None:
            self._stopped.set()
        elif not loop.is_closed():
            loop.call_soon_threadsafe(self._stopped.set)

    async def run_until_stopped(self) -> ExitStatus:
        """Wait for ``stop``, a failure, SIGTERM or SIGINT; then undo everything in reverse order."""
        loop = self._loop = asyncio.get_running_loop()
        if self._reason is not None:
            self._stopped.set()
        handled = (signal.SIGTERM, signal.SIGINT)
        for signum in handled:
            loop.add_signal_handler(signum, self._signalled, signal.Signals(signum).name)
        try:
            await self._stopped.wait()
            self._log.info("stopping", reason=self._reason)
            await self.unwind()
        finally:
            for signum in handled:
                loop.remove_signal_handler(signum)
        self._log.info("stopped", exit_status=int(self.exit_status))
        return self.exit_status

    def _signalled(self, name: str) -> None:
        if self.stopping:
            self._log.info("stopping at once", reason=name)
            self.hurried.set()
        self.stop(name)

    async def unwind(self) -> None:
        """Cancel tasks and call closers, newest first. For tests and failed starts."""
        if self._reason is None:
            self._reason = "unwound"
        while self._farewells:
            await self._close(self._farewells.pop())
        while self._stack:
            entry, _ = self._stack.popitem()
            if isinstance(entry, _Closer):
                await self._close(entry)
            else:
                await self._cancel(entry)
        self._unwinding = True

    async def _close(self, closer: _Closer) -> None:
        try:
            async with asyncio.timeout(closer.timeout_s):
                await closer.close()
        except TimeoutError:
            self._log.warning("close timed out", part=closer.name, timeout_s=closer.timeout_s)
        except Exception as error:  # noqa: BLE001 - the one place that catches all, beside the server's interceptor
            self.fail(closer.name, error)

    async def _cancel(self, task: asyncio.Task[Any]) -> None:
        end_task(task)
        _, pending = await asyncio.wait([task], timeout=CLOSE_TIMEOUT_S)
        if pending:
            self._log.warning("task ignores its cancellation", part=task.get_name(), timeout_s=CLOSE_TIMEOUT_S)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._stack.pop(task, None)
        if task.cancelled():
            if not is_asked_to_end(task) and not self.stopping:
                self.fail(task.get_name(), unasked_end())
            return
        error = task.exception()
        if error is not None:
            self.fail(task.get_name(), error)
