"""W3C trace context: ``traceparent`` in gRPC metadata and in messages. Pure."""

import re
from collections.abc import Container, Iterable, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

TRACEPARENT: Final = "traceparent"
"""Metadata key."""

RECOVERING: Final = "regnum-recovering"
"""Metadata key by which a client that comes back asks for the causes of leaderships.

Its value names the spans that the client is about to record in the traces of these causes, by partition: ``topic
id:0=span id,topic id:3=span id``. What the leader records of the call lies below them. Without any it is ``1``.
"""

NAMED_MAX: Final = 100
"""Partitions that one call names spans of; metadata is small."""

CAUSES: Final = "regnum-cause"
"""Trailing metadata key of the answer to that: ``traceparent;0,3``, once for each cause, with places in the request."""

FETCH_CAUSES: Final = "regnum-fetch-cause"
"""The same for a consumer: ``traceparent;topic id:0,topic id:3``. What its caller may not read is taken out of a
request before that is served, so places would not be the same to both."""

CAUSES_BYTES_MAX: Final = 6 * 1024
"""Bytes of these in one answer, as gRPC counts them. Where the trailing metadata has more than 8 KiB, its clients fail
calls that were carried out: some of them, or all. The rest of that is for what else an answer has there."""

ENTRY_BYTES: Final = 32
"""So many does gRPC count for each entry besides its key and its value."""

SAMPLED: Final = 0x01
"""The flag that matters; others may be set as well."""

_PATTERN: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


_NAMED: Final = re.compile(
    r"(?P<topic_id>[^:=,]{1,64}):(?P<partition>[0-9]{1,9})=(?P<span_id>(?!0{16})[0-9a-f]{16})(?:,|$)", re.ASCII
)


class TraceContext(NamedTuple):
    """Where a span is: what goes from process to process."""

    trace_id: str
    """32 hex digits."""
    span_id: str
    """16 hex digits."""
    flags: int
    """Trace flags."""

    @property
    def sampled(self) -> bool:
        """Whether spans of this trace are recorded."""
        return bool(self.flags & SAMPLED)


def parse(traceparent: str) -> TraceContext | None:
    """The context that a traceparent names; None for anything that is not one."""
    found = _PATTERN.fullmatch(traceparent)
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == "ff" or (version == "00" and rest) or not int(trace_id, 16) or not int(span_id, 16):
        return None
    return TraceContext(trace_id=trace_id, span_id=span_id, flags=int(flags, 16))


def render(context: TraceContext) -> str:
    """As traceparent."""
    return f"00-{context.trace_id}-{context.span_id}-{context.flags:02x}"


def beside(place: str, span_id: str) -> str:
    """The span of that id in the same trace, as traceparent; empty where ``place`` or the id is none."""
    known = parse(place) if span_id else None
    return "" if known is None else render(known._replace(span_id=span_id))


def waiting_id(change: str, topic_id: str, partition: int, offset: int) -> str:
    """Id for the client's span of a call that waited until ``change``: it and the leader come to it by themselves.

    A client learns from the answer what its call waited for, and the leader never of the client's span.
    """
    named = f"{change} {topic_id}:{partition}={offset}".encode()
    return blake2b(named, digest_size=8).hexdigest() if change else ""


def root_of(place: str) -> str:
    """The root of the change of leadership that a span belongs to: its id is the end of the trace id (as in B3)."""
    known = parse(place)
    return "" if known is None else render(known._replace(span_id=known.trace_id[16:]))


def render_recovering(spans: Mapping[tuple[str, int], str]) -> str:
    """Value of RECOVERING: ids of spans by topic id and partition."""
    named = islice(spans.items(), NAMED_MAX)
    return ",".join(f"{topic_id}:{partition}={span_id}" for (topic_id, partition), span_id in named) or "1"


def parse_recovering(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[tuple[str, int], str] | None:
    """Ids of spans by topic id and partition, without those that do not parse; None: the caller asks for nothing."""
    for key, value in metadata or ():
        if key == RECOVERING and isinstance(value, str):
            found = islice(_NAMED.finditer(value), NAMED_MAX)
            return {(one["topic_id"], int(one["partition"])): one["span_id"] for one in found}
    return None


def from_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The traceparent in gRPC metadata; empty when there is none that can be used."""
    for key, value in metadata or ():
        if key == TRACEPARENT and isinstance(value, str) and parse(value) is not None:
            return value
    return ""


def render_causes(causes: Iterable[tuple[int, str]], *, first: Container[int] = ()) -> list[tuple[str, str]]:
    """Trailing metadata that names the cause of the leadership of each place; places without one are left out.

    Where there is no room for all of them, those of ``first`` are named before the others.
    """
    ordered = sorted(causes, key=lambda one: one[0] not in first)
    return _by_cause(CAUSES, ((str(place), cause) for place, cause in ordered))


def render_fetch_causes(
    causes: Iterable[tuple[str, int, str]], *, first: Container[tuple[str, int]] = ()
) -> list[tuple[str, str]]:
    """The same by partition: topic id, number, cause."""
    ordered = sorted(causes, key=lambda one: one[:2] not in first)
    return _by_cause(FETCH_CAUSES, ((f"{topic_id}:{partition}", cause) for topic_id, partition, cause in ordered))


def _by_cause(key: str, causes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    named: dict[str, list[str]] = {}
    size = 0
    for name, cause in causes:
        if not cause:
            continue
        size += len(name) + 1 + (0 if cause in named else ENTRY_BYTES + len(key) + len(cause))
        if size > CAUSES_BYTES_MAX:
            break
        named.setdefault(cause, []).append(name)
    return [(key, f"{cause};{','.join(held)}") for cause, held in named.items()]


def parse_fetch_causes(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[tuple[str, int], str]:
    """Cause by topic id and partition; what does not parse is left out."""
    causes: dict[tuple[str, int], str] = {}
    for key, value in metadata or ():
        if key != FETCH_CAUSES or not isinstance(value, str):
            continue
        cause, _, partitions = value.partition(";")
        if parse(cause) is not None:
            for one in partitions.split(","):
                topic_id, _, number = one.rpartition(":")
                if topic_id and number.isascii() and number.isdigit():
                    causes[topic_id, int(number)] = cause
    return causes


def parse_causes(metadata: Iterable[tuple[str, str | bytes]] | None) -> dict[int, str]:
    """Cause by place; what does not parse is left out."""
    causes: dict[int, str] = {}
    for key, value in metadata or ():
        if key != CAUSES or not isinstance(value, str):
            continue
        cause, _, places = value.partition(";")
        if parse(cause) is not None:
            causes.update((int(place), cause) for place in places.split(",") if place.isascii() and place.isdigit())
    return causes
