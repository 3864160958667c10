"""What frame of LZ4 every client of Kafka reads. Pure.

Kafka's own client reads independent blocks alone, and nothing that the format reserves or that needs a dictionary; it
stops at the end of the first frame. librdkafka refuses what has anything behind that. The library that decompresses
here reads all of it, and several frames as one.
"""

from typing import Final

from regnum_records.errors import CorruptBatchError

BLOCKS_MAX: Final = 100_000
"""Blocks of one frame: encoders make one for each 64 KiB at least, but for flushes. The walk over so many takes some
40 ms."""

_MAGIC: Final = b"\x04\x22\x4d\x18"
_HEAD_BYTES: Final = 7
"""Magic, flags, largest block, checksum of these."""
_FLAGS_POSITION: Final = 4
_FIXED_FLAGS: Final = 0b1110_0011
_INDEPENDENT: Final = 0b0110_0000
"""Version 1, blocks that are independent, no dictionary."""
_BLOCK_CHECKSUMS: Final = 0b0001_0000
_CONTENT_SIZE: Final = 0b0000_1000
_CONTENT_CHECKSUM: Final = 0b0000_0100
_SIZE_MASK: Final = 0x7FFF_FFFF
"""Of the size of a block: the bit besides says that it is not compressed."""


def check_frame(data: memoryview) -> None:
    """Look whether ``data`` is one frame of independent blocks; what is in these is not looked at.

    Raises:
        CorruptBatchError: it is not.
    """
    if len(data) < _HEAD_BYTES or bytes(data[:_FLAGS_POSITION]) != _MAGIC:
        raise CorruptBatchError("lz4 data does not begin with a frame")
    flags = data[_FLAGS_POSITION]
    if flags & _FIXED_FLAGS != _INDEPENDENT:
        raise CorruptBatchError(f"lz4 frame has the flags 0x{flags:02x}: send version 1 with independent blocks")
    position = _HEAD_BYTES + (8 if flags & _CONTENT_SIZE else 0)
    behind = 4 if flags & _BLOCK_CHECKSUMS else 0
    for _ in range(BLOCKS_MAX + 1):
        # Kafka's client takes an empty block for the end, whether or not it is said to be compressed.
        size = int.from_bytes(data[position : position + 4], "little") & _SIZE_MASK
        position += 4
        if not size:
            break
        position += size + behind
    else:
        raise CorruptBatchError(f"lz4 frame has more blocks than {BLOCKS_MAX}")
    position += 4 if flags & _CONTENT_CHECKSUM else 0
    if position != len(data):
        raise CorruptBatchError(f"lz4 frame ends at byte {position} of {len(data)}: send exactly one")
