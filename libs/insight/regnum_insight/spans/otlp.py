"""Spans out of one OTLP document, in every spelling that writers have. Pure.

OTLP's JSON says: ids in hexadecimal, 64-bit integers as text, enums as numbers, names in camel case. Writers that use
protobuf's own JSON have ids in base64 and enums by name; others have snake case, numbers as numbers, or attributes as
one object. One odd field costs that field: a span is given up only where it has no ids, no name, or no times.
"""

import base64
import binascii
import reprlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

from regnum_insight.spans.span import INTEGER_LIMIT, Kind, Span, process_name, span_of

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
_SERVICE: Final = "service.name"
_INSTANCE: Final = "service.instance.id"
_VERSION: Final = "service.version"
_ZONE: Final = "cloud.availability_zone"
_CLUSTER: Final = "regnum.cluster.id"
_RESOURCE: Final = frozenset({_SERVICE, _INSTANCE, _VERSION, _ZONE, _CLUSTER})
_TRACE_ID_DIGITS: Final = 2 * TRACE_ID_BYTES
_SPAN_ID_DIGITS: Final = 2 * SPAN_ID_BYTES
_NO_TRACE: Final = "0" * _TRACE_ID_DIGITS
_NO_SPAN: Final = "0" * _SPAN_ID_DIGITS
_VALUES: Final = frozenset({
    "stringValue", "intValue", "boolValue", "doubleValue", "bytesValue",
    "string_value", "int_value", "bool_value", "double_value", "bytes_value",
})  # fmt: skip
_NO_KIND: Final = Kind.UNSPECIFIED.value
"""A plain number, as all of a span is: a member of the enumeration cannot be packed."""
_KIND_MAX: Final = max(Kind).value
_KINDS: Final = {kind.name: kind.value for kind in Kind}
_ABOUT: Final = reprlib.Repr()
"""Says what was given up, however deep it is or long."""
_ABOUT.maxstring = _ABOUT.maxlong = 100


@dataclass(frozen=True, slots=True)
class Refused:
    """A span that was given up."""

    reason: str
    """What it has not."""
    about: str
    """Its ids and name as they were written, cut to a bound."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a document is looked at: the rest of it costs nothing."""

    is_wanted: Callable[[str], bool] = lambda _: True
    """Says by its name whether a span is."""
    attributes: Collection[str] | None = None
    """Attributes that are kept; None: all."""


ALL: Final = Selection()
"""Everything."""


class Process(NamedTuple):
    """What a document says of the process that wrote it."""

    name: str
    """How spans name it: ``broker 2``."""
    version: str
    """Version of the product; empty where it says none."""
    zone: str
    """Availability zone; empty where it says none."""


class _Writer(NamedTuple):
    """The resource that a group of spans has in common."""

    process: Process
    cluster: str


class Passed(Enum):
    """A span that nothing wanted."""

    PASSED = "passed"


def spans_of(
    document: object, selection: Selection = ALL, processes: set[Process] | None = None
) -> list[Span | Refused | Passed]:
    """The spans of an ``ExportTraceServiceRequest``, of a list of them, or of one ``ResourceSpans``.

    Processes that wrote them are added to ``processes``.
    """
    found: list[Span | Refused | Passed] = []
    for group in _groups(document):
        if not isinstance(group, dict):
            continue
        told = _process(group.get("resource"))
        if processes is not None:
            processes.add(told.process)
        for scope in _scopes(group):
            if isinstance(scope, dict):
                found += _spans(_list(scope, "spans", "spans"), told, selection)
    return found


def _groups(document: object) -> Iterator[Any]:
    """The ``ResourceSpans`` of a document."""
    for one in _objects(document):
        yield from _list(one, "resourceSpans", "resource_spans") or ([one] if _scopes(one) else [])


def _objects(document: object) -> Iterator[dict[str, Any]]:
    """A document, or those of a list of documents, however deep lists lie in lists."""
    pending = [document]
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            pending += reversed(one)
        elif isinstance(one, dict):
            yield one


def is_request(document: object) -> bool:
    """Whether a document is one that holds spans, or could: also one without any."""
    return any(
        name in one
        for one in _objects(document)
        for name in ("resourceSpans", "resource_spans", "scopeSpans", "scope_spans")
    )


def _spans(raws: Iterable[Any], writer: _Writer, selection: Selection) -> Iterator[Span | Refused | Passed]:
    """Spans: read at once where they are written as OTLP says, and field by field otherwise.

    One function with all of it: where there are millions, calls for each would take a third of the time.
    """
    is_wanted, kept = selection.is_wanted, selection.attributes
    (process, version, _), cluster = writer
    for raw in raws:
        try:
            name = raw["name"]
            if not is_wanted(name):
                yield Passed.PASSED if name else _odd_span(raw, writer, selection)
                continue
            trace_id, span_id, kind = raw["traceId"], raw["spanId"], raw["kind"]
            start_ns, end_ns = int(raw["startTimeUnixNano"]), int(raw["endTimeUnixNano"])
            parent_id = raw.get("parentSpanId") or ""
            plain = (
                type(name) is str
                and name != ""
                and len(trace_id) == _TRACE_ID_DIGITS
                and len(span_id) == _SPAN_ID_DIGITS
                and (not parent_id or len(parent_id) == _SPAN_ID_DIGITS)
                # There and back: digits, in lower case, and nothing else.
                and bytes.fromhex(ids := trace_id + span_id + parent_id).hex() == ids
                and trace_id != _NO_TRACE
                and _NO_SPAN not in (span_id, parent_id)
                and type(kind) is int
                and 0 <= kind <= _KIND_MAX
                and 0 < start_ns <= end_ns < INTEGER_LIMIT
            )
        except (TypeError, KeyError, ValueError, OverflowError, AttributeError):
            plain = False
        if not plain:
            yield _odd_span(raw, writer, selection)
            continue
        pairs, linked = raw.get("attributes"), raw.get("links")
        attributes = _attributes(pairs, kept) if pairs else {}
        links = _links(linked) if linked else ()
        yield span_of(
            (trace_id, span_id, parent_id, name, kind, start_ns, end_ns, process, attributes, links, version, cluster)
        )


def _odd_span(raw: object, writer: _Writer, selection: Selection) -> Span | Refused | Passed:
    if not isinstance(raw, dict):
        return Refused("a span that is no object", _ABOUT.repr(raw)[:200])
    name = raw.get("name")
    if isinstance(name, str) and name and not selection.is_wanted(name):
        return Passed.PASSED
    trace_id = _id(raw.get("traceId") or raw.get("trace_id"), TRACE_ID_BYTES)
    span_id = _id(raw.get("spanId") or raw.get("span_id"), SPAN_ID_BYTES)
    start_ns = _integer(raw.get("startTimeUnixNano") or raw.get("start_time_unix_nano")) or 0
    end_ns = _integer(raw.get("endTimeUnixNano") or raw.get("end_time_unix_nano")) or 0
    if not (trace_id and span_id and isinstance(name, str) and name and 0 < start_ns <= end_ns < INTEGER_LIMIT):
        return _refused(raw, has_ids=bool(trace_id and span_id), start_ns=start_ns, end_ns=end_ns)
    return Span(
        trace_id,
        span_id,
        _id(raw.get("parentSpanId") or raw.get("parent_span_id"), SPAN_ID_BYTES),
        name,
        _kind(raw.get("kind")),
        start_ns,
        end_ns,
        writer.process.name,
        _attributes(raw.get("attributes"), selection.attributes),
        _links(raw["links"]) if raw.get("links") else (),
        writer.process.version,
        writer.cluster,
    )


def _refused(raw: Mapping[str, Any], *, has_ids: bool, start_ns: int, end_ns: int) -> Refused:
    if not has_ids:
        reason = "no ids"
    elif start_ns <= 0 or end_ns <= 0 or max(start_ns, end_ns) >= INTEGER_LIMIT:
        reason = "no times"
    elif end_ns < start_ns:
        reason = "an end before its beginning"
    else:
        reason = "no name"
    about = {key: raw.get(key) for key in ("traceId", "trace_id", "spanId", "span_id", "name") if key in raw}
    return Refused(f"a span with {reason}", _ABOUT.repr(about)[:300])


def _scopes(group: Mapping[str, Any]) -> Sequence[Any]:
    return _list(group, "scopeSpans", "scope_spans") or _list(
        group, "instrumentationLibrarySpans", "instrumentation_library_spans"
    )


def _process(resource: object) -> _Writer:
    attributes = _attributes(resource.get("attributes"), _RESOURCE) if isinstance(resource, dict) else {}
    of = attributes.get
    return _known(of(_SERVICE, ""), of(_INSTANCE, ""), of(_VERSION, ""), of(_ZONE, ""), of(_CLUSTER, ""))


@lru_cache(maxsize=4096)
def _known(service: str, instance: str, version: str, zone: str, cluster: str) -> _Writer:
    return _Writer(Process(process_name(service, instance), version, zone), cluster)


def _links(raw: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(raw, list):
        return ()
    found = []
    for link in raw:
        if isinstance(link, dict):
            trace_id = _id(_of(link, "traceId", "trace_id"), TRACE_ID_BYTES)
            if trace_id:
                found.append((trace_id, _id(_of(link, "spanId", "span_id"), SPAN_ID_BYTES)))
    return tuple(found)


def _attributes(raw: object, kept: Collection[str] | None = None) -> dict[str, str]:
    if type(raw) is list and kept is not None:
        found: dict[str, str] = {}
        try:
            for pair in raw:
                key = pair["key"]
                if key in kept:
                    value = pair["value"]
                    # What nearly every attribute is.
                    text = value.get("stringValue") or value.get("intValue")
                    if type(text) is not str or len(value) > 1:
                        ((_, text),) = value.items()
                        if type(text) is not str:
                            text = _text(value)
                    if text is not None:
                        found[key] = text
        except (TypeError, KeyError, ValueError, AttributeError, RecursionError):
            # One odd attribute costs itself.
            return _odd_attributes(raw, kept)
        return found
    return _odd_attributes(raw, kept)


def _odd_attributes(raw: object, kept: Collection[str] | None) -> dict[str, str]:
    """Attributes in any spelling: a list of pairs of which some are none, or one object."""
    if isinstance(raw, list):
        pairs = [(pair.get("key"), pair.get("value")) for pair in raw if isinstance(pair, dict)]
    elif isinstance(raw, dict):
        pairs = list(raw.items())
    else:
        return {}
    return {
        key: text
        for key, value in pairs
        if isinstance(key, str) and (kept is None or key in kept) and (text := _text_if_flat(value)) is not None
    }


def _text_if_flat(value: object) -> str | None:
    """The same as ``_text``; None also where values lie in values so deep that nobody can have meant it."""
    try:
        return _text(value)
    except RecursionError:
        return None


def _text(value: object) -> str | None:
    """A value as text; lists are joined by commas; None where there is nothing."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case list():
            return ",".join(text for item in value if (text := _text(item)) is not None)
        case dict():
            return _text_of_any_value(value)
        case _:
            return None


def _text_of_any_value(value: Mapping[str, Any]) -> str | None:
    for name, of in value.items():
        if name in _VALUES:
            return _text(of)
    array = value.get("arrayValue") or value.get("array_value")
    if isinstance(array, dict):
        return _text(_list(array, "values", "values"))
    pairs = value.get("kvlistValue") or value.get("kvlist_value")
    if isinstance(pairs, dict):
        return ",".join(f"{key}={text}" for key, text in _attributes(pairs.get("values")).items())
    return None


def _id(raw: object, length: int) -> str:
    """An id in hexadecimal digits; empty where there is none, or it is all zero, or it is no id."""
    if type(raw) is not str or not raw:
        return ""
    try:
        value = bytes.fromhex(raw) if len(raw) == 2 * length else base64.b64decode(raw, validate=True)
    except (ValueError, binascii.Error):
        return ""
    return value.hex() if len(value) == length and any(value) else ""


def _integer(raw: object) -> int | None:
    if isinstance(raw, bool):
        return None
    if isinstance(raw, str | int):
        try:
            # (Digits by the thousand are refused, too.)
            return int(raw)
        except ValueError:
            return None
    return int(raw) if isinstance(raw, float) and raw.is_integer() else None


def _kind(raw: object) -> int:
    if type(raw) is int and 0 <= raw <= _KIND_MAX:
        return raw
    if isinstance(raw, str) and not raw.isdigit():
        return _KINDS.get(raw.upper().removeprefix("SPAN_KIND_"), _NO_KIND)
    value = _integer(raw)
    return value if value is not None and _NO_KIND <= value <= _KIND_MAX else _NO_KIND


def _of(raw: Mapping[str, Any], camel: str, snake: str) -> object:
    value = raw.get(camel)
    return raw.get(snake) if value is None else value


def _list(raw: Mapping[str, Any], camel: str, snake: str) -> list[Any]:
    value = _of(raw, camel, snake)
    return value if isinstance(value, list) else []
