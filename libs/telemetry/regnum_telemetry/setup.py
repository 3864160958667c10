"""Where the spans of a process go: chosen from its settings and OpenTelemetry's own variables.

OTEL_TRACES_EXPORTER  ``otlp``: OTLP over gRPC; ``none``: nowhere
OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT  set: OTLP over gRPC, unless the exporter is ``none``
otherwise             OTLP/JSON lines below the traces folder, if the process has one
OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME and the like mean what they mean everywhere.
"""

import enum
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from regnum_telemetry import conventions, tracing
from regnum_telemetry.export_queue import ExportQueue, Sink
from regnum_telemetry.metrics import Metrics
from regnum_telemetry.otel import OtelTracer
from regnum_telemetry.scraping import Render

if TYPE_CHECKING:
    from regnum_telemetry.exposition import Exposition

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that name a collector."""


class Destination(enum.Enum):
    """Where spans go."""

    NOWHERE = "nowhere"
    """They are not made."""
    FILE = "file"
    """OTLP/JSON lines."""
    COLLECTOR = "collector"
    """OTLP over gRPC."""


def choose(environ: Mapping[str, str], *, has_folder: bool) -> Destination:
    """Where spans go; see the head of the module."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter == "none" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return Destination.NOWHERE
    if exporter == "otlp" or any(environ.get(name) for name in ENDPOINTS):
        return Destination.COLLECTOR
    return Destination.FILE if has_folder else Destination.NOWHERE


class Telemetry:
    """The telemetry of a process. ``close`` brings out what waits."""

    def __init__(self, queue: ExportQueue | None) -> None:
        self._queue: Final = queue

    @property
    def dropped(self) -> int:
        """Spans lost (conventions.SPANS_DROPPED)."""
        return 0 if self._queue is None else self._queue.dropped

    @property
    def exported(self) -> int:
        """Spans brought out."""
        return 0 if self._queue is None else self._queue.exported

    def close(self) -> None:
        """Bring out what waits, for two seconds at most."""
        if self._queue is not None:
            tracing.use(tracing.NoTracer())
            self._queue.shutdown()


def start(
    service: str,
    instance: str,
    *,
    traces_dir: Path | None,
    traces_max_bytes: int = tracing.FILES_MAX_BYTES,
    environ: Mapping[str, str] | None = None,
) -> Telemetry:
    """Set the tracer of this process up.

    Args:
        service: service name, e.g. ``regnum-broker``.
        instance: id of the process within its service.
        traces_dir: folder for JSON lines; None: no files.
        traces_max_bytes: of its files in that folder together.
        environ: environment; the process's when None.
    """
    variables = os.environ if environ is None else environ
    match choose(variables, has_folder=traces_dir is not None):
        case Destination.COLLECTOR:
            # Imported when needed: it takes a while.
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

            return start_with(service, instance, CollectorSink(OTLPSpanExporter()), environ=variables)
        case Destination.FILE if traces_dir is not None:
            from regnum_telemetry.json_lines import JsonLinesFile  # noqa: PLC0415 - needs the encoder, which clients lack

            sink = JsonLinesFile(traces_dir / f"{service}-{instance}.jsonl", bytes_max=traces_max_bytes)
            return start_with(service, instance, sink, environ=variables)
        case _:
            return Telemetry(None)


def start_with(service: str, instance: str, sink: Sink, *, environ: Mapping[str, str]) -> Telemetry:
    """Set the tracer up with a given sink."""
    resource = Resource.create(
        {
            conventions.SERVICE_NAME: environ.get("OTEL_SERVICE_NAME") or service,
            conventions.SERVICE_INSTANCE: instance,
            conventions.SERVICE_NAMESPACE: "regnum",
        }
    )
    # Ends with the process by itself (``shutdown_on_exit``), within a bounded time.
    provider = TracerProvider(resource=resource)
    queue = ExportQueue(sink)
    queue.start()
    provider.add_span_processor(queue)
    tracing.use(OtelTracer(provider))
    return Telemetry(queue)


def metrics_text(service: str, instance: str, metrics: Metrics) -> Render:
    """What makes the text of a process's metrics; the libraries for it are loaded with the first one, on its thread.

    Args:
        service: service name, e.g. ``regnum-broker``.
        instance: id of the process within its service.
        metrics: what is shown.
    """
    made: list[Exposition] = []
    making = threading.Lock()

    def render(accept: str) -> tuple[bytes, str]:
        with making:
            if not made:
                from regnum_telemetry.exposition import Exposition  # noqa: PLC0415 - only for who is scraped

                made.append(Exposition(service, instance, metrics))
            return made[0].render(accept)

    return render


class CollectorSink:
    """A sink over one of OpenTelemetry's exporters."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter: Final = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> bool:
        """Send; False when nobody took them."""
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Hang up; ends a retry under way."""
        self._exporter.shutdown()
