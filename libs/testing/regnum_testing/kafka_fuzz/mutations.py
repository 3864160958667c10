"""Hostile variants of recorded requests. A seed repeats all of them.

Most that is changed keeps the head, so that it reaches the reader of its call; lengths become those that cost most.
"""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final

LENGTHS: Final = (
    *(struct.pack(">i", number) for number in (-1, -(2**31), 2**31 - 1, 2**24, 25_000, 0)),
    *(struct.pack(">h", number) for number in (-1, -(2**15), 2**15 - 1, 0)),
    *(struct.pack(">q", number) for number in (-1, -2, -(2**63), 2**63 - 1)),
    *(b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\xff\xff", b"\x80\x80\x80\x80\x08", b"\xa9\xc3\x01", b"\0", b"\1"),
)
"""Numbers as they stand on the wire, varints last: 25,000 elements, the most, and lengths that nothing has."""
Frame = bytes | bytearray

CHANGES_MAX: Final = 4
REPEATS: Final = (2, 16, 300)


def mutated(frames: Sequence[bytes], chance: random.Random) -> bytes:
    """One request, most often near one of these."""
    frame = bytearray(chance.choice(frames))
    for _ in range(chance.randint(1, CHANGES_MAX)):
        frame = bytearray(chance.choice(_CHANGES)(frame, frames, chance))
    return bytes(frame)


def _place(frame: bytearray, chance: random.Random) -> int:
    """Where something is changed: seldom in the head."""
    start = 0 if chance.random() < 0.05 else 8
    return chance.randrange(start, len(frame)) if len(frame) > start else 0


def _flip(frame: bytearray, _: Sequence[bytes], chance: random.Random) -> Frame:
    if not frame:
        return b"\xff"
    frame[_place(frame, chance)] ^= 1 << chance.randrange(8)
    return frame


def _number(frame: bytearray, _: Sequence[bytes], chance: random.Random) -> Frame:
    at, number = _place(frame, chance), chance.choice(LENGTHS)
    frame[at : at + len(number)] = number
    return frame


def _inserted(frame: bytearray, _: Sequence[bytes], chance: random.Random) -> Frame:
    at = _place(frame, chance)
    frame[at:at] = chance.choice((*LENGTHS, chance.randbytes(chance.choice((1, 2, 16)))))
    return frame


def _cut(frame: bytearray, _: Sequence[bytes], chance: random.Random) -> Frame:
    return frame[: _place(frame, chance)]


def _removed(frame: bytearray, _: Sequence[bytes], chance: random.Random) -> Frame:
    at = _place(frame, chance)
    del frame[at : at + chance.choice((1, 2, 4, 16))]
    return frame


def _repeated(frame: bytearray, _: Sequence[bytes], chance: random.Random) -> Frame:
    at = _place(frame, chance)
    part = frame[at : at + chance.choice((2, 8, 40))]
    frame[at:at] = part * chance.choice(REPEATS)
    return frame


def _spliced(frame: bytearray, frames: Sequence[bytes], chance: random.Random) -> Frame:
    other = chance.choice(frames)
    return frame[: _place(frame, chance)] + other[chance.randrange(len(other)) :]


def _another_version(frame: bytearray, _: Sequence[bytes], chance: random.Random) -> Frame:
    frame[2:4] = struct.pack(">h", chance.choice((*range(18), -1, 2**15 - 1)))
    return frame


def _another_call(frame: bytearray, frames: Sequence[bytes], chance: random.Random) -> Frame:
    frame[:4] = chance.choice(frames)[:4]
    return frame


_CHANGES: Final[Sequence[Callable[[bytearray, Sequence[bytes], random.Random], Frame]]] = (
    _flip,
    _flip,
    _number,
    _number,
    _number,
    _inserted,
    _cut,
    _removed,
    _repeated,
    _spliced,
    _another_version,
    _another_call,
)
