"""Frames: four bytes of size, a header, a message.

A frame is read in three steps, so that nothing is parsed before its size is admitted: the size (``size_of``), the
header (``Head.read``), the message (``read_request``). Whatever is wrong with the bytes is one error.
"""

import struct
from dataclasses import dataclass
from typing import Any, Final, Self

from regnum_kafka_wire.apis import API_VERSIONS, Api, Buffers
from regnum_kafka_wire.primitives import ITEMS_MAX, MalformedError, Room, short, skip_tags

SIZE_BYTES: Final = 4
HEAD_BYTES_MIN: Final = 10
"""API key, version, correlation id, length of the client id."""

_HEAD: Final = struct.Struct(">hhih")
_SIZE: Final = struct.Struct(">i")
_ARRAYS: Final = (list, tuple)


def size_of(buffer: bytes | bytearray | memoryview, at: int = 0) -> int:
    """The size that stands there. Raises MalformedError for one that no frame has."""
    (size,) = _SIZE.unpack_from(buffer, at)
    if size < HEAD_BYTES_MIN:
        raise MalformedError(f"a request of {size} bytes has no header")
    return int(size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Header of a request, as far as every version has it."""

    key: int
    version: int
    correlation_id: int
    client_id: str
    """Empty where it is null."""
    end: int
    """Where the client id ends: tagged fields follow in flexible versions."""

    @classmethod
    def read(cls, frame: memoryview) -> Self:
        """Of a frame without its size."""
        try:
            key, version, correlation_id, length = _HEAD.unpack_from(frame, 0)
            end = _HEAD.size + max(0, length)
            if end > len(frame):
                raise short()
            client_id = str(frame[_HEAD.size : end], "utf-8")
        except (struct.error, ValueError) as error:
            raise MalformedError(f"the header cannot be read: {error}") from error
        return cls(key=key, version=version, correlation_id=correlation_id, client_id=client_id, end=end)


def read_request(api: Api, head: Head, frame: memoryview, *, items_max: int = ITEMS_MAX) -> Any:
    """The message of a frame. Raises MalformedError, TooManyItemsError.

    What follows the message is passed over, as in Kafka: librdkafka 2.16 has three bytes behind Metadata 13.
    """
    room = Room(items_max)
    try:
        at = head.end
        if head.version >= api.flexible_from:
            at += 1
            if count := frame[at - 1]:
                at = skip_tags(frame, at, count, room)
        request, _ = api.readers[head.version](frame, at, room)
    except (struct.error, IndexError, ValueError) as error:
        raise MalformedError(f"{api.name} v{head.version} cannot be read: {error}") from error
    return request


def write_response(api: Api, version: int, correlation_id: int, response: Any) -> Buffers:
    """A whole frame as buffers, in order: records stand in it as they were given."""
    start = bytearray(SIZE_BYTES)
    start += _SIZE.pack(correlation_id)
    # (The answer to ApiVersions has the oldest header: its reader does not know yet what is spoken here.)
    if version >= api.flexible_from and api.key != API_VERSIONS:
        start.append(0)
    buffers: Buffers = []
    api.writers[version](response, buffers, start)
    _SIZE.pack_into(start, 0, sum(map(len, buffers)) - SIZE_BYTES)
    return buffers


def is_longer(message: Any, items: int) -> bool:
    """Whether a message has more elements than that, in all its arrays. Costs no more than to look at so many."""
    return _longer_by(message, items) < 0


def longest_array(message: Any) -> int:
    """Elements of the longest array of a message, wherever it stands."""
    longest = 0
    for name in message.__slots__:
        value = getattr(message, name)
        if type(value) in _ARRAYS and value:
            longest = max(longest, len(value))
            if hasattr(value[0], "__slots__"):
                longest = max(longest, *map(longest_array, value))
    return longest


def _longer_by(message: Any, left: int) -> int:
    """How many more elements it may have; less than 0: it has too many."""
    for name in message.__slots__:
        value = getattr(message, name)
        if type(value) not in _ARRAYS:
            continue
        left -= len(value)
        if left < 0:
            break
        if value and hasattr(value[0], "__slots__"):
            for one in value:
                left = _longer_by(one, left)
                if left < 0:
                    return left
    return left
