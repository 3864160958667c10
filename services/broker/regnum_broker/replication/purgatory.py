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


GIVEN_UP_MAX: Final = 64
"""So many waits that were given up may be in any queue; beyond, no more than there are others."""


class Wait:
    """One wait of a queue."""

    __slots__ = ("told",)

    def __init__(self, told: Told) -> None:
        self.told: Told | None = told
        """None: it was told, or given up."""


class AckQueue:
    """Waits for the high watermark of one leadership, lowest offset first.

    Most replicas are followed, or not written to: one for which nobody waits has no list. A wait that is given up lets
    go at once of whom it would have told; its place goes with the others', when they are more than half.
    """

    __slots__ = ("_given_up", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Wait]] | None = None
        self._given_up = 0
        """Those in the list that were given up."""

    def __len__(self) -> int:
        return len(self._waiting or ())

    def wait_for(self, offset: int) -> asyncio.Future[AckOutcome]:
        """A future that is completed when the high watermark reaches ``offset``. Whoever gives up cancels it."""
        future: asyncio.Future[AckOutcome] = asyncio.get_running_loop().create_future()
        wait = self.tell(offset, partial(_complete, future))
        future.add_done_callback(lambda _: self.give_up(wait))
        return future

    def tell(self, offset: int, told: Told) -> Wait:
        """Call ``told`` once, when the high watermark reaches ``offset`` or the leadership is over."""
        if self._waiting is None:
            self._waiting = []
        wait = Wait(told)
        heapq.heappush(self._waiting, (offset, next(_ORDER), wait))
        return wait

    def give_up(self, wait: Wait) -> None:
        """Tell one of these waits nothing any more; nothing happens to one that was told."""
        if wait.told is None:
            return
        wait.told = None
        self._given_up += 1
        if self._waiting and self._given_up > max(GIVEN_UP_MAX, len(self._waiting) // 2):
            self._waiting = [entry for entry in self._waiting if entry[2].told is not None]
            heapq.heapify(self._waiting)
            self._given_up = 0

    def committed(self, high_watermark: int) -> None:
        """Complete what the high watermark has reached."""
        while self._waiting and self._waiting[0][0] <= high_watermark:
            self._end(heapq.heappop(self._waiting)[2], AckOutcome.COMMITTED)

    def depose(self) -> None:
        """Complete everything: the leadership is over."""
        waiting, self._waiting = self._waiting, None
        for _, _, wait in waiting or ():
            self._end(wait, AckOutcome.DEPOSED)

    def _end(self, wait: Wait, outcome: AckOutcome) -> None:
        told, wait.told = wait.told, None
        if told is None:
            self._given_up -= 1
        else:
            told(outcome)


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

    async def moved(self, *, rest_s: float = 0.0) -> bool:
        """Wait ``rest_s``, and until one of the signals fired since the last call. False: the time is over."""
        try:
            async with asyncio.timeout_at(self._deadline_s):
                if rest_s > 0:
                    await asyncio.sleep(rest_s)
                await self._waker.wait()
        except TimeoutError:
            return False
        self._waker.clear()
        return True
