"""The checksum of batches, CRC32C."""

from typing import Final

import google_crc32c

from regnum_records.header import Buffer

PIECE_BYTES: Final = 32 * 1024
"""What is copied at a time: the compiled function takes bytes only, and a copy of a large batch is memory that the
system has to give page by page."""


def checksum(buffer: Buffer, start: int, end: int) -> int:
    """That of the bytes from ``start`` to ``end``."""
    view, crc = memoryview(buffer), 0
    for at in range(start, end, PIECE_BYTES):
        crc = google_crc32c.extend(crc, bytes(view[at : min(at + PIECE_BYTES, end)]))
    return crc
