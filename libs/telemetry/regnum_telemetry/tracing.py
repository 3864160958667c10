"""Spans as the rest of the project makes them. Imports nothing of OpenTelemetry: without set-up all of it does nothing.

A span is made where its cause is known, and its place (``Span.context``, a traceparent) is handed on explicitly: in
events, in gRPC metadata, in messages. Within one task ``current`` holds the place that calls and writes belong to.
"""

import contextvars
import enum
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from typing import Final, Protocol

Value = str | int | float | bool
"""What an attribute may hold."""


class Kind(enum.Enum):
    """Which side of a call a span stands for."""

    INTERNAL = "internal"
    """Neither."""
    SERVER = "server"
    """The called one."""
    CLIENT = "client"
    """The caller."""
    PRODUCER = "producer"
    """Whoever sends a message."""
    CONSUMER = "consumer"
    """Whoever takes one."""


class Span(Protocol):
    """One span. ``end`` it once; any thread."""

    @property
    def context(self) -> str:
        """Its place, as traceparent; empty when nothing is recorded."""

    @property
    def trace_id(self) -> str:
        """32 hex digits; empty when nothing is recorded."""

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes."""

    def fail(self, error_type: str) -> None:
        """It went wrong, and why: a short name."""

    def end(self, at_unix_nano: int | None = None) -> None:
        """It is over: now, or at that moment."""


class Tracer(Protocol):
    """Makes spans."""

    @property
    def recording(self) -> bool:
        """Whether spans go anywhere."""

    def in_cluster(self, cluster_id: str) -> None:
        """Spans that begin from now on are of that cluster; of none, once the process has named a second one."""

    def start(
        self,
        name: str,
        *,
        parent: str = "",
        kind: Kind = Kind.INTERNAL,
        attributes: Mapping[str, Value] | None = None,
        links: Sequence[str] = (),
        at_unix_nano: int | None = None,
        place: str = "",
    ) -> Span:
        """Begin a span, now or at that moment; without a parent it begins a trace.

        ``place``: as it was reserved; with a parent only the id of the span is taken from it.
        """

    def reserve(self, name: str) -> str:
        """A place for a span of that name that begins a trace and is made later, when all of it is known.

        What belongs to it may be made, and told of, before. Its id is the end of the trace id: ``propagation.root_of``.
        Empty when nothing is recorded.
        """


class NoSpan:
    """A span that is not recorded."""

    __slots__ = ()

    @property
    def context(self) -> str:
        """Nowhere."""
        return ""

    @property
    def trace_id(self) -> str:
        """None."""
        return ""

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Nothing."""

    def fail(self, error_type: str) -> None:
        """Nothing."""

    def end(self, at_unix_nano: int | None = None) -> None:
        """Nothing."""


NO_SPAN: Final = NoSpan()
"""The only one that is needed."""


class NoTracer:
    """The tracer before set-up, and when traces are off."""

    __slots__ = ()

    @property
    def recording(self) -> bool:
        """Never."""
        return False

    def in_cluster(self, cluster_id: str) -> None:
        """Nothing."""

    def start(
        self,
        name: str,  # noqa: ARG002
        *,
        parent: str = "",  # noqa: ARG002
        kind: Kind = Kind.INTERNAL,  # noqa: ARG002
        attributes: Mapping[str, Value] | None = None,  # noqa: ARG002
        links: Sequence[str] = (),  # noqa: ARG002
        at_unix_nano: int | None = None,  # noqa: ARG002
        place: str = "",  # noqa: ARG002
    ) -> Span:
        """A span that is not recorded."""
        return NO_SPAN

    def reserve(self, name: str) -> str:  # noqa: ARG002
        """Nowhere."""
        return ""


class _Process:
    """The tracer of this process, as OpenTelemetry has one provider for each."""

    tracer: Tracer = NoTracer()
    now_unix_nano: Callable[[], int] = time.time_ns
    clusters: frozenset[str] = frozenset()
    """Ids of the clusters that it has named."""


FILES_MAX_BYTES: Final = 256 * 1024 * 1024
"""Of the trace files of one process together, unless told otherwise: some ten thousand failovers."""

HELD_MAX: Final = 1_000
"""Ended spans of one served call that wait for its outcome; with more of them it is no refusal."""


class ServedCall:
    """A call that this process serves, and what has ended of its spans while it may still be refused.

    A client says by itself which of its calls belong to a trace. One that is refused leaves no span, or every client
    that may connect could have a process write as much as it likes.
    """

    __slots__ = ("_dropped", "_held", "_lock", "refused")

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._held: list[Callable[[], None]] | None = []
        self._dropped = False
        """Whether it was refused when that was known."""
        self.refused = False
        """Whether something of it was refused so far."""

    def hold(self, end: Callable[[], None]) -> bool:
        """Whether a span that ends now waits, or is dropped, with this call; False: end it. Any thread."""
        with self._lock:
            if self._held is None:
                return self._dropped
            self._held.append(end)
            is_full = len(self._held) >= HELD_MAX
        if is_full:
            self.settle()
        return True

    def settle(self) -> None:
        """It goes on or has ended, and is refused or not: what waits ends or is dropped."""
        with self._lock:
            held, self._held = self._held, None
            if held is None:
                return
            self._dropped = self.refused
        if not self._dropped:
            for end in held:
                end()


_SERVED: Final[contextvars.ContextVar[ServedCall | None]] = contextvars.ContextVar("regnum_served_call", default=None)

_CURRENT: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("regnum_trace_context", default="")


def tracer() -> Tracer:
    """The tracer of this process."""
    return _Process.tracer


def use(tracer: Tracer) -> Tracer:
    """Make this the tracer of the process; returns the one before."""
    before, _Process.tracer = _Process.tracer, tracer
    return before


def tell_time_by(now_unix_nano: Callable[[], int]) -> None:
    """Take wall time from there; the machine's unless this is called."""
    _Process.now_unix_nano = now_unix_nano


def in_cluster(cluster_id: str) -> None:
    """The process has learned which cluster it belongs to: spans that begin from now on, and metrics, say so."""
    if cluster_id:
        _Process.clusters |= {cluster_id}
    _Process.tracer.in_cluster(cluster_id)


def cluster() -> str:
    """Id of the cluster that the process belongs to; empty: it does not know that, or has named several."""
    return next(iter(_Process.clusters)) if len(_Process.clusters) == 1 else ""


def current() -> str:
    """The place that calls and writes of this task belong to; empty: none."""
    return _CURRENT.get()


@contextmanager
def within(context: str) -> Iterator[None]:
    """What is called and written in the body belongs to that place."""
    token = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(token)


async def each_within(context: str, steps: AsyncGenerator[None, None]) -> AsyncGenerator[None, None]:
    """The same for each step of what runs in steps, whoever has them run; what runs between them does not belong."""
    async with aclosing(steps):
        while True:
            with within(context):
                try:
                    await anext(steps)
                except StopAsyncIteration:
                    return
            yield


def enter(context: str) -> None:
    """What is called and written from here to the end of the ``within`` around it belongs to that place."""
    _CURRENT.set(context)


def served() -> ServedCall | None:
    """The call that this task serves; None: none that belongs to a trace."""
    return _SERVED.get()


def refuse() -> None:
    """Something of the call that this task serves was refused."""
    call = _SERVED.get()
    if call is not None:
        call.refused = True


@contextmanager
def serving(call: ServedCall) -> Iterator[None]:
    """The body serves that call."""
    token = _SERVED.set(call)
    try:
        yield
    finally:
        _SERVED.reset(token)


@contextmanager
def span(
    name: str, *, parent: str | None = None, attributes: Mapping[str, Value] | None = None, root: bool = False
) -> Iterator[Span]:
    """A span around the body, below ``parent`` or the current place; not recorded without either, unless ``root``."""
    above = current() if parent is None else parent
    if not above and not root:
        yield NO_SPAN
        return
    made = tracer().start(name, parent=above, attributes=attributes)

    def note_failure(kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        if kind is not None:
            made.fail(kind.__name__)

    with ExitStack() as ends:
        ends.callback(made.end)
        ends.push(note_failure)
        ends.enter_context(within(made.context))
        yield made


def between(
    name: str,
    begin_unix_nano: int,
    end_unix_nano: int,
    *,
    parent: str,
    attributes: Mapping[str, Value] | None = None,
    links: Sequence[str] = (),
) -> Span:
    """A span of the past, already ended."""
    made = tracer().start(name, parent=parent, attributes=attributes, links=links, at_unix_nano=begin_unix_nano)
    made.end(max(begin_unix_nano, end_unix_nano))
    return made


def now_unix_nano() -> int:
    """Wall time as spans take it: the one clock that several processes share."""
    return _Process.now_unix_nano()
