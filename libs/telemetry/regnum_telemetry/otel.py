"""The tracer over OpenTelemetry's SDK."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    TraceFlags,
    Tracer,
    set_span_in_context,
)
from opentelemetry.trace import Span as SdkSpan
from opentelemetry.trace.status import Status, StatusCode

from regnum_telemetry import conventions, propagation, tracing
from regnum_telemetry.tracing import Kind, Span, Value

SCOPE: Final = "regnum"
"""Name of the instrumentation scope."""

_KINDS: Final[Mapping[Kind, SpanKind]] = {
    Kind.INTERNAL: SpanKind.INTERNAL,
    Kind.SERVER: SpanKind.SERVER,
    Kind.CLIENT: SpanKind.CLIENT,
    Kind.PRODUCER: SpanKind.PRODUCER,
    Kind.CONSUMER: SpanKind.CONSUMER,
}


class OtelSpan:
    """A span of the SDK."""

    __slots__ = ("_call", "_span")

    def __init__(self, span: SdkSpan, call: tracing.ServedCall | None = None) -> None:
        """Only assigns; ``call``: it ends with that one, unless it is refused."""
        self._span: Final = span
        self._call: Final = call

    @property
    def context(self) -> str:
        """Its place, as traceparent; one that the sampler leaves out has none, and nothing below it is recorded."""
        place = self._span.get_span_context()
        if not place.trace_flags.sampled:
            return ""
        return f"00-{place.trace_id:032x}-{place.span_id:016x}-{int(place.trace_flags):02x}"

    @property
    def trace_id(self) -> str:
        """32 hex digits; none of one that the sampler leaves out."""
        place = self._span.get_span_context()
        return f"{place.trace_id:032x}" if place.trace_flags.sampled else ""

    def set(self, attributes: Mapping[str, Value]) -> None:
        """Add attributes."""
        self._span.set_attributes(dict(attributes))

    def fail(self, error_type: str) -> None:
        """It went wrong."""
        self._span.set_status(Status(StatusCode.ERROR))
        self._span.set_attribute(conventions.ERROR_TYPE, error_type)

    def end(self, at_unix_nano: int | None = None) -> None:
        """It is over."""
        at = tracing.now_unix_nano() if at_unix_nano is None else at_unix_nano
        if self._call is None or not self._call.hold(lambda: self._span.end(at)):
            self._span.end(at)


class PlacedIds(RandomIdGenerator):
    """Random ids, but for spans whose place was reserved."""

    def __init__(self) -> None:
        self._given: Final = threading.local()

    @contextmanager
    def of(self, place: SpanContext) -> Iterator[None]:
        """The one span that this thread starts in the body has these."""
        self._given.place = place
        try:
            yield
        finally:
            self._given.place = None

    def generate_trace_id(self) -> int:
        """Of the next trace."""
        place: SpanContext | None = getattr(self._given, "place", None)
        return super().generate_trace_id() if place is None else place.trace_id

    def generate_span_id(self) -> int:
        """Of the next span."""
        place: SpanContext | None = getattr(self._given, "place", None)
        return super().generate_span_id() if place is None else place.span_id


class OtelTracer:
    """Makes spans of a provider."""

    def __init__(self, provider: TracerProvider, provider_of: Callable[[str], TracerProvider] | None = None) -> None:
        """``provider_of``: makes one whose spans name that cluster (empty: none); None: spans name none."""
        self._ids: Final = PlacedIds()
        self._sampler: Final = provider.sampler
        self._provider_of: Final = provider_of
        self._clusters: Final[set[str]] = set()
        self._tracer = self._tracer_of(provider)

    def _tracer_of(self, provider: TracerProvider) -> Tracer:
        # What is reserved is found again when the cluster is known meanwhile.
        provider.id_generator = self._ids
        return provider.get_tracer(SCOPE)

    @property
    def recording(self) -> bool:
        """Always."""
        return True

    def in_cluster(self, cluster_id: str) -> None:
        """See Tracer."""
        if self._provider_of is None or not cluster_id or cluster_id in self._clusters:
            return
        self._clusters.add(cluster_id)
        # A resource never changes, so spans that have begun keep theirs.
        named = cluster_id if len(self._clusters) == 1 else ""
        self._tracer = self._tracer_of(self._provider_of(named))

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
        """Begin a span."""
        reserved = _place(place)
        if reserved is not None:
            with self._ids.of(reserved):
                return self.start(
                    name, parent=parent, kind=kind, attributes=attributes, links=links, at_unix_nano=at_unix_nano
                )
        above = _place(parent)
        linked = [there for link in links if (there := _place(link)) is not None]
        return OtelSpan(
            self._tracer.start_span(
                name,
                # An empty context, so that nothing is taken from OpenTelemetry's own current span.
                context=set_span_in_context(NonRecordingSpan(above), Context()) if above is not None else Context(),
                kind=_KINDS[kind],
                attributes=attributes,
                links=[Link(there) for there in linked],
                # By the clock that attributes are from: OpenTelemetry would ask the machine.
                start_time=tracing.now_unix_nano() if at_unix_nano is None else at_unix_nano,
            ),
            tracing.served(),
        )

    def reserve(self, name: str) -> str:
        """A place for a span that begins a trace and is made later."""
        span_id = self._ids.generate_span_id()
        # What knows the trace knows its root: see ``propagation.root_of``.
        trace_id = self._ids.generate_trace_id() >> 64 << 64 | span_id
        judged = self._sampler.should_sample(None, trace_id, name)
        sampled = judged.decision.is_sampled()  # type: ignore[no-untyped-call]
        return propagation.render(
            propagation.TraceContext(
                trace_id=f"{trace_id:032x}",
                span_id=f"{span_id:016x}",
                flags=propagation.SAMPLED if sampled else 0,
            )
        )


def _place(traceparent: str) -> SpanContext | None:
    found = propagation.parse(traceparent)
    if found is None:
        return None
    return SpanContext(
        int(found.trace_id, 16), int(found.span_id, 16), is_remote=True, trace_flags=TraceFlags(found.flags)
    )
