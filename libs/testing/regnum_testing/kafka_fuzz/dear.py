"""Requests that are as dear as the protocol lets them be: as many items as one may have, in each array in turn.

| what is attacked | how |
|---|---|
| a call that does its items in one go | each array of each call, one after another, with ITEMS_MAX elements |
| a reader that counts elements of one array only | elements of an outer array with one inner element each |
| names and ids that are looked up, or kept | all different; none of them is there |
"""

import itertools
import struct
import uuid
from collections.abc import Iterator
from typing import Final

from regnum_kafka_wire.apis import APIS, Api
from regnum_kafka_wire.primitives import ITEMS_MAX, put_unsigned

from regnum_testing.kafka_wire.schema import FIXED, MESSAGES, Field, Struct, versions_of

CLIENT: Final = b"dear"
NUMBER: Final = 7
"""The correlation id of each."""
PADDING: Final = 100
"""Items that are left for arrays with one element."""

Path = tuple[str, ...]


def arrays_of(struct: Struct, path: Path = ()) -> Iterator[Path]:
    """Where a message has arrays."""
    for field in struct.plain:
        here = (*path, field.name)
        if field.many:
            yield here
        if field.struct is not None:
            yield from arrays_of(field.struct, here)


class _Writing:
    """One request. Every number that it writes is another one."""

    def __init__(self, large: Path, count: int, text: bytes) -> None:
        self._large, self._count, self._text = large, count, text
        self._numbers = itertools.count(1)
        self.frame = bytearray()

    def message(self, layout: Struct, path: Path = ()) -> None:
        for field in layout.plain:
            here = (*path, field.name)
            if not field.many:
                self._value(layout, field, here)
                continue
            count = self._count if here == self._large else 1
            self._length(layout, count, short=False)
            for _ in range(count):
                self._value(layout, field, here)
        if layout.flexible:
            self.frame.append(0)

    def _length(self, layout: Struct, count: int, *, short: bool) -> None:
        if layout.flexible:
            put_unsigned(self.frame, count + 1)
        else:
            self.frame += struct.pack(">h" if short else ">i", count)

    def _value(self, layout: Struct, field: Field, path: Path) -> None:
        if field.struct is not None:
            if field.null and not field.many:
                self.frame.append(1)
            self.message(field.struct, path)
        elif field.type in FIXED:
            self.frame += self._fixed(field)
        else:
            text = b"" if field.type in ("bytes", "records") else self._text or b"dear-%d" % next(self._numbers)
            if field.name == "transactional_id":
                self._length(layout, -1, short=True)
                return
            self._length(layout, len(text), short=field.type == "string")
            self.frame += text

    def _fixed(self, field: Field) -> bytes:
        form = f">{FIXED[field.type][0]}"
        if field.type == "uuid":
            return uuid.UUID(int=next(self._numbers)).bytes
        if field.type == "float64":
            return struct.pack(form, 1.0)
        if field.name in ("acks", "replica_id", "session_epoch"):
            return struct.pack(form, {"acks": 1, "replica_id": -1, "session_epoch": 0}[field.name])
        if field.type == "int32":
            return struct.pack(form, next(self._numbers))
        return struct.pack(form, field.type == "bool")


def dear_request(
    api: Api, version: int, message: Struct, large: Path = (), count: int = 1, *, text: bytes = b""
) -> bytes:
    """A frame without its size: one element in each array but the large one, every text that one if it is given."""
    writing = _Writing(large, count, text)
    writing.frame += struct.pack(">hhih", api.key, version, NUMBER, len(CLIENT)) + CLIENT
    if version >= api.flexible_from:
        writing.frame.append(0)
    writing.message(message)
    return bytes(writing.frame)


def dear_requests(items: int = ITEMS_MAX) -> Iterator[tuple[str, bytes]]:
    """Each array of each call's newest version in turn: what it is, and a frame without its size."""
    named = {api.name: api for api in APIS.values()}
    for message in MESSAGES:
        api = named["".join(part.capitalize() for part in message.split("_"))]
        version, layout = max(versions_of(message, "request").items())
        for path in arrays_of(layout):
            inner = sum(1 for other in arrays_of(layout) if other[: len(path)] == path)
            count = (items - PADDING) // inner
            yield f"{api.name} v{version} {'.'.join(path)} x {count}", dear_request(api, version, layout, path, count)
