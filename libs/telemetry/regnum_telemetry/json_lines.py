"""Spans as OTLP/JSON lines, the format of the collector's file exporter: one ``{"resourceSpans": [...]}`` per line.

The encoder is OpenTelemetry's own. Protobuf's JSON differs from OTLP's in one point, which is put right here: ids are
hex and not base64, in links too. Enums are integers, 64-bit integers text.
"""

import base64
import json
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

PARTS: Final = 4
"""Files that the bytes of a process are divided among: the one that is written, and those that were set aside."""

_IDS: Final = ("traceId", "spanId", "parentSpanId")


def encode(spans: Sequence[ReadableSpan]) -> bytes:
    """One line."""
    message = MessageToDict(encode_spans(spans), use_integers_for_enums=True)
    for resource in message.get("resourceSpans", ()):
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                _hex_ids(span)
                for link in span.get("links", ()):
                    _hex_ids(link)
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class JsonLinesFile:
    """A sink that appends to a file. Each line is one write: what was written survives the process.

    A file that would grow beyond a quarter of ``bytes_max`` is set aside: ``regnum-broker-1.jsonl`` becomes
    ``regnum-broker-1.000001.jsonl``, the next one ``.000002``, and the oldest go, so that all together have no more
    than ``bytes_max``. Readers find them by the same pattern, and a name stands for the same lines for ever.
    """

    def __init__(self, path: Path, *, bytes_max: int) -> None:
        """Only assigns; ``bytes_max``: of all files of this name."""
        self._path: Final = path
        self._bytes_max: Final = bytes_max
        self._descriptor: int | None = None
        self._failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> bool:
        """Append a line; False when the file cannot be written."""
        line = encode(spans)
        try:
            written = os.write(self._file_for(len(line)), line)
        except OSError as error:
            if not self._failed:
                logging.getLogger(__name__).warning("cannot write traces to %s: %s", self._path, error.strerror)
            self._failed = True
            return False
        return written == len(line)

    def close(self) -> None:
        """Close the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _file_for(self, size: int) -> int:
        """A file with room for so many bytes."""
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = self._open()
        there = os.fstat(self._descriptor).st_size
        if there and there + size > self._bytes_max // PARTS:
            self.close()
            self._set_aside()
            self._descriptor = self._open()
        return self._descriptor

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def _set_aside(self) -> None:
        before = self._numbered()
        number = before[-1][0] + 1 if before else 1
        if self._path.exists():
            self._path.rename(self._path.with_name(f"{self._path.stem}.{number:06}{self._path.suffix}"))
        room = self._bytes_max - self._bytes_max // PARTS
        for _, aside in reversed(self._numbered()):
            room -= aside.stat().st_size
            if room < 0:
                aside.unlink()

    def _numbered(self) -> list[tuple[int, Path]]:
        """Files that were set aside, the oldest first."""
        name = re.compile(rf"{re.escape(self._path.stem)}\.(\d{{6,}}){re.escape(self._path.suffix)}")
        found = ((name.fullmatch(file.name), file) for file in self._path.parent.iterdir())
        return sorted((int(match[1]), file) for match, file in found if match)


def _hex_ids(item: dict[str, Any]) -> None:
    for name in _IDS:
        if name in item:
            item[name] = base64.b64decode(item[name]).hex()
