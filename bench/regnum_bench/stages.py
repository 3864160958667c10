"""The controller's own parts of a failover, from the traces of the services.

Stages are worked out as ``regnum_telemetry.conventions`` says: each boundary counts as at least the one before it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from regnum_telemetry import conventions

BY_PRODUCERS: Final = (conventions.FIRST_APPEND_STAGE, conventions.FIRST_ACKNOWLEDGED_STAGE)
"""Stages that are there only where a producer waited."""
STAGES: Final = {
    conventions.KIND_BROKER_FAILURE: conventions.FAILOVER_STAGES,
    conventions.KIND_SUCCESSION: conventions.SUCCESSION_STAGES,
}
"""Kinds of changes and their stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span, as far as it is needed."""

    name: str
    """Its name."""
    trace_id: str
    """Trace it belongs to."""
    start_ns: int
    """Begin, nanoseconds since 1970."""
    end_ns: int
    """End, likewise."""
    attributes: Mapping[str, str]
    """Attributes as text."""


class Traces:
    """The spans of all services of a cluster that are new since the last look."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def skip(self) -> None:
        """What is there is not asked for."""
        self._read = {file: file.stat().st_size for file in self._folder.glob("*.jsonl")}

    def new(self) -> list[Span]:
        """Whole lines since the last call; a torn one is left for the next."""
        spans: list[Span] = []
        for file in self._folder.glob("*.jsonl"):
            with file.open("rb") as lines:
                lines.seek(self._read.get(file, 0))
                data = lines.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[file] = self._read.get(file, 0) + len(whole)
            for line in whole.splitlines():
                spans.extend(_spans(line))
        return spans


def noticed_ns(root: Span) -> int:
    """When the controller noticed what the root is about: what lies before it is no work of the controller."""
    return int(root.attributes.get(conventions.NOTICED_UNIX_NANO, root.start_ns))


def root_of(spans: Sequence[Span], kind: str, *, victim: int, since_ns: int) -> Span | None:
    """The root for a victim that was killed at a moment: the one about the most partitions. None: not there (yet)."""
    found = [
        span
        for span in spans
        if span.name == conventions.LEADERSHIP_CHANGE
        and span.attributes.get(conventions.CHANGE_KIND) == kind
        and span.attributes.get(conventions.VICTIM) == str(victim)
        and span.end_ns >= since_ns
        and not _ended_before(span, since_ns)
    ]
    return max(found, key=lambda span: int(span.attributes.get(conventions.PARTITIONS, 0)), default=None)


def stages_ms(root: Span, spans: Sequence[Span]) -> dict[str, float]:
    """Length of each stage in milliseconds, and their sum as ``traced_total``; a stage nobody recorded is 0."""
    begin_ns = reached_ns = noticed_ns(root)
    found: dict[str, float] = {}
    for stage in STAGES[root.attributes[conventions.CHANGE_KIND]]:
        if stage.name in BY_PRODUCERS:
            continue
        if stage.root_attribute is not None:
            boundary_ns = int(root.attributes.get(stage.root_attribute, 0))
        else:
            ends = (span.end_ns for span in spans if span.trace_id == root.trace_id and span.name == stage.span)
            boundary_ns = max(ends, default=0)
        after_ns = max(reached_ns, boundary_ns)
        found[stage.name] = (after_ns - reached_ns) / 1e6
        reached_ns = after_ns
    return {**found, "traced_total": (reached_ns - begin_ns) / 1e6}


def _ended_before(span: Span, since_ns: int) -> bool:
    return int(span.attributes.get(conventions.DETECTED_UNIX_NANO, span.end_ns)) < since_ns


def _spans(line: bytes) -> list[Span]:
    return [
        Span(
            name=span["name"],
            trace_id=span["traceId"],
            start_ns=int(span["startTimeUnixNano"]),
            end_ns=int(span["endTimeUnixNano"]),
            attributes=_attributes(span.get("attributes", ())),
        )
        for resource in json.loads(line)["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def _attributes(items: Any) -> dict[str, str]:
    return {item["key"]: str(next(iter(item["value"].values()), "")) for item in items}
