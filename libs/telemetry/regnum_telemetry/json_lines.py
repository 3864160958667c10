"""Spans as OTLP/JSON lines, the format of the collector's file exporter: one ``{"resourceSpans": [...]}`` per line.

The encoder is OpenTelemetry's own. Protobuf's JSON differs from OTLP's in one point, which is put right here: ids are
hex and not base64, in links too. Enums are integers, 64-bit integers text.
"""

import base64
import json
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

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
    """A sink that appends to a file. Each line is one write: what was written survives the process."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._descriptor: int | None = None
        self._failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> bool:
        """Append a line; False when the file cannot be written."""
        line = encode(spans)
        try:
            if self._descriptor is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            written = os.write(self._descriptor, line)
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


def _hex_ids(item: dict[str, Any]) -> None:
    for name in _IDS:
        if name in item:
            item[name] = base64.b64decode(item[name]).hex()
