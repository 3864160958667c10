"""What of records the pages may not show: masks of topics, put on before a page, a search or a stream reads a record.

Goals: no byte that is masked reaches a browser, and no search finds it. What cannot be masked in part is masked whole.

Algorithm: masks lie in the reader, which every page takes its records from. A JSON value is parsed and written anew, so
that what a repeated name hides is gone as well.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

from regnum_client.consumer.positions import EARLIEST, Start
from regnum_client.records import ConsumedRecord, TopicPartition

from regnum_console.port import Reader

MASKED: Final = "(masked)"
"""Stands in place of what is masked."""
WHOLE: Final = ("value", "key", "headers")
"""Parts of a record that are masked whole."""
NAMED: Final = ("field", "header")
"""Parts that have names: members of JSON objects in values, at any depth, and headers."""
_BYTES: Final = MASKED.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """Masks one part of the records of some topics."""

    topics: str
    """Their name; ``*`` stands for any text, ``?`` for one character."""
    part: str
    """One of WHOLE or NAMED."""
    name: str = ""
    """Of a part that has one; upper and lower case are the same."""

    def __str__(self) -> str:
        return f"{self.part}:{self.name}" if self.name else self.part


def mask_of(text: str) -> Mask:
    """A mask as people write it: ``customers=value``, ``pay-*=field:card``.

    Raises ValueError that says what is allowed.

    >>> mask_of("orders=header:authorization")
    Mask(topics='orders', part='header', name='authorization')
    """
    topics, _, masked = text.partition("=")
    part, colon, name = masked.partition(":")
    complete = bool(name) if part in NAMED else part in WHOLE and not colon
    if not topics or not complete:
        raise ValueError(
            f"{text!r} is no mask: give TOPIC=value, TOPIC=key, TOPIC=headers, TOPIC=field:NAME for members of JSON"
            " values, or TOPIC=header:NAME; * in TOPIC stands for any text"
        )
    return Mask(topics=topics, part=part, name=name)


class TopicMasks:
    """The masks of one topic. Pure."""

    def __init__(self, masks: Iterable[Mask]) -> None:
        of = [*masks]
        self._whole: Final = frozenset(one.part for one in of if one.part in WHOLE)
        self._headers: Final = frozenset(one.name.casefold() for one in of if one.part == "header")
        self.fields: Final = frozenset(one.name.casefold() for one in of if one.part == "field")
        """Names of masked members of JSON values."""

    def masked(self, record: ConsumedRecord) -> ConsumedRecord:
        """A record as it may be shown. What it does not have (None) stays so."""
        value = record.value
        if value is not None and "value" in self._whole:
            value = _BYTES
        elif value is not None and self.fields:
            value = _without(value, self.fields)
        return record._replace(
            key=_BYTES if record.key is not None and "key" in self._whole else record.key,
            value=value,
            headers=tuple(
                (name, _BYTES if content is not None and self._hides(name) else content)
                for name, content in record.headers
            ),
        )

    def _hides(self, header: str) -> bool:
        return "headers" in self._whole or header.casefold() in self._headers


class Masks:
    """The masks of a console."""

    def __init__(self, masks: Sequence[Mask] = ()) -> None:
        """Only assigns."""
        self._masks: Final = masks

    def __bool__(self) -> bool:
        return bool(self._masks)

    def of(self, topic: str) -> tuple[Mask, ...]:
        """Those of a topic."""
        return tuple(one for one in self._masks if fnmatchcase(topic, one.topics))

    def words(self, topic: str) -> tuple[str, ...]:
        """The same for a person, each once."""
        return tuple(dict.fromkeys(map(str, self.of(topic))))

    def reader(self, opened: AbstractAsyncContextManager[Reader]) -> AbstractAsyncContextManager[Reader]:
        """A reader of masked records; the one that is given where nothing is masked."""
        return self._reading(opened) if self else opened

    @asynccontextmanager
    async def _reading(self, opened: AbstractAsyncContextManager[Reader]) -> AsyncIterator[Reader]:
        async with opened as reader:
            yield MaskedReader(reader, self)


class MaskedReader:
    """Puts masks on what another reader reads."""

    def __init__(self, reader: Reader, masks: Masks) -> None:
        """Only assigns."""
        self._reader: Final = reader
        self._masks: Final = masks
        self._of: dict[str, TopicMasks | None] = {}

    async def assign(
        self, topic: str, *, partitions: Iterable[int] | None = None, start: Start = EARLIEST
    ) -> Sequence[TopicPartition]:
        """See Reader."""
        return await self._reader.assign(topic, partitions=partitions, start=start)

    async def read(self, *, records_max: int = 500, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """See Reader; all of them masked."""
        found = []
        for one in await self._reader.read(records_max=records_max, timeout_s=timeout_s):
            masks = self._masks_of(one.topic)
            found.append(one if masks is None else masks.masked(one))
            if masks is not None and masks.fields:
                # A thousand large values take long to parse, and other pages are served meanwhile.
                await asyncio.sleep(0)
        return found

    def _masks_of(self, topic: str) -> TopicMasks | None:
        if topic not in self._of:
            of = self._masks.of(topic)
            self._of[topic] = TopicMasks(of) if of else None
        return self._of[topic]

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See Reader."""
        return await self._reader.beginning_offsets(partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See Reader."""
        return await self._reader.end_offsets(partitions)

    def position(self, partition: TopicPartition) -> int:
        """See Reader."""
        return self._reader.position(partition)


def _without(data: bytes, names: frozenset[str]) -> bytes:
    """A JSON object or list without the contents of some members; all else is masked whole.

    It has a space after colons and commas where what was written has one, so that searches find what is not masked.
    """
    try:
        value = json.loads(data)
        if not isinstance(value, dict | list):
            return _BYTES
        separators = (", ", ": ") if b'": ' in data else (",", ":")
        return json.dumps(_replaced(value, names), ensure_ascii=False, separators=separators).encode()
    except (ValueError, RecursionError):
        return _BYTES


def _replaced(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {
            name: MASKED if name.casefold() in names else _replaced(within, names) for name, within in value.items()
        }
    return [_replaced(one, names) for one in value] if isinstance(value, list) else value
