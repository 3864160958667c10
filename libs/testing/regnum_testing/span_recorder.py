"""A tracer that keeps its spans in memory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from regnum_telemetry import propagation, tracing
from regnum_telemetry.tracing import Kind, Value


@dataclass(slots=True, kw_only=True, eq=False)
class RecordedSpan:
    """One span."""

    name: str
    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits."""
    parent: str
    """Span id of its parent; empty for a root."""
    kind: Kind
    """Side of a call."""
    links: tuple[str, ...]
    """Traceparents."""
    begin_unix_nano: int
    """Start."""
    attributes: dict[str, Value] = field(default_factory=dict)
    error: str = ""
    """Why it failed; empty when it did not."""
    end_unix_nano: int | None = None
    """End; None while it is open."""

    @property
    def context(self) -> str:
        """As traceparent."""
        return f"00-{self.trace_id}-{self.span_id}-01"

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes."""
        self.attributes.update(attributes)

    def fail(self, error_type: str) -> None:
        """It went wrong."""
        self.error = error_type

    def end(self, at_unix_nano: int | None = None) -> None:
        """It is over."""
        assert self.end_unix_nano is None, f"{self.name} ended twice"
        self.end_unix_nano = tracing.now_unix_nano() if at_unix_nano is None else at_unix_nano


class SpanRecorder:
    """Makes such spans."""

    def __init__(self) -> None:
        self.spans: list[RecordedSpan] = []
        self.clusters: list[str] = []
        """Clusters that the process has named."""
        self._numbers = count(1)

    @property
    def recording(self) -> bool:
        """Always."""
        return True

    def in_cluster(self, cluster_id: str) -> None:
        """Note it."""
        self.clusters.append(cluster_id)

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
    ) -> RecordedSpan:
        """Begin a span."""
        above = propagation.parse(parent)
        reserved = propagation.parse(place)
        number = next(self._numbers)
        span = RecordedSpan(
            name=name,
            trace_id=_trace_id(number, above or reserved),
            span_id=f"{number:016x}" if reserved is None else reserved.span_id,
            parent="" if above is None else above.span_id,
            kind=kind,
            links=tuple(links),
            begin_unix_nano=tracing.now_unix_nano() if at_unix_nano is None else at_unix_nano,
            attributes=dict(attributes or {}),
        )
        self.spans.append(span)
        return span

    def reserve(self, name: str) -> str:  # noqa: ARG002
        """A place for a span that is made later."""
        number = next(self._numbers)
        return f"00-{number:032x}-{number:016x}-01"

    def named(self, name: str) -> list[RecordedSpan]:
        """Spans of that name, in the order of their making."""
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> RecordedSpan:
        """The only span of that name."""
        (span,) = self.named(name)
        return span


def _trace_id(number: int, within: propagation.TraceContext | None) -> str:
    return f"{number:032x}" if within is None else within.trace_id


@contextmanager
def recorded_spans() -> Iterator[SpanRecorder]:
    """The process's tracer is a recorder within the body."""
    recorder = SpanRecorder()
    before = tracing.use(recorder)
    try:
        yield recorder
    finally:
        tracing.use(before)
