"""How many objects a message would become, counted before it is parsed. Pure.

Goals: protobuf makes 57 bytes and more of an empty item, which takes two on the wire: 30 MB of them held the loop for
0.5 s and took 850 MB before any code of ours ran. They are counted first, and what has too many is not parsed.

Constraints: a message of records has a handful of fields and megabytes of bytes, and must not become slower: the count
goes from field to field and not from byte to byte. It is Python: a large count is made in parts, or on a thread, where
it does not hold the loop (to parse does, on any thread: it keeps the interpreter's lock).

Algorithm: the wire format is a row of tags and values. Fields that the descriptor knows as messages are gone through
themselves, all others skipped by their length. What is cut off or wrong ends the count: the parser says what is wrong.

Example: a ProduceRequest with one partition and a batch of 1 MiB: four fields of the request, four of the partition.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

_Fields: TypeAlias = Mapping[int, Descriptor | None]
"""Fields that are gone through, by number: messages, and texts, which have no descriptor."""

FIELDS_OF_OBJECT: Final = 6
"""Fields that a message inside has on average, at most: else a large request of small numbers would be counted for
half a minute, and become nothing that needs counting."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5


class ObjectCount:
    """A count that can be interrupted."""

    def __init__(self, data: bytes, descriptor: Descriptor, *, most: int, text_bytes_max: int | None = None) -> None:
        """Only assigns.

        Args:
            data: the message.
            descriptor: of its type.
            most: beyond so many objects, or FIELDS_OF_OBJECT times as many fields, it ends.
            text_bytes_max: with a longer text it ends, too; None: there may be any.
        """
        self._text_bytes_max: Final = len(data) if text_bytes_max is None else text_bytes_max
        self.longest_text = 0
        """Bytes of the text that ended it; 0: none did."""
        self._data: Final = data
        self._most: Final = most
        self._known: Final[dict[str, _Fields]] = {}
        self._open: Final[list[tuple[int, int, _Fields]]] = [(0, len(data), self._fields(descriptor))]
        """Messages that are gone through: where it goes on, where they end, which fields of theirs are messages."""
        self.objects = 0
        """Messages inside so far."""
        self.fields = 0
        """Fields that were gone through so far, when ``go_on`` has returned."""

    @property
    def is_too_many(self) -> bool:
        """Whether there are more than allowed."""
        return self.objects > self._most or self.fields > FIELDS_OF_OBJECT * self._most

    def go_on(self, fields: int) -> bool:
        """Count for as many fields at most; whether it has ended."""
        ended, left = self._count(fields)
        self.fields += fields - left
        return ended or self.is_too_many or self.longest_text > 0

    def _count(self, fields: int) -> tuple[bool, int]:
        """Whether it has ended, and how many of the fields are left."""
        data = self._data
        while self._open:
            at, end, known = self._open.pop()
            while at < end:
                if fields <= 0 or self.objects > self._most or self.longest_text:
                    self._open.append((at, end, known))
                    return self.objects > self._most, fields
                fields -= 1
                tag, at = _varint(data, at, end)
                kind = tag & 7
                if kind == _VARINT:
                    _, at = _varint(data, at, end)
                elif kind == _BYTES:
                    length, at = _varint(data, at, end)
                    inner = self._inner(known, tag >> 3, length)
                    if inner is not None:
                        self.objects += 1
                        if length and at + length <= end:
                            self._open.append((at + length, end, known))
                            end, known = at + length, self._fields(inner)
                            continue
                    at += length
                elif kind == _FIXED64:
                    at += 8
                elif kind == _FIXED32:
                    at += 4
                else:
                    # A group, which nobody here sends, or nothing at all: the parser decides.
                    at = end
        return True, fields

    def _inner(self, known: _Fields, field: int, length: int) -> Descriptor | None:
        """Of a message inside; None: it is a text, which is noted where it is too long, or bytes."""
        inner = known.get(field)
        if inner is None and length > self._text_bytes_max and field in known:
            self.longest_text = length
        return inner

    def _fields(self, descriptor: Descriptor) -> _Fields:
        known = self._known.get(descriptor.full_name)
        if known is None:
            known = self._known[descriptor.full_name] = {
                field.number: field.message_type
                for field in descriptor.fields
                if field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING)
            }
        return known


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number and where it ends; at the end of everything where it is cut off or too long."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, end
