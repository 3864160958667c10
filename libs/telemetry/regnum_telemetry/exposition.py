"""Metrics in the words of OpenTelemetry, and by its exporter in those of Prometheus.

The numbers are ours (``metrics``): they are made into OpenTelemetry's data points when somebody asks, as its
specification has it for a metric producer, so that its SDK is on no other thread than the asking one.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricReader,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from regnum_telemetry import conventions
from regnum_telemetry.instruments.definition import Instrument, Kind
from regnum_telemetry.metrics import HistogramReading, Labels, Metrics, Reading

SCOPE: Final = "regnum"
"""Name of the instrumentation scope."""

FOREIGN: Final = (
    ("process_cpu_seconds_total", "counter", "Processor time, in user and in system mode"),
    ("process_resident_memory_bytes", "gauge", "Resident memory"),
    ("process_virtual_memory_bytes", "gauge", "Virtual memory"),
    ("process_open_fds", "gauge", "Open file descriptors"),
    ("process_max_fds", "gauge", "How many it may have"),
    ("process_start_time_seconds", "gauge", "When it started, in seconds since 1970"),
    ("python_gc_objects_collected_total", "counter", "Objects that garbage collections found, by `generation`"),
    ("python_gc_objects_uncollectable_total", "counter", "Objects that they could not free, by `generation`"),
    ("python_gc_collections_total", "counter", "Garbage collections, by `generation`"),
    ("python_info", "gauge", "1, with the version of Python"),
    ("target_info", "gauge", "1, with `service_name`, `service_instance_id` and the like: which process it is"),
)
"""What Prometheus's own library shows of a process: name, kind, meaning."""


class Exposition:
    """The text of one process. Used by one thread at a time."""

    def __init__(
        self,
        service: str,
        instance: str,
        metrics: Metrics,
        *,
        now_unix_nano: Callable[[], int] = time.time_ns,
    ) -> None:
        """Set it up.

        Args:
            service: service name, e.g. ``regnum-broker``.
            instance: id of the process within its service.
            metrics: what is shown.
            now_unix_nano: wall time.
        """
        resource = Resource.create(
            {
                conventions.SERVICE_NAME: service,
                conventions.SERVICE_INSTANCE: instance,
                conventions.SERVICE_NAMESPACE: "regnum",
            }
        )
        self._registry: Final = CollectorRegistry()
        # What every Prometheus user knows of a process: CPU, memory, open files, collections.
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        GCCollector(registry=self._registry)
        _Reader(_Producer(metrics, resource, now_unix_nano), self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type, in the form that an ``Accept`` header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type


class _Producer:
    """Readings as OpenTelemetry's data points."""

    def __init__(self, metrics: Metrics, resource: Resource, now_unix_nano: Callable[[], int]) -> None:
        self._metrics: Final = metrics
        self._resource: Final = resource
        self._now_unix_nano: Final = now_unix_nano
        self._began_unix_nano: Final = now_unix_nano()

    def produce(self) -> MetricsData:
        """Everything as of now."""
        now = self._now_unix_nano()
        metrics = [self._metric(reading, now) for reading in self._metrics.read()]
        scope = ScopeMetrics(scope=InstrumentationScope(SCOPE), metrics=metrics, schema_url="")
        return MetricsData(
            resource_metrics=[ResourceMetrics(resource=self._resource, scope_metrics=[scope], schema_url="")]
        )

    def _metric(self, reading: Reading, now_unix_nano: int) -> Metric:
        instrument = reading.instrument
        data: Sum | Gauge | Histogram
        match instrument.kind:
            case Kind.HISTOGRAM:
                data = Histogram(
                    data_points=[
                        self._histogram(instrument, labels, one, now_unix_nano) for labels, one in reading.histograms
                    ],
                    aggregation_temporality=AggregationTemporality.CUMULATIVE,
                )
            case Kind.COUNTER:
                data = Sum(
                    data_points=self._numbers(reading, now_unix_nano),
                    aggregation_temporality=AggregationTemporality.CUMULATIVE,
                    is_monotonic=True,
                )
            case Kind.GAUGE:
                data = Gauge(data_points=self._numbers(reading, now_unix_nano))
        return Metric(name=instrument.name, description=instrument.description, unit=instrument.unit, data=data)

    def _numbers(self, reading: Reading, now_unix_nano: int) -> Sequence[NumberDataPoint]:
        return [
            NumberDataPoint(
                attributes=dict(zip(reading.instrument.labels, labels, strict=True)),
                start_time_unix_nano=self._began_unix_nano,
                time_unix_nano=now_unix_nano,
                value=value,
            )
            for labels, value in reading.numbers
        ]

    def _histogram(
        self, instrument: Instrument, labels: Labels, one: HistogramReading, now_unix_nano: int
    ) -> HistogramDataPoint:
        return HistogramDataPoint(
            attributes=dict(zip(instrument.labels, labels, strict=True)),
            start_time_unix_nano=self._began_unix_nano,
            time_unix_nano=now_unix_nano,
            count=sum(one.counts),
            sum=one.total,
            bucket_counts=one.counts,
            explicit_bounds=instrument.bounds,
            # The smallest and largest value are not kept, and Prometheus does not know them.
            min=0.0,
            max=0.0,
        )


class _Reader(PrometheusMetricReader):
    """OpenTelemetry's reader for Prometheus, over our numbers: the producer stands where the SDK has its provider."""

    def __init__(self, producer: _Producer, registry: CollectorRegistry) -> None:
        super().__init__(scope_info_enabled=False, registry=registry)

        def collect(_reader: MetricReader, timeout_millis: object = None) -> MetricsData:  # noqa: ARG001 - nothing waits
            return producer.produce()

        self._set_collect_callback(collect)
