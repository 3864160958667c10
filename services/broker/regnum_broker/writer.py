"""The thread that writes: jobs one after another, in the order they came, but for those that go first.

Goals: a job costs no more than itself when others come with it.

Algorithm: jobs wait in a line. The thread is woken by the first of them and goes on until the line is empty, so that
none of the others wakes it. What ended is told at the end of the line, all at once; after TOLD_AFTER_S earlier. A job
may take long and those before it are not to wait for it: the loop looks by itself, every TOLD_AFTER_S while there are
jobs.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from regnum_service.clock import Clock
from regnum_service.pools import MakePool, thread_pool

TOLD_AFTER_S: Final = 0.002
"""When jobs have gone on for so long, those that ended are told of between two."""

Ended = Callable[[Any, BaseException | None], None]
"""Takes the outcome of a job on the thread: what it returned, or what it raised."""


class _Attempt:
    """Keeps what is raised for who waits for the job, as a pool's thread does: the jobs behind it go on."""

    __slots__ = ("error",)

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True


class LogWriter:
    """One thread. Jobs are handed in by the event loop only."""

    def __init__(self, *, tell: Callable[[], None], clock: Clock, make_pool: MakePool = thread_pool) -> None:
        """Only assigns.

        Args:
            tell: called on the thread after jobs have ended.
            clock: says how long they take.
            make_pool: where the thread comes from.
        """
        self._tell: Final = tell
        self._clock: Final = clock
        self._line: Final[deque[tuple[Callable[[], Any], Ended]]] = deque()
        self._first: Final[deque[tuple[Callable[[], Any], Ended]]] = deque()
        """Jobs that go before those in the line."""
        self._awake = False
        """Whether the thread is to look at the line, or does. Set by the loop, taken back by the thread."""
        self._thread: Final = make_pool("log-writer", 1)

    def hand_in(self, job: Callable[[], Any], ended: Ended, *, first: bool = False) -> None:
        """Run a job after all that were handed in before. Raises RuntimeError after ``shutdown``.

        ``first``: only after the one that runs, and those that go first as well.
        """
        line = self._first if first else self._line
        line.append((job, ended))
        if not self._awake:
            self._awake = True
            try:
                self._thread.submit(self._work)
            except RuntimeError:
                # It was shut down, or there can be no thread: nobody would ever run it.
                self._awake = False
                line.pop()
                raise

    @property
    def is_busy(self) -> bool:
        """Whether there are jobs, or the last one has only just ended."""
        return self._awake

    def shutdown(self, *, wait: bool = False) -> None:
        """Take no further job; those in the line are still done, and waited for if asked."""
        self._thread.shutdown(wait=wait)

    def _work(self) -> None:
        while True:
            self._work_off()
            self._awake = False
            # Who came before that found the thread awake, and is looked for here; who comes after wakes it.
            if not (self._line or self._first):
                return
            self._awake = True

    def _work_off(self) -> None:
        told_s, untold = self._clock.monotonic(), False
        while line := self._first or self._line:
            job, ended = line.popleft()
            attempt, value = _Attempt(), None
            with attempt:
                value = job()
            ended(value, attempt.error)
            untold = True
            now_s = self._clock.monotonic()
            if now_s - told_s > TOLD_AFTER_S:
                told_s, untold = now_s, False
                self._tell()
        if untold:
            self._tell()
