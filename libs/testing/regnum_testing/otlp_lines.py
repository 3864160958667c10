"""Hand-made spans as lines of an OTLP JSON file, and the spans of whole failovers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from regnum_telemetry import conventions as names

BASE_NS: Final = 1_800_000_000_000_000_000
"""When hand-made failovers begin, in nanoseconds since 1970."""


def at(ms: float) -> int:
    """A moment, in nanoseconds since 1970."""
    return BASE_NS + round(ms * 1e6)


class Spans:
    """Makes spans of one trace. Times are milliseconds after BASE_NS."""

    def __init__(self, trace: int) -> None:
        self.trace_id = f"{trace:032x}"
        self._next = trace << 32
        self.made: list[dict[str, Any]] = []

    def add(self, name: str, start: float, end: float, **attributes: object) -> dict[str, Any]:
        """A span; attribute names are given by ``conventions`` through ``**{names.X: value}``."""
        self._next += 1
        span = {
            "traceId": self.trace_id,
            "spanId": f"{self._next:016x}",
            "name": name,
            "kind": 1,
            "startTimeUnixNano": str(at(start)),
            "endTimeUnixNano": str(at(end)),
            "attributes": [{"key": key, "value": _value(value)} for key, value in attributes.items()],
            "status": {},
        }
        self.made.append(span)
        return span


def broker_failover(trace: int, start: float, *, victim: int = 2, left_out: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The example of the head of ``conventions``: 196 ms, of which the producer saw 206.

    ``left_out`` are names of spans, or of attributes of the root, that nobody wrote.
    """
    spans = Spans(trace)
    boundaries = {
        names.DETECTED_UNIX_NANO: 110,
        names.FENCED_UNIX_NANO: 113,
        names.DECIDED_UNIX_NANO: 114,
        names.WRITTEN_UNIX_NANO: 117,
        names.DISPATCHED_UNIX_NANO: 125,
    }
    root = {
        names.CAUSE: names.CAUSE_LIFELINE,
        names.VICTIM_KIND: "broker",
        names.VICTIM: victim,
        names.PARTITIONS: 3,
        names.COMPLETE: True,
        **{name: at(start + ms) for name, ms in boundaries.items()},
    }
    spans.add(names.FAILOVER, start, start + 125, **_without(root, left_out))
    spans.add(names.DETECTION, start, start + 110)
    spans.add(names.BECOME_LEADER, start + 118, start + 120)
    spans.add(names.BECOME_LEADER, start + 118, start + 122)
    spans.add(names.METADATA_APPLIED, start + 119, start + 121)
    spans.add(names.FIRST_APPEND, start + 122, start + 190)
    # Nobody waited for the first record of this partition.
    spans.add(names.FIRST_APPEND, start + 122, start + 5_000)
    outage = {names.TOPIC: "orders", names.PARTITION: "0", names.RETRIED: True}
    spans.add(names.OUTAGE, start - 10, start + 196, **outage)
    spans.add(names.OUTAGE, start, start + 150, **{**outage, names.PARTITION: "1"})
    # A producer that had nothing to send: its silence is no outage.
    spans.add(names.OUTAGE, start - 900, start + 9_000, **{**outage, names.PARTITION: "2", names.RETRIED: False})
    return [span for span in spans.made if span["name"] not in left_out]


def succession(trace: int, start: float) -> list[dict[str, Any]]:
    """A controller is killed and another takes office: 80 ms."""
    spans = Spans(trace)
    boundaries = {
        names.DETECTED_UNIX_NANO: 5,
        names.FENCED_UNIX_NANO: 15,
        names.WON_UNIX_NANO: 30,
        names.LOADED_UNIX_NANO: 45,
        names.VERIFIED_UNIX_NANO: 50,
        names.DISPATCHED_UNIX_NANO: 70,
    }
    root = {names.CAUSE: names.CAUSE_LIFELINE, names.VICTIM_KIND: "controller", names.VICTIM: 1, names.COMPLETE: True}
    root |= {name: at(start + ms) for name, ms in boundaries.items()}
    spans.add(names.SUCCESSION, start, start + 70, **root)
    spans.add(names.METADATA_APPLIED, start + 60, start + 80)
    return spans.made


def line(
    spans: Sequence[Mapping[str, Any]],
    *,
    service: str = "regnum-broker",
    instance: str = "1",
    resource: Mapping[str, str] | None = None,
) -> str:
    """One line of a file, without its end. ``resource``: further attributes of the process."""
    resource = {names.SERVICE_NAME: service, names.SERVICE_INSTANCE: instance, **(resource or {})}
    attributes = [{"key": key, "value": _value(value)} for key, value in resource.items()]
    return json.dumps(
        {"resourceSpans": [{"resource": {"attributes": attributes}, "scopeSpans": [{"spans": list(spans)}]}]}
    )


def _without(attributes: Mapping[str, object], left_out: Sequence[str]) -> dict[str, object]:
    return {name: value for name, value in attributes.items() if name not in left_out}


def _value(value: object) -> dict[str, object]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case _:
            return {"stringValue": str(value)}
