"""Decompressing the records of a batch without trusting what they claim.

A megabyte can decompress to gigabytes, so every codec here works under a limit on its output and stops at it.

What a batch decompresses to is needed for as long as its records are looked at. To have new memory for it from the
system, page by page, takes several times as long as to decompress it, so some is kept: as often as threads were at it
at once.
"""

import mmap
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, assert_never

import cramjam

from regnum_records.errors import CorruptBatchError, UnpackedTooLargeError, UnpackingError
from regnum_records.header import CODEC_MASK, HEADER_BYTES, LENGTH_PREFIX_BYTES, BatchHeader, Buffer, Codec
from regnum_records.lz4_frame import check_frame

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Largest decompressed batch that a reader accepts unless told otherwise."""

KEPT_BYTES: Final = 2 * 1024 * 1024
"""Decompressed bytes that memory is kept for: more than a batch of honest producers has."""

GZIP_MEMBERS_MAX: Final = 64
"""Members of gzip data, one behind the other: encoders make one. Behind each of them the rest is copied, so with no
bound a megabyte of empty ones would be gigabytes to copy."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEAD_BYTES: Final = 16
_GZIP: Final = 31
_GZIP_OR_ZLIB: Final = 47
_FIRST_GUESSES: Final = (4, 32)
_BUFFER_FULL: Final = "failed to write whole buffer"
"""What a codec says that has more to write than its buffer has room for; all else it says of what it reads."""
_LENGTH_POSITION: Final = 8
_ATTRIBUTES_POSITION: Final = 21


def _new_memory(size: int) -> memoryview:
    """Room for the head of a batch and for ``size`` decompressed bytes; given back with the last view of it.

    Private (ACCESS_COPY): a process that forks shares it with none of its children.
    """
    return memoryview(mmap.mmap(-1, HEADER_BYTES + size, access=mmap.ACCESS_COPY))


_FREE: Final[list[memoryview]] = []
"""What is kept and not in use. Any thread: to take one out or to put one back is one step of the interpreter."""


def uncompressed(batch: bytes, header: BatchHeader, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """A batch as it would be without a codec; its checksum is left as it is.

    Raises:
        UnpackedTooLargeError: its records have more than ``bytes_max`` bytes then.
        UnpackingError: they cannot be decompressed.
        CorruptBatchError: the codec is not known.
    """
    with uncompressed_view(batch, header, bytes_max=bytes_max) as plain:
        return bytes(plain)


@contextmanager
def uncompressed_view(
    batch: bytes, header: BatchHeader, *, bytes_max: int = DECOMPRESSED_BYTES_MAX, strict: bool = False
) -> Iterator[Buffer]:
    """As ``uncompressed``, without a copy: it is there until the context ends.

    Args:
        batch: the batch.
        header: its head.
        bytes_max: the most bytes that its records may have.
        strict: refuse what some clients of Kafka do not decompress, or only the beginning of it: gzip data that is not
            one member, an LZ4 frame with linked blocks, or with anything behind it.
    """
    try:
        codec = Codec(header.attributes & CODEC_MASK)
    except ValueError:
        raise CorruptBatchError(f"codec {header.attributes & CODEC_MASK} is not known") from None
    if codec is Codec.NONE:
        yield batch
        return
    with _kept() as kept:
        try:
            plain = _behind_head(memoryview(batch)[HEADER_BYTES:], codec, bytes_max, kept, strict=strict)
        except UnpackingError:
            raise
        except CorruptBatchError as error:
            raise UnpackingError(str(error)) from None
        plain[:HEADER_BYTES] = batch[:HEADER_BYTES]
        struct.pack_into(">i", plain, _LENGTH_POSITION, len(plain) - LENGTH_PREFIX_BYTES)
        struct.pack_into(">h", plain, _ATTRIBUTES_POSITION, header.attributes & ~CODEC_MASK)
        yield plain


@contextmanager
def _kept() -> Iterator[memoryview]:
    try:
        memory = _FREE.pop()
    except IndexError:
        memory = _new_memory(KEPT_BYTES)
    try:
        yield memory
    finally:
        _FREE.append(memory)


def decompress(data: bytes, codec: Codec, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The decompressed ``data``.

    Raises:
        UnpackedTooLargeError: it is larger than ``bytes_max`` once decompressed.
        CorruptBatchError: it is not of this codec.
    """
    if codec is Codec.NONE:
        return data
    with _kept() as kept:
        return bytes(_behind_head(memoryview(data), codec, bytes_max, kept)[HEADER_BYTES:])


def _behind_head(
    data: memoryview, codec: Codec, bytes_max: int, kept: memoryview, *, strict: bool = False
) -> memoryview:
    """The decompressed data behind room for the head of a batch, in ``kept`` if that is enough. Raises as that does."""
    try:
        match codec:
            case Codec.NONE:
                raise AssertionError("there is nothing to decompress")
            case Codec.GZIP:
                return _gzip(data, bytes_max, strict=strict)
            case Codec.SNAPPY:
                return _snappy(data, bytes_max, kept)
            case Codec.LZ4:
                if strict:
                    check_frame(data)
                return _in_tries(cramjam.lz4, data, bytes_max, kept)
            case Codec.ZSTD:
                return _in_tries(cramjam.zstd, data, bytes_max, kept)
            case _:
                assert_never(codec)
    except (zlib.error, cramjam.DecompressionError, OSError, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, CorruptBatchError):
            raise
        raise CorruptBatchError(f"{codec.name.lower()} data cannot be decompressed: {error}") from None


def _too_large(bytes_max: int) -> UnpackedTooLargeError:
    return UnpackedTooLargeError(f"the batch has more than {bytes_max} bytes once decompressed")


def _gzip(data: Buffer, bytes_max: int, *, strict: bool) -> memoryview:
    plain = bytearray(HEADER_BYTES)
    end = HEADER_BYTES + bytes_max
    form, most = (_GZIP, 1) if strict else (_GZIP_OR_ZLIB, GZIP_MEMBERS_MAX)
    members = 0
    while data:
        members += 1
        if members > most:
            raise CorruptBatchError(f"gzip data has more members than {most}")
        member = zlib.decompressobj(form)
        plain += member.decompress(data, end - len(plain) + 1)
        if len(plain) > end:
            raise _too_large(bytes_max)
        if not member.eof:
            raise CorruptBatchError("gzip data ends too early")
        data = member.unused_data
    return memoryview(plain)


def _snappy(data: memoryview, bytes_max: int, kept: memoryview) -> memoryview:
    """Each block says what it decompresses to: all of them are asked before the first is decompressed."""
    blocks = _snappy_blocks(data) if bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC else [data]
    size = sum(map(cramjam.snappy.decompress_raw_len, blocks))
    if size > bytes_max:
        raise _too_large(bytes_max)
    memory, end = _enough(kept, size), HEADER_BYTES
    for block in blocks:
        end += cramjam.snappy.decompress_raw_into(block, memory[end : HEADER_BYTES + size])
    return memory[:end]


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    blocks: list[memoryview] = []
    position = _XERIAL_HEAD_BYTES
    while position < len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if position + size > len(data):
            raise CorruptBatchError("snappy data ends too early")
        blocks.append(data[position : position + size])
        position += size
    return blocks


def _enough(kept: memoryview, size: int) -> memoryview:
    return kept if size <= KEPT_BYTES else _new_memory(size)


def _in_tries(codec: Any, data: memoryview, bytes_max: int, kept: memoryview) -> memoryview:
    """Decompress into what is kept, and then into buffers of growing size: codecs stop where these end."""
    guesses = [size for factor in _FIRST_GUESSES if KEPT_BYTES < (size := factor * len(data) + 4096) < bytes_max]
    for size in (min(KEPT_BYTES, bytes_max), *guesses, *((bytes_max,) if bytes_max > KEPT_BYTES else ())):
        plain = _tried(codec, data, size, kept)
        if plain is not None:
            return plain
    raise _too_large(bytes_max)


def _tried(codec: Any, data: memoryview, size: int, kept: memoryview) -> memoryview | None:
    """None: it has more than ``size`` bytes."""
    # Pages of a mapping cost only when they are written: what is no such data costs next to nothing.
    memory = _enough(kept, size)
    try:
        written = codec.decompress_into(data, memory[HEADER_BYTES : HEADER_BYTES + size])
    except cramjam.DecompressionError as error:
        if str(error) != _BUFFER_FULL:
            raise
        return None
    return memory[: HEADER_BYTES + written]
