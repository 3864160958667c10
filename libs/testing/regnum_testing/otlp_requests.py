"""Lines of trace files as an exporter sends them, by OTLP over gRPC."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


def sent_as(text: str) -> ExportTraceServiceRequest:
    """A line of a file as an exporter sends it: ids are bytes."""

    def with_bytes(value: Any) -> Any:
        if isinstance(value, list):
            return [with_bytes(one) for one in value]
        if not isinstance(value, dict):
            return value
        ids = {"traceId", "spanId", "parentSpanId"}
        return {
            name: base64.b64encode(bytes.fromhex(one)).decode() if name in ids else with_bytes(one)
            for name, one in value.items()
        }

    return ParseDict(with_bytes(json.loads(text)), ExportTraceServiceRequest())


def requests_of(folder: Path) -> Iterator[ExportTraceServiceRequest]:
    """All lines of all files of a folder."""
    for file in sorted(folder.iterdir()):
        yield from map(sent_as, file.read_text().splitlines())
