"""Spans as OTLP/JSON lines, the format of the collector's file exporter: one ``{"resourceSpans": [...]}`` per line.

Ids are hex, enums are integers, 64-bit integers text, and what is empty is left out. Written from the spans themselves:
by way of OpenTelemetry's encoder and protobuf's JSON each span costs twenty times as much, and an export holds the
interpreter of a process that has a change of leadership to carry out. A test compares the two.
"""

import json
import logging
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind

PARTS: Final = 4
"""Files that the bytes of a process are divided among: the one that is written, and those that were set aside."""

_KINDS: Final = {
    SpanKind.INTERNAL: 1,
    SpanKind.SERVER: 2,
    SpanKind.CLIENT: 3,
    SpanKind.PRODUCER: 4,
    SpanKind.CONSUMER: 5,
}
_PARENT_KNOWN: Final = 0x100
"""Flag: whether the parent is of another process is said, by"""
_PARENT_REMOTE: Final = 0x200
"""this one."""


def encode(spans: Sequence[ReadableSpan]) -> bytes:
    """One line."""
    # By identity: to compare two resources takes longer than to write one.
    groups: dict[tuple[int, int], list[ReadableSpan]] = {}
    for span in spans:
        groups.setdefault((id(span.resource), id(span.instrumentation_scope)), []).append(span)
    document = {
        "resourceSpans": [
            {
                **_resource(of[0].resource),
                "scopeSpans": [{**_scope(of[0].instrumentation_scope), "spans": [_span(span) for span in of]}],
            }
            for of in groups.values()
        ]
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _resource(resource: Resource) -> dict[str, Any]:
    return {"resource": {"attributes": _attributes(resource.attributes)}}


def _scope(scope: InstrumentationScope | None) -> dict[str, Any]:
    return {} if scope is None else {"scope": {"name": scope.name}}


def _span(span: ReadableSpan) -> dict[str, Any]:
    place, parent, status = span.context, span.parent, span.status
    made: dict[str, Any] = {"traceId": f"{place.trace_id:032x}", "spanId": f"{place.span_id:016x}"}
    if place.trace_state:
        made["traceState"] = place.trace_state.to_header()
    if parent is not None:
        made["parentSpanId"] = f"{parent.span_id:016x}"
    made["name"] = span.name
    made["kind"] = _KINDS[span.kind]
    made["startTimeUnixNano"] = str(span.start_time)
    made["endTimeUnixNano"] = str(span.end_time)
    if span.attributes:
        made["attributes"] = _attributes(span.attributes)
    if span.dropped_attributes:
        made["droppedAttributesCount"] = span.dropped_attributes
    if span.links:
        made["links"] = [_link(link) for link in span.links]
    if span.dropped_links:
        made["droppedLinksCount"] = span.dropped_links
    code = status.status_code.value
    made["status"] = {"code": code} if code else {}
    made["flags"] = _flags(parent)
    return made


def _link(link: Link) -> dict[str, Any]:
    there = link.context
    return {"traceId": f"{there.trace_id:032x}", "spanId": f"{there.span_id:016x}", "flags": _flags(there)}


def _flags(place: SpanContext | None) -> int:
    return _PARENT_KNOWN | _PARENT_REMOTE if place is not None and place.is_remote else _PARENT_KNOWN


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    """A value as OpenTelemetry's API takes it: text, a truth value, a number, or a sequence of such."""
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _NOT_FINITE[str(value)]}
    return {"arrayValue": {"values": [_value(item) for item in value]}}


_NOT_FINITE: Final = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
"""Numbers for which JSON has no other form, by Python's names."""


class JsonLinesFile:
    """A sink that appends to a file. Each line is one write: what was written survives the process.

    A file that would grow beyond a quarter of ``bytes_max`` is set aside: ``regnum-broker-1.jsonl`` becomes
    ``regnum-broker-1.000001.jsonl``, the next one ``.000002``, and the oldest go, so that all together have no more
    than ``bytes_max``. Readers find them by the same pattern, and a name stands for the same lines for ever. A file
    that somebody else moved or removed is made again.
    """

    def __init__(self, path: Path, *, bytes_max: int) -> None:
        """Only assigns; ``bytes_max``: of all files of this name."""
        self._path: Final = path
        self._bytes_max: Final = bytes_max
        self._descriptor: int | None = None
        self._failed = False
        self._begun = b""
        """What ends the last line of the file, where a kill or a full disk left half of it."""

    def export(self, spans: Sequence[ReadableSpan]) -> bool:
        """Append a line; False when the file cannot be written."""
        encoded = encode(spans)
        try:
            file = self._file_for(len(encoded))
            line = self._begun + encoded
            written = os.write(file, line)
        except OSError as error:
            if not self._failed:
                logging.getLogger(__name__).warning("cannot write traces to %s: %s", self._path, error.strerror)
            self._failed = True
            return False
        self._begun = b"" if written == len(line) else b"\n"
        return not self._begun

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _file_for(self, size: int) -> int:
        """A file with room for so many bytes."""
        file = self._descriptor
        if file is None or not self._is_there(file):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._reopen()
        there = os.fstat(file).st_size
        if there and there + len(self._begun) + size > self._bytes_max // PARTS:
            self._set_aside()
            file = self._reopen()
        return file

    def _is_there(self, file: int) -> bool:
        """Whether it is the file of that name still."""
        try:
            return os.path.samestat(os.fstat(file), self._path.stat())
        except FileNotFoundError:
            return False

    def _reopen(self) -> int:
        self.close()
        file = self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = os.fstat(file).st_size
        self._begun = b"\n" if size and os.pread(file, 1, size - 1) != b"\n" else b""
        return file

    def _set_aside(self) -> None:
        before = self._numbered()
        number = before[-1][0] + 1 if before else 1
        if self._path.exists():
            self._path.rename(self._path.with_name(f"{self._path.stem}.{number:06}{self._path.suffix}"))
        room = self._bytes_max - self._bytes_max // PARTS
        for _, aside in reversed(self._numbered()):
            room -= aside.stat().st_size
            if room < 0:
                aside.unlink()

    def _numbered(self) -> list[tuple[int, Path]]:
        """Files that were set aside, the oldest first."""
        name = re.compile(rf"{re.escape(self._path.stem)}\.(\d{{6,}}){re.escape(self._path.suffix)}")
        found = ((name.fullmatch(file.name), file) for file in self._path.parent.iterdir())
        return sorted((int(match[1]), file) for match, file in found if match)
