"""Requests that wait for a partition to move: acknowledgements by offset, long polls by partition.

Each waiter is completed exactly once, by whatever comes first: the offset is committed, the leader is deposed, its
caller gives up. All of it runs on the event loop, so nothing can move between a look and the wait that follows it.
"""

import asyncio
import enum
import heapq
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Final, Protocol, Self


class AckOutcome(enum.Enum):
    """Why a wait for an offset ended."""

    COMMITTED = "committed"
    """The high watermark reached the offset."""
    DEPOSED = "deposed"
    """This broker no longer leads in the epoch of the append."""


Told = Callable[[AckOutcome], None]
"""Hears why a wait ended; called within the turn that ends it, so it notes that and does no more."""


_ORDER: Final = count()
"""Of all waits of all queues: of those for one offset, who came first is told first. A queue has none of its own, for
there is one for each replica."""


class AckQueue:
    """Waits for the high watermark of one leadership, lowest offset first.

    Most replicas are followed, or not written to: one for which nobody waits has no list.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Told]] | None = None

    def __len__(self) -> int:
        return len(self._waiting or ())

    def wait_for(self, offset: int) -> asyncio.Future[AckOutcome]:
        """A future that is completed when the high watermark reaches ``offset``. Whoever gives up cancels it."""
        future: asyncio.Future[AckOutcome] = asyncio.get_running_loop().create_future()
        self.tell(offset, partial(_complete, future))
        return future

    def tell(self, offset: int, told: Told) -> None:
        """Call ``told`` once, when the high watermark reaches ``offset`` or the leadership is over."""
        if self._waiting is None:
            self._waiting = []
        heapq.heappush(self._waiting, (offset, next(_ORDER), told))

    def committed(self, high_watermark: int) -> None:
        """Complete what the high watermark has reached."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            heapq.heappop(self._waiting)[2](AckOutcome.COMMITTED)

    def depose(self) -> None:
        """Complete everything: the leadership is over."""
        waiting, self._waiting = self._waiting, None
        for _, _, told in waiting or ():
            told(AckOutcome.DEPOSED)


def _complete(future: asyncio.Future[AckOutcome], outcome: AckOutcome) -> None:
    if not future.done():
        future.set_result(outcome)


FEW: Final = 8
"""So many wakers need no dict."""


class Waker(Protocol):
    """What a signal sets; an asyncio.Event is one."""

    def set(self) -> None:
        """Something moved."""


class Signal:
    """Wakes long polls. A poll attaches the same waker to every partition it reads.

    Each replica has two, and few are waited for by more than the followers: so a few wakers are a tuple. Many are a
    dict: they are woken in the order in which they came.
    """

    __slots__ = ("_wakers",)

    def __init__(self) -> None:
        self._wakers: tuple[Waker, ...] | dict[Waker, None] = ()

    def __len__(self) -> int:
        return len(self._wakers)

    def attach(self, waker: Waker) -> None:
        """Set ``waker`` with every later ``fire`` until it is detached."""
        wakers = self._wakers
        if isinstance(wakers, dict):
            wakers[waker] = None
        elif waker not in wakers:
            self._wakers = (*wakers, waker) if len(wakers) < FEW else dict.fromkeys((*wakers, waker))

    def detach(self, waker: Waker) -> None:
        """No longer set it."""
        wakers = self._wakers
        if isinstance(wakers, dict):
            wakers.pop(waker, None)
            if not wakers:
                self._wakers = ()
        elif waker in wakers:
            self._wakers = tuple([other for other in wakers if other is not waker])

    def fire(self) -> None:
        """Something moved."""
        for waker in tuple(self._wakers):
            waker.set()


class LongPoll:
    """One request's wait on several signals up to a deadline. Use as a context manager, so that it always detaches."""

    def __init__(self, signals: Iterable[Signal], *, wait_s: float) -> None:
        self._signals: Final = tuple(signals)
        self._wait_s: Final = wait_s
        self._waker: Final = asyncio.Event()
        self._deadline_s = 0.0

    def __enter__(self) -> Self:
        self._deadline_s = asyncio.get_running_loop().time() + self._wait_s
        for signal in self._signals:
            signal.attach(self._waker)
        return self

    def __exit__(self, *_: object) -> None:
        for signal in self._signals:
            signal.detach(self._waker)

    async def moved(self) -> bool:
        """Wait until one of the signals fired since the last call. False: the time is over."""
        try:
            async with asyncio.timeout_at(self._deadline_s):
                await self._waker.wait()
        except TimeoutError:
            return False
        self._waker.clear()
        return True
