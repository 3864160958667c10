"""OTLP documents out of the bytes of one file, whatever wrote them.

What a file holds is told by its first bytes and not by its name: JSON (a document on each line, several on one, one
over many lines, or a list of them), gzip or zstd of that, one protobuf message, or what the collector's file exporter
writes with compression or protobuf: messages with their length before them, in four bytes. A torn document costs
itself: what follows is read on.
"""

import gzip
import io
import json
import re
import shutil
import struct
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

import cramjam
import orjson
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from regnum_insight.spans.zstd_frames import may_exceed

DOCUMENT_BYTES_MAX: Final = 64 * 2**20
"""A document that is longer is torn: a process that dies leaves an open bracket, and it must not swallow the rest."""
QUOTED_CHARS: Final = 500
"""So much of a torn document is kept."""
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_BOM: Final = b"\xef\xbb\xbf"
_LENGTH: Final = struct.Struct(">I")
_RESOURCE_SPANS_TAG: Final = 0x0A
"""First byte of a protobuf message with resource spans: field 1, of a length."""
# Possessive, so that each takes time by the length of what it looks at, and no memory: what is torn is anything.
_BRACKETS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{}\[\]]')
_BEGIN: Final = r'(?:\[\s*+)?\{\s*+"(?:resource_?[sS]pans|scope_?[sS]pans)"'
_NEW_DOCUMENT: Final = re.compile(rb"\s*+" + _BEGIN.encode())
_NEXT_DOCUMENT: Final = re.compile(_BEGIN)
_TORN_OF_A_TEXT_MAX: Final = 100
"""After so many torn documents in one text without lines its rest is given up: each costs a look at all of it."""
_STEP: Final = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_SPACE: Final = b" \t\r\n\x00"
_BETWEEN: Final = re.compile(r"[ \t\r\n\x00,]*+")


@dataclass(frozen=True, slots=True)
class Torn:
    """What could not be read."""

    reason: str
    """Why."""
    text: str
    """Its beginning."""


_UNPACKED_MAX: Final = 3
"""A collector packs once, and who stores its files perhaps once more."""
_OFTEN_TIMES: Final = 64
"""Spans are seldom packed to less than this part of what they are."""
_TIMES_MAX: Final = 1024
"""A file that unpacks to more than so many times its length holds no spans; gzip, which is read as a stream, cannot."""
_BUFFER_FULL: Final = "failed to write whole buffer"
_TOO_LARGE: Final = Torn(f"a message of more than {DOCUMENT_BYTES_MAX:,} bytes, as it is or unpacked", "")


def documents_of(path: Path) -> Iterator[object]:
    """Everything in a file: values as JSON has them, and Torn between them. Raises OSError where it cannot be read."""
    with path.open("rb", buffering=2**20) as file:
        yield from documents_in(file)


def documents_in(file: IO[bytes], *, unpacked: int = 0, stored: int = 0) -> Iterator[object]:
    """The same of a file that is open: it can ``peek``, as a buffered one can. Raises OSError.

    Args:
        file: at its begin.
        unpacked: how often its content was packed.
        stored: bytes of the file that it was unpacked from, all layers counted; 0: it was not, or nobody knows.
    """
    head = _peek(file, 5)
    if head.startswith((_GZIP, _ZSTD)) and unpacked == _UNPACKED_MAX:
        yield Torn(f"it is packed more than {_UNPACKED_MAX} times over", repr(head))
    elif head.startswith(_GZIP):
        length = stored if unpacked else _length(file)
        try:
            with gzip.GzipFile(fileobj=file, mode="rb") as plain:
                yield from documents_in(cast("IO[bytes]", plain), unpacked=unpacked + 1, stored=length)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            yield Torn(f"the file ends within its compressed data or is damaged: {error}", "")
    elif head.startswith(_ZSTD):
        yield from _unpacked(file, unpacked + 1, stored)
    elif head[:1] == b"\x00" or _is_framed(head):
        yield from _framed(file)
    elif head[:1] == bytes([_RESOURCE_SPANS_TAG]) and not _is_text(_peek(file, 64)):
        message = file.read(DOCUMENT_BYTES_MAX + 1)
        yield _protobuf(message) if len(message) <= DOCUMENT_BYTES_MAX else _TOO_LARGE
    else:
        yield from documents_on(_lines(file))


def _peek(file: Any, length: int) -> bytes:
    head: bytes = file.peek(length)[:length]
    return head


def _is_framed(head: bytes) -> bool:
    """Whether a length comes first: text has no zero byte, and no message is as long as four letters say."""
    return len(head) == 5 and head[0] < 0x04 and (head[4:] in (b"{", b"[") or head[4] in (_RESOURCE_SPANS_TAG, 0x28))


def _is_text(head: bytes) -> bool:
    return head.lstrip(_SPACE)[:1] in (b"{", b"[")


def _length(file: IO[bytes]) -> int:
    """Bytes of a file that is at its begin; 0: it does not say."""
    if not file.seekable():
        return 0
    length = file.seek(0, io.SEEK_END)
    file.seek(0)
    return length


def _unpacked(file: IO[bytes], unpacked: int, stored: int) -> Iterator[object]:
    if unpacked == 1:
        packed = file.read()
        stored = len(packed)
    else:
        # What comes out of one layer is as large as its writer likes.
        most = max(_OFTEN_TIMES * stored, DOCUMENT_BYTES_MAX)
        packed = file.read(most + 1)
        if len(packed) > most:
            yield Torn(f"it is packed twice, and {most:,} bytes of it are still packed", "")
            return
    # Through a file, so that memory is bounded whatever comes out; what came out before an error counts.
    with tempfile.TemporaryDirectory(prefix="regnum-traces-") as folder:
        # Others live on that disk.
        room = min(max(_TIMES_MAX * stored, DOCUMENT_BYTES_MAX), shutil.disk_usage(folder).free // 2)
        if may_exceed(packed, room):
            # A writer that flushes each line makes blocks of a few bytes, and each counts for all that it could be.
            small = _unpacked_message(packed) if len(packed) <= DOCUMENT_BYTES_MAX else _TOO_LARGE
            if isinstance(small, Torn):
                reason = f"it may unpack to more than {room:,} bytes, which is the bound in {tempfile.gettempdir()}"
                yield Torn(reason, "")
                return
            content = cast("IO[bytes]", io.BufferedReader(io.BytesIO(small)))
            yield from documents_in(content, unpacked=unpacked, stored=stored)
            return
        plain = Path(folder) / "plain"
        torn = None
        target = cramjam.File(str(plain), read=True, write=True, truncate=True)
        try:
            cramjam.zstd.decompress_into(cramjam.Buffer(packed), target)
        except cramjam.DecompressionError as error:
            torn = Torn(f"the file ends within its compressed data or is damaged: {error}", "")
        del target
        if plain.stat().st_size:
            with plain.open("rb", buffering=2**20) as unpacked_file:
                yield from documents_in(unpacked_file, unpacked=unpacked, stored=stored)
        if torn is not None:
            yield torn


def _framed(file: IO[bytes]) -> Iterator[object]:
    while head := file.read(_LENGTH.size):
        length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else 0
        if not 0 < length <= DOCUMENT_BYTES_MAX:
            yield Torn("no length of a message where one belongs", repr(head))
            return
        message = file.read(length)
        if len(message) < length:
            yield Torn("the file ends within a message", "")
            return
        if message.startswith(_ZSTD):
            unpacked = _unpacked_message(message)
            if isinstance(unpacked, Torn):
                yield unpacked
                continue
            message = unpacked
        yield _loaded(message) if _is_text(message) else _protobuf(message)


def _unpacked_message(packed: bytes) -> bytes | Torn:
    """What zstd packed, into buffers of a size that is known before: the packed data may say any, or none."""
    for size in (min(_OFTEN_TIMES * len(packed) + 4096, DOCUMENT_BYTES_MAX), DOCUMENT_BYTES_MAX):
        plain = bytearray(size)
        try:
            return bytes(memoryview(plain)[: cramjam.zstd.decompress_into(packed, plain)])
        except cramjam.DecompressionError as error:
            if str(error) != _BUFFER_FULL:
                return Torn(f"a message whose compressed data is damaged: {error}", "")
    return _TOO_LARGE


def _protobuf(message: bytes) -> object:
    try:
        return MessageToDict(TracesData.FromString(message))
    except DecodeError as error:
        return Torn(f"neither JSON nor OTLP protobuf: {error}", repr(message[:40]))


def is_document(line: bytes) -> bool:
    """Whether a line is one whole document, so that the file of which it is the first has a document on each line."""
    return not isinstance(_loaded(line.removeprefix(_BOM)), Torn)


def documents_on(lines: Iterable[bytes]) -> Iterator[object]:
    """Documents of lines: one on each as a rule, and otherwise from the first bracket to the one that closes it."""
    pending: list[bytes] = []
    depth = size = 0
    for line in lines:
        if not pending or _NEW_DOCUMENT.match(line):
            if pending:
                yield _torn(b"".join(pending))
                pending, depth, size = [], 0, 0
            try:
                document = orjson.loads(line)
            except orjson.JSONDecodeError:
                text = line.removeprefix(_BOM).strip(_SPACE).removesuffix(b",")
                if text in (b"", b"[", b"]"):
                    continue
                document = _loaded(text)
            if not isinstance(document, Torn):
                yield document
                continue
        pending.append(line)
        size += len(line)
        depth += _depth(line)
        if depth <= 0 or size > DOCUMENT_BYTES_MAX:
            yield from _several(b"".join(pending))
            pending, depth, size = [], 0, 0
    if pending:
        yield from _several(b"".join(pending))


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Lines, none longer than a document may be: a file of no lines is no reason to hold it all."""
    while line := file.readline(DOCUMENT_BYTES_MAX):
        yield line


def _depth(line: bytes) -> int:
    return sum(_STEP.get(line[token.start() : token.start() + 1], 0) for token in _BRACKETS.finditer(line))


def _several(text: bytes) -> Iterator[object]:
    """Documents one behind the other, and what is torn among them."""
    rest = text.decode("utf-8", "replace").replace("\ufeff", "")
    decoder = json.JSONDecoder()
    torn_n = 0
    at = _behind(_BETWEEN.match(rest))
    while at < len(rest):
        try:
            value, end = decoder.raw_decode(rest, at)
            value = _encodable(value)
        except (ValueError, RecursionError):
            yield _torn(rest[at : at + QUOTED_CHARS].encode())
            torn_n += 1
            following = _NEXT_DOCUMENT.search(rest, at + 1)
            if following is None or torn_n == _TORN_OF_A_TEXT_MAX:
                return
            at = following.start()
            continue
        yield value
        at = _behind(_BETWEEN.match(rest, end))


def _behind(match: re.Match[str] | None) -> int:
    return 0 if match is None else match.end()


def _loaded(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        try:
            # Numbers beyond 64 bits and NaN, which the fast reader does not take.
            return _encodable(json.loads(text))
        except (ValueError, RecursionError):
            return _torn(text)


def _encodable(value: object) -> object:
    """Without halves of characters, which JSON can spell and no table takes."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _torn(text: bytes) -> Torn:
    return Torn("no JSON", text[:QUOTED_CHARS].decode("utf-8", "replace").strip())
