"""Spans as Zipkin's API takes them (version 2), for tracing user interfaces of others. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from regnum_telemetry import conventions as names

from regnum_insight.attribution.changes import Change
from regnum_insight.spans.span import Kind, Span

ON_THE_PATH: Final = "regnum.chain"
"""Tag of spans that the worst chain of the change goes through."""

_KINDS: Final = {
    Kind.SERVER: "SERVER",
    Kind.CLIENT: "CLIENT",
    Kind.PRODUCER: "PRODUCER",
    Kind.CONSUMER: "CONSUMER",
}


def zipkin_of(changes: Iterable[Change], spans_of: dict[str, Sequence[Span]]) -> list[dict[str, Any]]:
    """The spans of some changes, given by trace id, with clocks as they were; no span is shorter than a microsecond."""
    found = []
    for change in changes:
        path = set(change.worst.path.split())
        found += [_span(span, on_the_path=span.span_id in path) for span in spans_of.get(change.trace_id, ())]
    return found


def _span(span: Span, *, on_the_path: bool) -> dict[str, Any]:
    tags = dict(sorted(span.attributes.items()))
    if on_the_path:
        tags[ON_THE_PATH] = "worst"
    if names.ERROR_TYPE in tags:
        tags["error"] = tags[names.ERROR_TYPE]
    for position, (trace_id, span_id) in enumerate(span.links):
        tags[f"otlp.link.{position}"] = f"{trace_id}|{span_id}"
    kind = _KINDS.get(Kind(span.kind))
    return {
        "traceId": span.trace_id,
        "id": span.span_id,
        **({"parentId": span.parent_id} if span.parent_id else {}),
        "name": span.name,
        **({"kind": kind} if kind else {}),
        "timestamp": span.start_ns // 1000,
        "duration": max(1, (span.end_ns - span.start_ns) // 1000),
        "localEndpoint": {"serviceName": span.process},
        "tags": tags,
    }
