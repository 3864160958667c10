"""Which records `regnum consume` shows: searched by value, key and headers. Pure."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from regnum_client.records import ConsumedRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What a record has to have; all of it."""

    value: re.Pattern[bytes] | None = None
    """Found somewhere in its value; None: any value."""
    key: bytes | None = None
    """Its key; None: any."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Names and values of headers; None: any value of that name."""

    def finds(self, record: ConsumedRecord) -> bool:
        """Whether a record has it."""
        if self.key is not None and record.key != self.key:
            return False
        if self.value is not None and self.value.search(record.value or b"") is None:
            return False
        return all(
            any(name == there and (value is None or value == content) for there, content in record.headers)
            for name, value in self.headers
        )


def search_of(pattern: str | None, key: str | None, headers: Sequence[str]) -> Search | None:
    """A search as people write it; None: for nothing. Raises ValueError that says what is allowed.

    Args:
        pattern: regular expression, found somewhere in the value.
        key: the whole key.
        headers: NAME or NAME=VALUE each.
    """
    if pattern is None and key is None and not headers:
        return None
    try:
        value = None if pattern is None else re.compile(os.fsencode(pattern))
    except re.error as error:
        raise ValueError(f"--grep {pattern!r} is no regular expression: {error}; write \\( for a bracket") from None
    wanted: list[tuple[str, bytes | None]] = []
    for text in headers:
        name, equals, content = text.partition("=")
        if not name:
            raise ValueError(f"--header {text!r} names no header; give NAME or NAME=VALUE")
        wanted.append((name, os.fsencode(content) if equals else None))
    return Search(value=value, key=None if key is None else os.fsencode(key), headers=tuple(wanted))
