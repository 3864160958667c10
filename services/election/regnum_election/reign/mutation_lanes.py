"""Which mutation gets the next step.

Goals: nobody's mutation waits for the whole work of somebody else's, whose thousands of topics may take many seconds;
a caller's own mutations go in the order in which they came; what has begun ends soon; taking one costs the same,
however many wait.

Constraints: only creations and deletions of topics, and looks at open reassignments, give way between their steps,
since every other kind may rely on what its last step saw of other mutations. Other work of the controller's own that
was put before the mutations stays there.

Algorithm: what does not give way runs to its end once it has begun. Besides it three kinds take turns, a step each:
mutations that do not give way, in order; callers that have one that does, in turn, its first step; those that have
begun, in turn, their next. A caller has one of them begun at a time, and all callers together BEGUN_MAX, or none of a
thousand would be done before the last.

Example: a client's calls of 10 topics wait, 20 of them, and somebody else wants one topic: that is begun after the step
under way and at most one more, and not after 20 whole creations.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

from regnum_election.reign.event_waits import MUTATIONS, EventWaits

BEGUN_MAX: Final = 4
"""Mutations that have begun and gave way, at most."""

Caller = tuple[str, str]
"""User and client id, as quotas know callers."""


class Stepwise(Protocol):
    """What is done in steps."""

    @property
    def gives_way(self) -> bool:
        """Whether other mutations may come between its steps."""

    @property
    def caller(self) -> Caller:
        """Who wants it."""


T = TypeVar("T", bound=Stepwise)


class MutationLanes(Generic[T]):
    """See the module. On the controller's loop; one taker."""

    def __init__(self, waits: EventWaits) -> None:
        """Only assigns."""
        self._waits: Final = waits
        self._ahead: Final[deque[T]] = deque()
        """Further steps that nothing comes between."""
        self._whole: Final[deque[tuple[float, T]]] = deque()
        """Not begun, each since when; they do not give way."""
        self._lanes: Final[dict[Caller, deque[tuple[float, T]]]] = {}
        """The same of those that do, by caller; none is empty."""
        self._ready: Final[OrderedDict[Caller, None]] = OrderedDict()
        """Callers with a lane none of whose mutations has begun, the next one first."""
        self._begun: Final[deque[T]] = deque()
        """Gave way, and go on later."""
        self._out: T | None = None
        """Gives way, and was taken last: it comes back or has ended."""
        self._turn = 0
        """Kind whose turn it is."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        yield from self._ahead
        yield from self._begun
        yield from (mutation for _, mutation in self._whole)
        for lane in self._lanes.values():
            yield from (mutation for _, mutation in lane)

    def append(self, mutation: T) -> None:
        """It waits behind its caller's, or behind all that do not give way."""
        self._count += 1
        item = (self._waits.now_s(), mutation)
        if not mutation.gives_way:
            self._whole.append(item)
            return
        caller = mutation.caller
        if caller in self._lanes:
            self._lanes[caller].append(item)
            return
        self._lanes[caller] = deque((item,))
        if not self._is_busy(caller):
            self._ready[caller] = None

    def put_back(self, mutation: T) -> None:
        """It was taken and has more steps."""
        self._count += 1
        if not mutation.gives_way:
            self._ahead.appendleft(mutation)
            return
        self._begun.append(mutation)
        if self._out is mutation:
            self._out = None

    def popleft(self) -> T:
        """Take the next. Raises IndexError when nothing waits."""
        self._note_end()
        if not self._count:
            raise IndexError("no mutation waits")
        self._count -= 1
        if self._ahead:
            return self._ahead.popleft()
        kinds = (self._next_whole, self._next_ready, self._next_begun)
        for _ in kinds:
            take = kinds[self._turn % len(kinds)]
            self._turn += 1
            if (mutation := take()) is not None:
                return mutation
        raise AssertionError("a caller whose mutations wait is ready, or one of them has begun")

    def clear(self) -> None:
        """Forget all; nobody took them."""
        for kept in (self._ahead, self._whole, self._lanes, self._ready, self._begun):
            kept.clear()
        self._out = None
        self._count = 0

    def _next_whole(self) -> T | None:
        return self._begin(self._whole) if self._whole else None

    def _next_ready(self) -> T | None:
        if not self._ready or len(self._begun) >= BEGUN_MAX:
            return None
        caller, _ = self._ready.popitem(last=False)
        lane = self._lanes[caller]
        self._out = self._begin(lane)
        if not lane:
            del self._lanes[caller]
        return self._out

    def _next_begun(self) -> T | None:
        self._out = self._begun.popleft() if self._begun else None
        return self._out

    def _begin(self, lane: deque[tuple[float, T]]) -> T:
        since_s, mutation = lane.popleft()
        self._waits.waited(MUTATIONS, since_s)
        return mutation

    def _note_end(self) -> None:
        """What was taken last and did not come back has ended: its caller's next one may begin."""
        ended, self._out = self._out, None
        if ended is not None and ended.caller in self._lanes:
            self._ready[ended.caller] = None

    def _is_busy(self, caller: Caller) -> bool:
        out = self._out
        return (out is not None and out.caller == caller) or any(one.caller == caller for one in self._begun)
