"""Decompressing the records of a batch without trusting what they claim.

A megabyte can decompress to gigabytes, so every codec here works under a limit on its output and stops at it.
"""

import mmap
import struct
import zlib
from typing import Any, Final, assert_never

import cramjam

from regnum_records.errors import CorruptBatchError, UnpackedTooLargeError, UnpackingError
from regnum_records.header import CODEC_MASK, HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader, Codec

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest decompressed batch that a reader accepts unless told otherwise."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES: Final = 16
_GZIP_OR_ZLIB: Final = 47
_FIRST_GUESSES: Final = (4, 32)
_BUFFER_FULL: Final = "failed to write whole buffer"
"""What a codec says that has more to write than its buffer has room for; all else it says of what it reads."""
_LENGTH_POSITION: Final = 8
_ATTRIBUTES_POSITION: Final = 21


def uncompressed(batch: bytes, header: BatchHeader, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """A batch as it would be without a codec; its checksum is left as it is.

    Raises:
        UnpackedTooLargeError: its records have more than ``bytes_max`` bytes then.
        UnpackingError: they cannot be decompressed.
        CorruptBatchError: the codec is not known.
    """
    try:
        codec = Codec(header.attributes & CODEC_MASK)
    except ValueError:
        raise CorruptBatchError(f"codec {header.attributes & CODEC_MASK} is not known") from None
    if codec is Codec.NONE:
        return batch
    try:
        records = decompress(batch[HEADER_BYTES:], codec, bytes_max=bytes_max)
    except UnpackingError:
        raise
    except CorruptBatchError as error:
        raise UnpackingError(str(error)) from None
    head = bytearray(batch[:HEADER_BYTES])
    struct.pack_into(">i", head, _LENGTH_POSITION, HEADER_BYTES - LENGTH_PREFIX_BYTES + len(records))
    struct.pack_into(">h", head, _ATTRIBUTES_POSITION, header.attributes & ~CODEC_MASK)
    return bytes(head) + records


def decompress(data: bytes, codec: Codec, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The decompressed ``data``.

    Raises:
        UnpackedTooLargeError: it is larger than ``bytes_max`` once decompressed.
        CorruptBatchError: it is not of this codec.
    """
    try:
        match codec:
            case Codec.NONE:
                return data
            case Codec.GZIP:
                return _gzip(data, bytes_max)
            case Codec.SNAPPY:
                return _snappy(data, bytes_max)
            case Codec.LZ4:
                return _into_buffer(cramjam.lz4, data, bytes_max)
            case Codec.ZSTD:
                return _into_buffer(cramjam.zstd, data, bytes_max)
            case _:
                assert_never(codec)
    except (zlib.error, cramjam.DecompressionError, OSError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, CorruptBatchError):
            raise
        raise CorruptBatchError(f"{codec.name.lower()} data cannot be decompressed: {error}") from None


def _too_large(bytes_max: int) -> UnpackedTooLargeError:
    return UnpackedTooLargeError(f"the batch has more than {bytes_max} bytes once decompressed")


def _gzip(data: bytes, bytes_max: int) -> bytes:
    parts: list[bytes] = []
    left = bytes_max
    while data:
        member = zlib.decompressobj(_GZIP_OR_ZLIB)
        parts.append(member.decompress(data, left + 1))
        left -= len(parts[-1])
        if left < 0:
            raise _too_large(bytes_max)
        if not member.eof:
            raise CorruptBatchError("gzip data ends too early")
        data = member.unused_data
    return b"".join(parts)


def _snappy(data: bytes, bytes_max: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _snappy_block(data, bytes_max)
    parts: list[bytes] = []
    position, left = _XERIAL_HEAD_BYTES, bytes_max
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if position + size > len(data):
            raise CorruptBatchError("snappy data ends too early")
        parts.append(_snappy_block(data[position : position + size], left))
        left -= len(parts[-1])
        position += size
    return b"".join(parts)


def _snappy_block(data: bytes, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > bytes_max:
        raise _too_large(bytes_max)
    return bytes(cramjam.snappy.decompress_raw(data))


def _into_buffer(codec: Any, data: bytes, bytes_max: int) -> bytes:
    """Decompress into buffers of growing size: the codec stops where the buffer ends."""
    sizes = [size for factor in _FIRST_GUESSES if (size := factor * len(data) + 4096) < bytes_max]
    for size in (*sizes, bytes_max):
        # Pages of a mapping cost only when they are written: what is no such data costs next to nothing.
        with mmap.mmap(-1, size) as target:
            try:
                written = codec.decompress_into(data, target)
            except cramjam.DecompressionError as error:
                if str(error) != _BUFFER_FULL:
                    raise
                continue
            return target[:written]
    raise _too_large(bytes_max)
