"""What messages are made of: bounds, varints, tagged fields (KIP-482).

Goals: no length is believed before it is compared with what is left; the work for a request is bounded by the number of
items that it makes, and not by its size alone: four million empty names fit into four megabytes.

Algorithm: generated code reads fixed fields with one ``Struct`` for each run of them, and calls in here for the rest.
Reading beyond the end raises ``IndexError`` or ``struct.error``; a slice would be cut short silently, so that every one
is compared first.
"""

from typing import Final

ITEMS_MAX: Final = 25_000
"""Elements of arrays, and tagged fields, that one request may have: 10,000 partitions of 10,000 topics, and a rest."""

VARINT_BYTES_MAX: Final = 5
"""Of an unsigned varint of 32 bits."""

TEXT_BYTES_MAX: Final = 32_767
"""Of a text, in any version: Kafka's own classes read and write none that is longer."""


class MalformedError(Exception):
    """The bytes are no message of that kind and version."""


class TooManyItemsError(Exception):
    """The message has more items than one is read for."""


class Room:
    """How many items a request may still make."""

    __slots__ = ("_most", "left")

    def __init__(self, items: int = ITEMS_MAX) -> None:
        """Only assigns."""
        self._most = items
        self.left = items
        """Items."""

    def take(self, items: int) -> None:
        """So many more. Raises TooManyItemsError."""
        self.left -= items
        if self.left < 0:
            raise TooManyItemsError(f"a request has at most {self._most} items; split it")


def short() -> MalformedError:
    """A length goes beyond the end."""
    return MalformedError("a length is more than what is left of the message")


def long() -> MalformedError:
    """A text is longer than Kafka has any."""
    return MalformedError(f"a text has more than {TEXT_BYTES_MAX} bytes")


def cut(text: bytes) -> bytes:
    """As much of a text as one may have, up to a whole character.

    It is an error that repeats what it is about, or a name that the other listener took: no client could read it.
    """
    return text[:TEXT_BYTES_MAX].decode("utf-8", "ignore").encode()


def missing() -> MalformedError:
    """Null where there has to be something."""
    return MalformedError("null stands where there has to be a value")


def unsigned(b: memoryview, p: int) -> tuple[int, int]:
    """An unsigned varint at ``p``, and where it ends."""
    n = b[p]
    p += 1
    return (n, p) if n < 128 else continued(b, p, n)


def continued(b: memoryview, p: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, 128 or more, was read."""
    n, shift = first & 127, 7
    for _ in range(VARINT_BYTES_MAX - 1):
        byte = b[p]
        p += 1
        n |= (byte & 127) << shift
        if byte < 128:
            return n, p
        shift += 7
    raise MalformedError("a varint has more than five bytes")


def put_unsigned(w: bytearray, n: int) -> None:
    """Write an unsigned varint."""
    while n > 127:
        w.append(n & 127 | 128)
        n >>= 7
    w.append(n)


def skip_tags(b: memoryview, p: int, n: int, room: Room) -> int:
    """Pass ``n`` tagged fields, ``n`` being the first byte of their number; returns where they end."""
    if n > 127:
        n, p = continued(b, p, n)
    end = len(b)
    if 2 * n > end - p:
        raise short()
    room.take(n)
    for _ in range(n):
        _, p = unsigned(b, p)
        size, p = unsigned(b, p)
        p += size
        if p > end:
            raise short()
    return p
