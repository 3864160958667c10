"""Which records a search shows: by texts in key, value and headers. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from regnum_client.records import ConsumedRecord

ASKED: Final = ("search", "key", "value", "header")
"""Fields of the form that make a search of a page of records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """What a record has to have; all of it. Each text in any of its spellings; none: nothing is asked for."""

    anywhere: tuple[bytes, ...] = ()
    """In its key, its value, or the name or content of a header."""
    key: tuple[bytes, ...] = ()
    """In its key."""
    value: tuple[bytes, ...] = ()
    """In its value."""
    header: str = ""
    """Name of a header that it has; empty: any."""
    content: tuple[bytes, ...] = ()
    """In the content of a header of that name."""

    def finds(self, record: ConsumedRecord) -> bool:
        """Whether a record has it."""
        return (
            _in(record.key, self.key)
            and _in(record.value, self.value)
            and self._has_header(record)
            and (not self.anywhere or any(_in(one, self.anywhere) for one in _all(record)))
        )

    def _has_header(self, record: ConsumedRecord) -> bool:
        if not self.header and not self.content:
            return True
        return any(self.header in {"", name} and _in(of, self.content) for name, of in record.headers)


def filter_of(asked: Mapping[str, str]) -> RecordFilter | None:
    """The filter of a form, by the names in ASKED; ``header`` is NAME or NAME=TEXT. None: nothing is asked for."""
    texts = {name: asked.get(name, "") for name in ASKED}
    if not any(texts.values()):
        return None
    name, _, content = texts["header"].partition("=")
    return RecordFilter(
        anywhere=_spellings(texts["search"]),
        key=_spellings(texts["key"]),
        value=_spellings(texts["value"]),
        header=name,
        content=_spellings(content),
    )


def _spellings(text: str) -> tuple[bytes, ...]:
    r"""A text as it may stand in records: as UTF-8, and as JSON may escape it (``Zo\u00eb`` is shown as Zoë)."""
    if not text:
        return ()
    escaped = json.dumps(text)[1:-1].encode()
    return tuple({text.encode(): None, escaped: None})


def _in(data: bytes | None, spellings: tuple[bytes, ...]) -> bool:
    return not spellings or any(wanted in (data or b"") for wanted in spellings)


def _all(record: ConsumedRecord) -> list[bytes | None]:
    within = [record.key, record.value]
    for name, content in record.headers:
        within += [name.encode("utf-8", "surrogateescape"), content]
    return within
