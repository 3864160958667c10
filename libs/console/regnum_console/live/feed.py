"""Changes of leadership out of spans that come one after another: each is attributed anew whenever some of it came.

Constraints: spans of one change come from many processes, over seconds, in any order; most spans are of no change.
What is held is bounded: so many traces of which nothing is known yet, so many changes, so many spans of each.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from regnum.types.v1 import errors_pb2
from regnum_insight.attribution.changes import UNTRACED, Change, change_of, trace_of
from regnum_insight.spans.span import Span
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

WAITING_MAX: Final = 5_000
"""Traces that are no change so far, the newest."""
CHANGES_MAX: Final = 200
"""Changes that are held, the newest."""
UNIT_BYTES: Final = 1_024
"""A span counts as one, and as one more for each such part of its text: an attribute may be of any length."""
UNIT_LINKS: Final = 4
"""And as one more for so many links, which take as much."""
SPANS_MAX: Final = 20_000
"""Spans that are held of one change, counted so; what comes beyond them is left out."""
HELD_MAX: Final = 200_000
"""Spans that are held in all, counted so; beyond, the traces that came first are let go, those that are no change
before others."""
LOOK_S: Final = 0.1
"""Not more often than this files are looked at, however many pages are open."""
REST: Final = 4
"""A look is followed by a pause of so many times its length, so that a very large change takes a fifth of the time."""


class Source(Protocol):
    """Where spans come from."""

    def look(self) -> list[Span]:
        """Spans that came since the last look. Called on threads, one at a time."""


class Sources:
    """Several sources as one."""

    def __init__(self, sources: Sequence[Source]) -> None:
        """Only assigns."""
        self._sources: Final = sources

    def look(self) -> list[Span]:
        """See Source."""
        return [span for source in self._sources for span in source.look()]


class Known(NamedTuple):
    """A change as far as it is known."""

    change: Change
    """By the spans that came so far."""
    spans: Sequence[Span]
    """These spans."""
    version: int
    """Grows with every look that brought some of it."""


def _size(span: Span) -> int:
    text = sum(len(name) + len(text) for name, text in span.attributes.items())
    return 1 + text // UNIT_BYTES + len(span.links) // UNIT_LINKS


class _Trace:
    """Spans of one trace, by their ids, and what they count."""

    __slots__ = ("size", "spans")

    def __init__(self) -> None:
        self.size = 0
        self.spans: Final[dict[str, Span]] = {}

    def add(self, span: Span) -> int:
        """Hold it where there is room, in the place of one with its id. Returns what is held more."""
        before = self.spans.get(span.span_id)
        more = _size(span) - (0 if before is None else _size(before))
        if self.size + more > SPANS_MAX:
            return 0
        self.spans[span.span_id] = span
        self.size += more
        return more


class Changes:
    """The changes that spans tell of. Pure."""

    def __init__(
        self, *, changes_max: int = CHANGES_MAX, waiting_max: int = WAITING_MAX, held_max: int = HELD_MAX
    ) -> None:
        self._changes_max: Final = changes_max
        self._waiting_max: Final = waiting_max
        self._held_max: Final = held_max
        self._held = 0
        self._waiting: OrderedDict[str, _Trace] = OrderedDict()
        self._spans: OrderedDict[str, _Trace] = OrderedDict()
        self._known: dict[str, Known] = {}
        self._version = 0

    def take(self, spans: Iterable[Span]) -> None:
        """Add spans, and attribute the changes that they belong to anew."""
        touched: dict[str, None] = {}
        for span in spans:
            trace = trace_of(span)
            of = self._spans.get(trace)
            if of is None:
                of = self._waiting.get(trace)
                if of is None:
                    of = self._waiting[trace] = _Trace()
                self._waiting.move_to_end(trace)
            self._held += of.add(span._replace(trace_id=trace))
            touched[trace] = None
        for trace in touched:
            self._attribute(trace)
        while len(self._waiting) > self._waiting_max or (self._waiting and self._held > self._held_max):
            self._held -= self._waiting.popitem(last=False)[1].size
        while len(self._spans) > self._changes_max or self._held > self._held_max:
            oldest, of_oldest = self._spans.popitem(last=False)
            self._held -= of_oldest.size
            del self._known[oldest]

    def _attribute(self, trace: str) -> None:
        of = self._spans.get(trace) or self._waiting[trace]
        spans = tuple(of.spans.values())
        change = change_of(spans)
        if change is None or change.kind == UNTRACED:
            return
        if trace in self._waiting:
            self._spans[trace] = self._waiting.pop(trace)
        self._version += 1
        self._known[trace] = Known(change, spans, self._version)

    def newest_first(self) -> tuple[Known, ...]:
        """All of them."""
        return tuple(sorted(self._known.values(), key=lambda one: (-one.change.start_ns, one.change.trace_id)))


class Feed(Protocol):
    """Changes as a page may see them."""

    @property
    def has_traces(self) -> bool:
        """Whether spans come from anywhere."""

    async def look(self) -> tuple[Known, ...]:
        """The changes as of now, the newest first. Raises RegnumError for a visitor who may not see them."""


class ChangeFeed:
    """Changes of a source, which is read while the feed has subscribers."""

    def __init__(self, source: Source | None, clock: Clock) -> None:
        """Only assigns; without a source there are no traces."""
        self._source: Final = source
        self._clock: Final = clock
        self._changes: Final = Changes()
        self._looking: asyncio.Task[None] | None = None
        self._next_s = float("-inf")
        self.newest: tuple[Known, ...] = ()
        """Changes by the last look, the newest first."""

    @property
    def has_traces(self) -> bool:
        """Whether spans come from anywhere."""
        return self._source is not None

    async def look(self) -> tuple[Known, ...]:
        """The changes as of now, or of LOOK_S ago. Raises RegnumError where traces cannot be read."""
        if self._source is not None and self._looking is None and self._clock.monotonic() >= self._next_s:
            self._looking = asyncio.create_task(self._look(self._source), name="look at spans")
        if self._looking is not None:
            # A page that is closed meanwhile does not end it: what it has read comes once.
            await asyncio.shield(self._looking)
        return self.newest

    async def _look(self, source: Source) -> None:
        begin_s = self._clock.monotonic()
        try:
            self.newest = await asyncio.to_thread(self._work, source)
        except OSError as error:
            told = f"traces cannot be read: {error.filename}: {error.strerror}"
            raise RegnumError(errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, told) from error
        finally:
            end_s = self._clock.monotonic()
            self._next_s = end_s + max(LOOK_S, REST * (end_s - begin_s) - LOOK_S)
            self._looking = None

    def _work(self, source: Source) -> tuple[Known, ...]:
        spans = source.look()
        if not spans:
            return self.newest
        self._changes.take(spans)
        return self._changes.newest_first()


def found_in(known: Iterable[Known], trace_id: str) -> Known | None:
    """The change with a trace id."""
    return next((one for one in known if one.change.trace_id == trace_id), None)
