"""Where lines of an audit log go besides a file: standard output, and a collector. Called on the log's own thread."""

import os
from typing import Final, Protocol

import opentelemetry.sdk._logs as sdk
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource

from regnum_service.clock import Clock

STDOUT: Final = 1
"""File descriptor."""

EVENT_NAME: Final = "regnum.audit"
"""Of the log records that a collector is sent."""


class StandardOutput:
    """Lines of the log, as they are, between what else the process writes there. A reader that is slow costs lines."""

    def __init__(self, descriptor: int = STDOUT) -> None:
        """Only assigns."""
        self._descriptor: Final = descriptor

    def append(self, lines: bytes) -> None:
        """Write whole lines. Raises OSError."""
        written = 0
        while written < len(lines):
            written += os.write(self._descriptor, lines[written:])

    def sync(self) -> None:
        """What reads them keeps them, or does not."""

    def close(self) -> None:
        """It stays open: it is the process'."""


class Exporter(Protocol):
    """What sends log records; OpenTelemetry's exporters are."""

    def export(self, batch: list[sdk.ReadableLogRecord], /) -> LogRecordExportResult:
        """Send them, with retries and a time-out of its own."""

    def shutdown(self) -> None:
        """Hang up."""


class Collector:
    """Lines as the bodies of OTLP log records: the same JSON text as in the file."""

    def __init__(self, exporter: Exporter, *, service: str, instance: str, clock: Clock) -> None:
        """Only assigns.

        Args:
            exporter: sends.
            service: ``regnum-broker`` and the like.
            instance: id of the process within its service.
            clock: says when they are sent; when something happened stands in its line.
        """
        self._clock: Final = clock
        self._exporter: Final = exporter
        self._resource: Final = Resource.create(
            {"service.name": service, "service.instance.id": instance, "service.namespace": "regnum"}
        )

    def append(self, lines: bytes) -> None:
        """Send whole lines. Raises OSError when nothing took them within the exporter's time-out."""
        now_ns = self._clock.wall_ms() * 1_000_000
        batch = [
            sdk.ReadableLogRecord(
                log_record=LogRecord(
                    timestamp=now_ns,
                    observed_timestamp=now_ns,
                    severity_number=SeverityNumber.INFO,
                    severity_text="INFO",
                    body=line.decode("ascii"),
                    event_name=EVENT_NAME,
                ),
                resource=self._resource,
            )
            for line in lines.splitlines()
        ]
        if self._exporter.export(batch) is not LogRecordExportResult.SUCCESS:
            raise OSError(None, "the collector did not take them")

    def sync(self) -> None:
        """Sent is sent."""

    def close(self) -> None:
        """Hang up."""
        self._exporter.shutdown()
