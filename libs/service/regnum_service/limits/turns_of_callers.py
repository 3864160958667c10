"""Work that takes a thread, in turn by who asks for it: one caller with a thousand calls is one caller.

Goals: whoever asks for little waits for one piece of the others' work at most, however much of it they have brought;
a thread that works is somebody's, also when who asked has hung up.

Algorithm: as many pieces are under way as there are places. A place that becomes free goes to the caller that has
waited for the longest time since its last turn; those of one caller go in the order in which they came. A thread cannot
be stopped: work for a call that has ended ends where it looks (``Call.is_gone``), and until then it keeps its place and
what was reserved for it, and its time is charged. (Freed at once, a caller that hangs up again and again would have as
many pieces under way as it likes, all but two of which wait in line before everybody's next one.)
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from regnum_service.clock import Clock, SystemClock
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import Holding

T = TypeVar("T")


class Turn:
    """A place that a caller has, for one piece of work. Belongs to the event loop."""

    __slots__ = ("_clock", "_thread")

    def __init__(self, clock: Clock) -> None:
        """Only assigns."""
        self._clock: Final = clock
        self._thread: asyncio.Future[Any] | None = None

    async def run(
        self,
        submit: Callable[[Callable[[], T]], asyncio.Future[T]],
        job: Callable[[], T],
        *,
        call: Call,
        holding: Holding | None = None,
    ) -> T:
        """Have a thread do it.

        Args:
            submit: hands a job to a thread, and returns what is done when it has ended.
            job: looks at ``call.is_gone`` between its steps.
            call: for whom; told that it is over when its task is cancelled, and charged for the time of the thread.
            holding: what the job works with.
        """
        now_s = self._clock.monotonic
        spent_s = 0.0

        def timed() -> T:
            nonlocal spent_s
            began_s = now_s()
            try:
                return job()
            finally:
                spent_s = now_s() - began_s

        thread = self._thread = submit(timed)
        thread.add_done_callback(lambda _: call.worked(spent_s))
        if holding is not None:
            holding.used_by(thread)
        try:
            return await asyncio.shield(thread)
        except asyncio.CancelledError:
            call.leave()
            raise

    def when_free(self, leave: Callable[[], None]) -> None:
        """Call that when no thread works any more: now, or then."""
        if self._thread is None or self._thread.done():
            leave()
        else:
            self._thread.add_done_callback(lambda _: leave())


class TurnsOfCallers:
    """The places. Belongs to one event loop."""

    def __init__(self, places: int, clock: Clock | None = None) -> None:
        """Only assigns.

        Args:
            places: as many as there are threads for the work.
            clock: measures what threads take; the machine's when None.
        """
        self._clock: Final = clock or SystemClock()
        self._free = places
        self._waiting: Final[dict[str, deque[asyncio.Future[None]]]] = {}
        """Callers in the order of their turns."""

    @property
    def waiting(self) -> int:
        """Callers that wait."""
        return len(self._waiting)

    @property
    def free(self) -> int:
        """Places that no work has."""
        return self._free

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[Turn]:
        """A place, when it is the caller's turn, until the context ends and a thread that works in it has ended."""
        await self._enter(caller)
        turn = Turn(self._clock)
        try:
            yield turn
        finally:
            turn.when_free(self._leave)

    async def _enter(self, caller: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._waiting.setdefault(caller, deque())
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                # It had been given the place already.
                self._leave()
            elif turn in line:
                line.remove(turn)
                if not line and self._waiting.get(caller) is line:
                    del self._waiting[caller]
            raise

    def _leave(self) -> None:
        while self._waiting:
            caller, line = next(iter(self._waiting.items()))
            del self._waiting[caller]
            turn = line.popleft()
            if line:
                self._waiting[caller] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
