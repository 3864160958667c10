"""A record for people: its bytes as text, as JSON, or as bytes. Pure.

What is shown of each record is bounded, so that a page of records is.
"""

import json
import re
from typing import Final

from regnum_client.commands.looking.event_words import record_time_of
from regnum_client.records import ConsumedRecord

from regnum_console.html import Child, Markup, el, table

FORMS: Final = ("auto", "text", "json", "bytes")
"""How bytes are shown; auto: JSON that is an object or a list is laid out, other UTF-8 without control characters is
text, all else bytes."""
SHOWN_BYTES: Final = 4_096
"""So much of a key or a value is shown."""
LEVELS_MAX: Final = 32
LAID_OUT_MAX: Final = 4 * SHOWN_BYTES
"""JSON of more levels, or that has more characters when it is laid out, is shown as text."""
HEADERS_SHOWN: Final = 20
"""Headers of a record that are shown."""
_LINE: Final = 16
_UNREADABLE: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]")
"""What no text has: control characters but for those of lines and tabs, and what was no UTF-8."""


def shown(data: bytes | None, form: str) -> str:
    """Bytes in a form; what they are not in that form, as bytes."""
    if data is None:
        return "(none)"
    cut = data[:SHOWN_BYTES]
    more = f"\n... {len(data) - SHOWN_BYTES:,} bytes more" if len(data) > SHOWN_BYTES else ""
    if form in {"auto", "json"} and not more and (laid_out := _json(cut, always=form == "json")) is not None:
        return laid_out
    if form != "bytes":
        # The cut may lie within a character.
        text = cut.decode("utf-8", "ignore" if more else "replace")
        if form == "text" or not _UNREADABLE.search(text):
            return text + more
    return _bytes(cut) + more


def _json(data: bytes, *, always: bool) -> str | None:
    if not always and data.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    # Each level is written farther to the right: what is deep becomes larger than it was by as much.
    laid_out = json.dumps(value, indent=2, ensure_ascii=False) if _is_flat(value, LEVELS_MAX) else None
    return laid_out if laid_out is not None and len(laid_out) <= LAID_OUT_MAX else None


def _is_flat(value: object, levels: int) -> bool:
    """Whether JSON has at most so many levels."""
    within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels > 0 and all(_is_flat(one, levels - 1) for one in within)


def _bytes(data: bytes) -> str:
    lines = []
    for begin in range(0, len(data), _LINE):
        some = data[begin : begin + _LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in some)
        lines.append(f"{begin:04x}  {some.hex(' '):<{3 * _LINE}} {text}")
    return "\n".join(lines)


def records_table(records: list[ConsumedRecord], form: str) -> Markup:
    """Records as rows."""
    rows: list[list[Child]] = []
    for one in records:
        headers = [f"{name}={shown(value, 'auto')[:200]}" for name, value in one.headers[:HEADERS_SHOWN]]
        rows.append(
            [
                one.partition,
                f"{one.offset:,}",
                record_time_of(one.timestamp_ms),
                el("pre", shown(one.key, form)),
                el("pre", shown(one.value, form)),
                el("pre", "\n".join(headers)) if headers else "-",
            ]
        )
    columns = ("Partition", "Offset", "Time", "Key", "Value", "Headers")
    return table(columns, rows, empty="No record.", caption="Records")


def size_of(record: ConsumedRecord) -> int:
    """Bytes of key, value and headers."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
