"""Records in a form of the caller's own: `regnum consume --format`. Pure."""

import os
import re
from collections.abc import Callable
from typing import Final

from regnum_client.records import ConsumedRecord

Field = Callable[[ConsumedRecord], bytes]

_PART: Final = re.compile(r"%(?P<field>.?)|\\x(?P<byte>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def _headers(record: ConsumedRecord) -> bytes:
    return b",".join(name.encode("utf-8", "surrogateescape") + b"=" + (value or b"") for name, value in record.headers)


_FIELDS: Final[dict[str, Field]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "h": _headers,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
    "V": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
}


class Template:
    r"""A form for records, read once.

    %t topic, %p partition, %o offset, %k key, %v value, %h headers (NAME=VALUE, with commas between), %T timestamp in
    milliseconds, %K and %V bytes of key and value (-1: none), %% a percent sign; \n \t \r \0 \\ \xNN bytes.
    Keys and values are their bytes, and nothing where there are none.
    """

    def __init__(self, text: str) -> None:
        """Raises ValueError that says what is not known."""
        if "%" not in text:
            raise ValueError(
                f"--format {text!r} is neither json nor raw, and no template: one has fields, such as '%k=%v\\n'"
            )
        self._parts: Final[list[bytes | Field]] = []
        for match in _PART.finditer(text):
            self._parts.append(_part(match))

    def render(self, record: ConsumedRecord) -> bytes:
        """A record in this form."""
        return b"".join(part if isinstance(part, bytes) else part(record) for part in self._parts)


def _part(match: re.Match[str]) -> bytes | Field:
    found = match.lastgroup
    content = match[found] if found is not None else ""
    match found:
        case "byte":
            return bytes.fromhex(content)
        case "text":
            # Of an argument: bytes that are no text come back as they were.
            return os.fsencode(content)
        case "escape" if content in _ESCAPES:
            return _ESCAPES[content]
        case "field" if content == "%":
            return b"%"
        case "field" if content in _FIELDS:
            return _FIELDS[content]
        case _:
            raise ValueError(
                f"--format: {match[0]!r} is not known; use %t %p %o %k %v %h %T %K %V %% and \\n \\t \\r \\0 \\\\ \\xNN"
            )
