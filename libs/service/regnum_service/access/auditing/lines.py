"""An audit line: JSON, one object a line, never longer than ``LINE_BYTES_MAX``, whatever names clients make up. Pure.

Example: {"time": "2026-11-23T07:30:00.120Z", "event": "mutated", "process": "election-1", "principal": "User:alice",
"token": false, "client_id": "cli", "client_host": "10.0.0.7", "listener": "client", "encrypted": true,
"forwarded": false, "via": "", "certificate": "CN=alice", "call": "AdminService/CreateTopics", "operation": "",
"resource": "topic:orders", "result": "NONE", "detail": "", "rule": "", "trace_id": "", "count": 1}
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from regnum_service.access.identity import Caller

LINE_BYTES_MAX: Final = 4_096
"""Longest line, its end included. Names are cut so that it holds."""

SUBJECT_CHARACTERS_MAX: Final = 400
"""Characters that are kept of a name until its line is made: a client may send megabytes."""

MUTATED: Final = "mutated"
"""Event of something that a call changed, or was to change."""
DENIED: Final = "denied"
"""Event of a refusal."""
UNAUTHENTICATED: Final = "unauthenticated"
"""Event of a call whose caller is not believed: a token, or a certificate; ``rule`` says why."""
MISSED: Final = "missed"
"""Event of lines that are not there: ``count`` of them were dropped, because the disk was full or too slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a line says, but when. Equal ones may be counted instead of repeated."""

    event: str
    """MUTATED, DENIED, UNAUTHENTICATED or MISSED."""
    who: Caller
    """Whose call it was."""
    client_id: str = ""
    """As the request had it."""
    call: str = ""
    """``AdminService/CreateTopics``."""
    operation: str = ""
    """Of a refusal: ``CREATE``."""
    resource: str = ""
    """``topic:orders``."""
    result: str = ""
    """Reason of the error; ``NONE``."""
    rule: str = ""
    """Of a refusal: what decided."""
    detail: str = field(default="", compare=False)
    """A few more words."""
    trace_id: str = field(default="", compare=False)
    """Of the first that is counted; empty: none."""


def rendered(entry: Entry, *, at_ms: int, process: str, count: int = 1) -> bytes:
    """The line, with its end.

    Args:
        entry: what happened.
        at_ms: when, in milliseconds since 1970; of several the first.
        process: whose log it is.
        count: how often.
    """
    who = entry.who
    return (
        json.dumps(
            {
                "time": _time(at_ms),
                "event": entry.event,
                "process": fitted(process, 64),
                "principal": fitted(str(who.principal), 1_100),
                "token": who.principal.token_authenticated,
                "client_id": fitted(entry.client_id, 300),
                "client_host": fitted(who.host, 64),
                "listener": fitted(who.listener, 32),
                "encrypted": who.encrypted,
                "forwarded": who.forwarded,
                "via": fitted(who.via, 170),
                "certificate": fitted(who.subject, 150),
                "call": fitted(entry.call, 100),
                "operation": fitted(entry.operation, 32),
                "resource": fitted(entry.resource, 600),
                "result": fitted(entry.result, 64),
                "detail": fitted(entry.detail, 400),
                "rule": fitted(entry.rule, 600),
                "trace_id": fitted(entry.trace_id, 32),
                "count": count,
            }
        )
        + "\n"
    ).encode("ascii")


def fitted(text: str, bytes_max: int) -> str:
    """The text, or its beginning and its length, so that JSON needs at most ``bytes_max`` bytes for it."""
    if len(text) * 2 <= bytes_max and text.isascii() and text.isprintable():
        return text
    if len(text) <= bytes_max and _size(text) <= bytes_max:
        return text
    note = f"... ({len(text)} characters)"
    room = max(0, bytes_max - len(note))
    kept = text[:room]
    while kept and (size := _size(kept)) > room:
        kept = kept[: min(len(kept) - 1, len(kept) * room // size)]
    return (kept + note)[:bytes_max]


def kept(text: str) -> str:
    """The text, shortened while it waits for its line; says how long it was."""
    if len(text) <= SUBJECT_CHARACTERS_MAX:
        return text
    return f"{text[:SUBJECT_CHARACTERS_MAX]}... ({len(text)} characters)"


def joined(names: Sequence[object], *, most: int = 20) -> str:
    """Names for ``detail``: the first of them, and how many more there are."""
    text = ",".join(str(name) for name in names[:most])
    return text if len(names) <= most else f"{text} and {len(names) - most} more"


def _size(text: str) -> int:
    return len(json.dumps(text)) - 2


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
