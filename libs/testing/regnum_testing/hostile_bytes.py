"""Bytes that nobody who means well would send to a call: noise, messages cut off, bent, doubled, nested without end.

Everything follows from a generator of random numbers that the caller brings: a seed repeats a run.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from regnum_testing.every_call import DEPTH_MAX, LONG, Known

NESTING: Final = 450
"""Messages within messages, of a message that is nothing else."""

MANY: Final = 20_000
"""Empty elements of a repeated field."""

EXTREMES: Final = (0, 1, -1, -2, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**32, 7)
_SMALL: Final = tuple(number for number in EXTREMES if -(2**31) <= number < 2**31)
TEXTS: Final = ("", ".", "..", "/", "../x", "a/b", "a\0b", "-0", "a-0-1", "é", "\r\n", "__consumer_offsets", "x" * 250)

_SCALARS: Final[Mapping[int, Sequence[object]]] = {
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_STRING: (*TEXTS, LONG),
    FieldDescriptor.CPPTYPE_DOUBLE: (0.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e-300, 5.0),
    FieldDescriptor.CPPTYPE_FLOAT: (0.0, float("nan")),
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 2**32, 2**64 - 1),
    FieldDescriptor.CPPTYPE_INT64: EXTREMES,
}
"""Values by kind of field; of others (numbers of 32 bits, enums) small ones."""


def parses(type_: Descriptor, data: bytes) -> bool:
    """Whether the bytes are a message of that type."""
    try:
        message_factory.GetMessageClass(type_).FromString(data)
    except DecodeError:
        return False
    return True


def hostile(type_: Descriptor, known: Known, chance: random.Random) -> Message:
    """A message of that type with some fields set, to what is true, to what is extreme, or to anything."""
    return _filled(type_, known, chance, 0)


def noise(type_: Descriptor, chance: random.Random) -> bytes:
    """Bytes that are no message of that type."""
    while True:
        found = _noise(chance)
        if not parses(type_, found):
            return found


def bent(data: bytes, chance: random.Random) -> bytes:
    """A message that something happened to."""
    how: Sequence[Callable[[], bytes]] = (
        lambda: data[: chance.randrange(len(data) + 1)],
        lambda: _flipped(data, chance),
        lambda: data + data,
        lambda: data + chance.randbytes(chance.randrange(1, 20)),
        lambda: data[chance.randrange(len(data) + 1) :],
        lambda: _nested(chance.choice((2, 10, 1))),
        lambda: data + bytes((chance.choice((2, 3, 4, 5)) << 3 | 2, 0)) * MANY,
        lambda: data,
    )
    return chance.choice(how)()


def _noise(chance: random.Random) -> bytes:
    kind = chance.randrange(4)
    if kind == 0:
        return chance.randbytes(chance.choice((1, 3, 50, 3_000)))
    if kind == 1:
        # A length of gigabytes, and nothing behind it.
        return bytes((chance.randrange(1, 16) << 3 | 2,)) + b"\xff\xff\xff\xff\x07"
    if kind == 2:
        # A number without an end, or the end of a group that never began.
        return chance.choice((b"\x08" + b"\xff" * 11, b"\x0c", b"\x00\x00", b"\xff" * 40))
    return _nested(1) + chance.randbytes(5)


def _nested(field: int) -> bytes:
    data = b""
    for _ in range(NESTING):
        size = len(data)
        data = bytes((field << 3 | 2,)) + _varint(size) + data
    return data


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _flipped(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return b"\xff"
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _filled(type_: Descriptor, known: Known, chance: random.Random, depth: int) -> Message:
    message = message_factory.GetMessageClass(type_)()
    for field in type_.fields:
        if chance.random() < 0.3:
            continue
        of = field.message_type
        if of is not None and (of.GetOptions().map_entry or depth >= DEPTH_MAX):
            continue
        count = chance.choice((1, 1, 2, 5)) if field.is_repeated else 1
        if of is not None:
            for _ in range(count):
                inner = _filled(of, known, chance, depth + 1)
                target = getattr(message, field.name)
                if field.is_repeated:
                    target.append(inner)
                else:
                    target.CopyFrom(inner)
        elif field.is_repeated:
            getattr(message, field.name).extend(_scalar(field, known, chance) for _ in range(count))
        else:
            setattr(message, field.name, _scalar(field, known, chance))
    return message


def _scalar(field: FieldDescriptor, known: Known, chance: random.Random) -> object:
    true = known.get(field.name, ())
    if true and chance.random() < 0.5:
        return chance.choice(list(true))
    return chance.choice(_scalars(field, chance))


def _scalars(field: FieldDescriptor, chance: random.Random) -> Sequence[object]:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return (b"", b"\xff", chance.randbytes(61), chance.randbytes(200))
    return _SCALARS.get(field.cpp_type, _SMALL)
