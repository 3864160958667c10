"""How many objects a message would become, counted before it is parsed. Pure.

Goals: protobuf makes 57 bytes and more of an empty item, which takes two on the wire: 30 MB of them held the loop for
0.5 s and took 850 MB before any code of ours ran. They are counted first, and what has too many is not parsed.

Constraints: a message of records has a handful of fields and megabytes of bytes, and must not become slower: the count
goes from field to field and not from byte to byte. It is Python, a microsecond for each field: a large count is made in
parts, between which the loop has its turns.

Algorithm: the wire format is a row of tags and values. Fields that the descriptor knows as messages are gone through
themselves, all others skipped by their length. What is cut off or wrong ends the count: the parser says what is wrong.
The elements of each list are counted for the message that it stands in, so that one with many in it ends the count
wherever it stands; of numbers that are packed into one field each is an element.

Example: a ProduceRequest with one partition and a batch of 1 MiB: four fields of the request, four of the partition.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor


class _Fields(NamedTuple):
    """Of a message that is gone through, by number."""

    known: Mapping[int, Descriptor | None]
    """Messages inside, and texts, which have no descriptor."""
    lists: frozenset[int]
    """Those that may come again and again."""
    packed: frozenset[int]
    """Those of them that are numbers, several in one field."""


class _Open(NamedTuple):
    """A message that is gone through."""

    at: int
    """Where it goes on."""
    end: int
    fields: _Fields
    counts: dict[int, int]
    """Elements of its lists so far, by number."""


FIELDS_OF_OBJECT: Final = 6
"""Fields that a message inside has on average, at most: else a large request of small numbers would be counted for
half a minute, and become nothing that needs counting."""

_NOT_LAST: Final = bytes(range(0x80, 0x100))
_VARINT: Final = 0
_BYTES: Final = 2
_WIDTHS: Final = {1: 8, 5: 4}
"""Bytes of numbers of fixed width, by their kind."""


class ObjectCount:
    """A count that can be interrupted."""

    def __init__(
        self,
        data: bytes,
        descriptor: Descriptor,
        *,
        most: int,
        text_bytes_max: int | None = None,
        list_max: int | None = None,
    ) -> None:
        """Only assigns.

        Args:
            data: the message.
            descriptor: of its type.
            most: beyond so many objects, or FIELDS_OF_OBJECT times as many fields, it ends.
            text_bytes_max: with a longer text it ends, too; None: there may be any.
            list_max: with more elements of one list, too.
        """
        self._list_max: Final = len(data) if list_max is None else list_max
        self.has_long_list = False
        """Whether a list ended it."""
        self._text_bytes_max: Final = len(data) if text_bytes_max is None else text_bytes_max
        self.longest_text = 0
        """Bytes of the text that ended it; 0: none did."""
        self._data: Final = data
        self._most: Final = most
        self._known: Final[dict[str, _Fields]] = {}
        self._open: Final = [_Open(0, len(data), self._fields(descriptor), {})]
        """Messages that are gone through, each in the one before."""
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
        return ended or self.is_too_many or self.longest_text > 0 or self.has_long_list

    def _count(self, fields: int) -> tuple[bool, int]:
        """Whether it has ended, and how many of the fields are left."""
        data = self._data
        while self._open:
            at, end, shape, counts = self._open.pop()
            while at < end:
                if fields <= 0 or self.objects > self._most or self.longest_text or self.has_long_list:
                    self._open.append(_Open(at, end, shape, counts))
                    return self.objects > self._most, fields
                fields -= 1
                tag, at = _varint(data, at, end)
                kind, number = tag & 7, tag >> 3
                if number in shape.lists and not (kind == _BYTES and number in shape.packed):
                    self._more(counts, number, 1)
                if kind == _VARINT:
                    _, at = _varint(data, at, end)
                elif kind == _BYTES:
                    length, at = _varint(data, at, end)
                    inner = self._inner(shape.known, number, length)
                    if inner is not None:
                        self.objects += 1
                        if length and at + length <= end:
                            self._open.append(_Open(at + length, end, shape, counts))
                            end, shape, counts = at + length, self._fields(inner), {}
                            continue
                    if number in shape.packed:
                        self._more(counts, number, _numbers(data[at : at + length]))
                    at += length
                else:
                    # A group, which no client sends, or nothing at all: the parser decides.
                    at += _WIDTHS.get(kind, end)
        return True, fields

    def _more(self, counts: dict[int, int], number: int, elements: int) -> None:
        """Elements of a list."""
        count = counts[number] = counts.get(number, 0) + elements
        self.has_long_list = count > self._list_max

    def _inner(self, known: Mapping[int, Descriptor | None], field: int, length: int) -> Descriptor | None:
        """Of a message inside; None: it is a text, noted where it is too long, or bytes."""
        inner = known.get(field)
        if inner is None and length > self._text_bytes_max and field in known:
            self.longest_text = length
        return inner

    def _fields(self, descriptor: Descriptor) -> _Fields:
        known = self._known.get(descriptor.full_name)
        if known is None:
            known = self._known[descriptor.full_name] = _Fields(
                {
                    field.number: field.message_type
                    for field in descriptor.fields
                    if field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_STRING)
                },
                frozenset(field.number for field in descriptor.fields if field.is_repeated),
                frozenset(field.number for field in descriptor.fields if field.is_packed),
            )
        return known


def _numbers(packed: bytes) -> int:
    """How many there are: the last byte of each has no high bit (no request has any of a fixed width)."""
    return len(packed.translate(None, _NOT_LAST))


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
