"""Lines of text to a collector, as OTLP log records over gRPC. Whoever calls waits for the collector: never a loop."""

import os
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import opentelemetry.sdk._logs as sdk
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs.export import LogRecordExportResult
from opentelemetry.sdk.resources import Resource

from regnum_telemetry import conventions
from regnum_telemetry.rpc_client import DIRECT

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that name a collector of logs."""


class Exporter(Protocol):
    """What sends log records; OpenTelemetry's exporters are."""

    def export(self, batch: list[sdk.ReadableLogRecord], /) -> LogRecordExportResult:
        """Send them, with retries and a time-out of its own."""

    def shutdown(self) -> None:
        """Hang up."""


class CollectorLogs:
    """Each line is the body of a log record."""

    def __init__(
        self, exporter: Exporter, *, service: str, instance: str, event: str, wall_ms: Callable[[], int]
    ) -> None:
        """Only assigns.

        Args:
            exporter: sends.
            service: ``regnum-broker`` and the like.
            instance: id of the process within its service.
            event: name of the records: ``regnum.audit``.
            wall_ms: says when they are sent, in milliseconds since 1970; when something happened stands in its line.
        """
        self._exporter: Final = exporter
        self._event: Final = event
        self._wall_ms: Final = wall_ms
        self._resource: Final = Resource.create(
            {
                conventions.SERVICE_NAME: service,
                conventions.SERVICE_INSTANCE: instance,
                conventions.SERVICE_NAMESPACE: "regnum",
            }
        )

    def append(self, lines: bytes) -> None:
        """Send whole lines. Raises OSError when nothing took them within the exporter's time-out."""
        now_ns = self._wall_ms() * 1_000_000
        batch = [
            sdk.ReadableLogRecord(
                log_record=LogRecord(
                    timestamp=now_ns,
                    observed_timestamp=now_ns,
                    severity_number=SeverityNumber.INFO,
                    severity_text="INFO",
                    body=line.decode("utf-8", "backslashreplace"),
                    event_name=self._event,
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


def collector_named(environ: Mapping[str, str]) -> bool:
    """Whether the environment names a collector of logs."""
    return any(environ.get(name) for name in ENDPOINTS)


def collector_logs(service: str, instance: str, *, event: str, wall_ms: Callable[[], int]) -> CollectorLogs:
    """To the collector that the environment of this process names; see ``CollectorLogs``."""
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter  # noqa: PLC0415 - it takes a while

    # The variable of all signals is read by its base alone.
    endpoint = next(value for name in ENDPOINTS if (value := os.environ.get(name)))
    exporter = OTLPLogExporter(endpoint=endpoint, channel_options=DIRECT)  # type: ignore[arg-type]  # knows of one option
    return CollectorLogs(exporter, service=service, instance=instance, event=event, wall_ms=wall_ms)
