"""Whether what zstd packed may unpack to more than there is room for, by the headers of its blocks. Pure.

The library that unpacks takes whole frames and cannot be stopped in between, so that it is asked before. Each block
says its packed length and unpacks to 128 KiB at most (RFC 8878); nothing is unpacked to find that out.
"""

from typing import Final

_MAGIC: Final = 0xFD2FB528
_FORMER: Final = (0x1EB52FFD, *range(0xFD2FB522, 0xFD2FB528))
"""Of formats before the first release, which the library unpacks as well and nothing writes any more."""
_BLOCK_LEAST: Final = 1024
"""What a block counts at least: one that is empty takes as long to look at as any other."""
_SKIPPABLE: Final = 0x184D2A50
"""Magic number, but for its last digit, of a frame that holds anything else."""
_BLOCK_MAX: Final = 2**17
_OF_DICTIONARY: Final = (0, 1, 2, 4)
"""Bytes of the id of a dictionary, by the lowest two bits of a frame's descriptor."""
_RUN: Final = 1
"""Type of a block that is one byte, so many times over."""
_RESERVED: Final = 3


def may_exceed(packed: bytes, limit: int) -> bool:
    """Whether it may unpack to more bytes than ``limit``; of damaged data counts what comes before the damage.

    Looks at a block for each KiB of ``limit`` at most.
    """
    at = total = 0
    while at + 5 <= len(packed) and total <= limit:
        magic = _number(packed, at, 4)
        if magic & ~0xF == _SKIPPABLE:
            at += 8 + _number(packed, at + 4, 4)
            continue
        if magic in _FORMER:
            return True
        if magic != _MAGIC:
            break
        about = packed[at + 4]
        is_single = about >> 5 & 1
        # The descriptor, the size of the window, the id of a dictionary, the size of the content.
        at += 5 + (1 - is_single) + _OF_DICTIONARY[about & 3] + (is_single, 2, 4, 8)[about >> 6]
        is_last = 0
        while not is_last and at + 3 <= len(packed) and total <= limit:
            header = _number(packed, at, 3)
            is_last, form, size = header & 1, header >> 1 & 3, header >> 3
            if form == _RESERVED:
                return total > limit
            total += max(_BLOCK_LEAST, min(size, _BLOCK_MAX)) if form <= _RUN else _BLOCK_MAX
            at += 3 + (1 if form == _RUN else size)
        # A checksum.
        at += about >> 2 & 1 and 4
    return total > limit


def _number(packed: bytes, at: int, length: int) -> int:
    return int.from_bytes(packed[at : at + length], "little")
