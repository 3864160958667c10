"""The text that Prometheus reads, made by its own library (``prometheus_client``) of our numbers (``metrics``).

The families are made when somebody asks, on the asking thread. Every series of a process says which cluster it is of,
those of the interpreter and the machine included, so that one Prometheus can scrape several clusters. Values that came
with the trace they were measured in are shown with it, as exemplars, in OpenMetrics; Prometheus's own text has none.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from regnum_telemetry import conventions
from regnum_telemetry.instruments.definition import Instrument, Kind
from regnum_telemetry.metrics import HistogramReading, Labels, Metrics, Reading

CLUSTER: Final = "cluster"
"""Label that every series of a process has, once it knows its cluster: the cluster's id."""

TRACE_ID: Final = "trace_id"
"""Label of exemplars, as Grafana looks for it."""

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
        self, service: str, instance: str, metrics: Metrics, *, cluster: Callable[[], str] = lambda: ""
    ) -> None:
        """Set it up.

        Args:
            service: service name, e.g. ``regnum-broker``.
            instance: id of the process within its service.
            metrics: what is shown.
            cluster: id of the cluster that the process belongs to; empty while it does not know that.
        """
        registry = CollectorRegistry()
        # What every Prometheus user knows of a process: CPU, memory, open files, collections.
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        registry.register(_Ours(metrics, _target(service, instance)))
        self._shown: Final = _InCluster(registry, cluster)

    def render(self, accept: str) -> tuple[bytes, str]:
        """The text and its content type, in the form that an ``Accept`` header asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self._shown), content_type


class _InCluster(CollectorRegistry):
    """What a registry has, with the cluster's label on each sample."""

    def __init__(self, registry: CollectorRegistry, cluster: Callable[[], str]) -> None:
        super().__init__()
        self._registry: Final = registry
        self._cluster: Final = cluster

    def collect(self) -> Iterator[Metric]:
        """Everything as of now."""
        cluster = self._cluster()
        for family in self._registry.collect():
            if cluster:
                for sample in family.samples:
                    sample.labels[CLUSTER] = cluster
            yield family


class _Ours(Collector):
    """Readings as families."""

    def __init__(self, metrics: Metrics, target: Mapping[str, str]) -> None:
        self._metrics: Final = metrics
        self._target: Final = target

    def describe(self) -> Iterable[Metric]:
        """None: the registry need not ask for all at once to know the names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Everything as of now."""
        yield InfoMetricFamily("target", "Which process it is", dict(self._target))
        yield from map(_family, self._metrics.read())


def _target(service: str, instance: str) -> dict[str, str]:
    named = {
        conventions.SERVICE_NAME: service,
        conventions.SERVICE_INSTANCE: instance,
        conventions.SERVICE_NAMESPACE: "regnum",
    }
    return {name.replace(".", "_"): value for name, value in named.items()}


def _family(reading: Reading) -> Metric:
    instrument = reading.instrument
    names, unit = instrument.labels, instrument.prometheus_unit
    match instrument.kind:
        case Kind.HISTOGRAM:
            histogram = HistogramMetricFamily(instrument.prometheus, instrument.description, labels=names, unit=unit)
            for labels, one in reading.histograms:
                histogram.add_metric(labels, _buckets(instrument, one), one.total)
            return histogram
        case Kind.COUNTER:
            return _numbers(
                CounterMetricFamily(instrument.prometheus, instrument.description, labels=names), unit, reading.numbers
            )
        case Kind.GAUGE:
            return _numbers(
                GaugeMetricFamily(instrument.prometheus, instrument.description, labels=names), unit, reading.numbers
            )


def _numbers(
    family: CounterMetricFamily | GaugeMetricFamily, unit: str, numbers: Iterable[tuple[Labels, float]]
) -> Metric:
    # (Given to the constructor, it would be put behind the suffix that a counter's name has already.)
    family.unit = unit
    for labels, value in numbers:
        family.add_metric(labels, value)
    return family


def _buckets(instrument: Instrument, one: HistogramReading) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    made: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    for number, (bound, count) in enumerate(
        zip((*map(str, instrument.bounds), "+Inf"), accumulate(one.counts), strict=True)
    ):
        said = one.exemplars.get(number)
        exemplar = () if said is None else (Exemplar({TRACE_ID: said.trace_id}, said.value, said.unix_s),)
        made.append((bound, count, *exemplar))
    return made
