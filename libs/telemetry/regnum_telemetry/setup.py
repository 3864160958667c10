"""Where the spans of a process go: chosen from its settings and OpenTelemetry's own variables.

OTEL_TRACES_EXPORTER  ``otlp``: to a collector; ``none``: nowhere
OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT  set: to a collector, unless the exporter is ``none``
OTEL_EXPORTER_OTLP_PROTOCOL, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL  how: ``grpc``, which is the default here, or
                      ``http/protobuf``: then /v1/traces is added to the first endpoint, and nothing to the second
otherwise             OTLP/JSON lines below the traces folder, if the process has one
What else these say is refused: spans that go nowhere look like spans that are not made. A collector is reached
directly, never through a web proxy.
OTEL_TRACES_SAMPLER   which data spans are recorded (``sampling``); ``always_off`` and ``parentbased_always_off`` are
                      about all spans
OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME and the like mean what they mean everywhere. What the process knows of
itself (host, process id, version, an id for this run) may be given by them otherwise. The cluster's id joins the
resource when the process has learned it: spans that began before have none.
"""

import enum
import os
import socket
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from regnum_telemetry import conventions, tracing
from regnum_telemetry.build import this_build
from regnum_telemetry.export_queue import ExportQueue, Sink
from regnum_telemetry.file_names import file_name
from regnum_telemetry.metrics import Metrics
from regnum_telemetry.otel import OtelTracer
from regnum_telemetry.rpc_client import DIRECT
from regnum_telemetry.sampling import ControlPlaneSampler
from regnum_telemetry.scraping import Render

if TYPE_CHECKING:
    from regnum_telemetry.exposition import Exposition

ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that name a collector."""


PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
"""Variables that say how."""
EXPORTER: Final = "OTEL_TRACES_EXPORTER"
SAMPLER: Final = "OTEL_TRACES_SAMPLER"


class Destination(enum.Enum):
    """Where spans go."""

    NOWHERE = "nowhere"
    """They are not made."""
    FILE = "file"
    """OTLP/JSON lines."""
    COLLECTOR = "collector"
    """OTLP over gRPC."""
    COLLECTOR_HTTP = "collector, HTTP"
    """OTLP over HTTP, as Protobuf."""


class UnknownVariableError(ValueError):
    """A variable has a value that means nothing here. The message names both, and what there is instead."""


def choose(environ: Mapping[str, str], *, has_folder: bool) -> Destination:
    """Where spans go; see the head of the module. Raises UnknownVariableError."""
    exporter = _said(environ, EXPORTER)
    if exporter == "none" or _said(environ, "OTEL_SDK_DISABLED") == "true" or _said(environ, SAMPLER) == "always_off":
        return Destination.NOWHERE
    if exporter not in {"", "otlp"}:
        raise UnknownVariableError(f"{EXPORTER} is {environ[EXPORTER]!r}; there are otlp and none")
    if exporter or any(environ.get(name) for name in ENDPOINTS):
        return _over(environ)
    return Destination.FILE if has_folder else Destination.NOWHERE


def _over(environ: Mapping[str, str]) -> Destination:
    """How a collector is spoken to. The variable of traces goes before the one of all signals."""
    name = next((name for name in PROTOCOLS if environ.get(name)), None)
    match "grpc" if name is None else _said(environ, name):
        case "grpc":
            return Destination.COLLECTOR
        case "http/protobuf":
            endpoint = next((one for one in ENDPOINTS if environ.get(one)), None)
            if endpoint is not None and not environ[endpoint].strip().lower().startswith(("http://", "https://")):
                raise UnknownVariableError(
                    f"{endpoint} is {environ[endpoint]!r}; over HTTP it is a URL, such as http://HOST:4318"
                )
            return Destination.COLLECTOR_HTTP
        case _:
            raise UnknownVariableError(f"{name} is {environ[name or '']!r}; there are grpc and http/protobuf")


def _said(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip().lower()


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

    @property
    def waiting(self) -> int:
        """Spans that wait to be brought out."""
        return 0 if self._queue is None else self._queue.waiting

    @property
    def export_under_way_s(self) -> float:
        """For how long the export under way has lasted; 0: there is none."""
        return 0.0 if self._queue is None else self._queue.under_way_s

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

    Raises:
        UnknownVariableError: a variable has a value that means nothing here.
    """
    variables = os.environ if environ is None else environ
    match choose(variables, has_folder=traces_dir is not None):
        case Destination.COLLECTOR:
            # Imported when needed: it takes a while.
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

            # (Its annotation knows of one option, with text.)
            exporter = OTLPSpanExporter(channel_options=DIRECT)  # type: ignore[arg-type]
            return start_with(service, instance, CollectorSink(exporter), environ=variables)
        case Destination.COLLECTOR_HTTP:
            from opentelemetry.exporter.otlp.proto.http import trace_exporter as http  # noqa: PLC0415
            from requests import Session  # noqa: PLC0415 - what that exporter sends with

            direct = Session()
            direct.trust_env = False
            return start_with(
                service, instance, CollectorSink(http.OTLPSpanExporter(session=direct)), environ=variables
            )
        case Destination.FILE if traces_dir is not None:
            from regnum_telemetry.json_lines import JsonLinesFile  # noqa: PLC0415 - needs the encoder, which clients lack

            sink = JsonLinesFile(traces_dir / f"{file_name(service)}-{instance}.jsonl", bytes_max=traces_max_bytes)
            return start_with(service, instance, sink, environ=variables)
        case _:
            return Telemetry(None)


def start_with(service: str, instance: str, sink: Sink, *, environ: Mapping[str, str]) -> Telemetry:
    """Set the tracer up with a given sink."""
    known = Resource(
        {
            conventions.SERVICE_VERSION: this_build().version,
            conventions.HOST_NAME: socket.gethostname(),
            conventions.PROCESS_PID: os.getpid(),
            conventions.START_ID: uuid.uuid4().hex,
        }
    )
    named = Resource.create(
        {
            conventions.SERVICE_NAME: environ.get("OTEL_SERVICE_NAME") or service,
            conventions.SERVICE_INSTANCE: instance,
            conventions.SERVICE_NAMESPACE: "regnum",
        }
    )
    resource, queue = known.merge(named), ExportQueue(sink)

    def provider_of(cluster_id: str) -> TracerProvider:
        told = resource.merge(Resource({conventions.CLUSTER_ID: cluster_id})) if cluster_id else resource
        # Ends with the process by itself (``shutdown_on_exit``), within a bounded time.
        provider = TracerProvider(resource=told)
        if _said(environ, SAMPLER) != "parentbased_always_off":
            provider.sampler = ControlPlaneSampler(provider.sampler)
        provider.add_span_processor(queue)
        return provider

    queue.start()
    tracing.use(OtelTracer(provider_of(""), provider_of))
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

                made.append(Exposition(service, instance, metrics, cluster=tracing.cluster))
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
