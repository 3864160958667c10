"""What a metric is: its name, kind, unit, labels and meaning. Pure."""

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


class Kind(enum.Enum):
    """What an instrument counts."""

    COUNTER = "counter"
    """A sum that only grows."""
    GAUGE = "gauge"
    """A value as of now."""
    HISTOGRAM = "histogram"
    """How often which values came."""


ELECTION: Final = "election"
METADATA: Final = "metadata"
QUOTA: Final = "quota"
BROKER: Final = "broker"
ALL_SERVICES: Final = (ELECTION, METADATA, QUOTA, BROKER)

LATENCY_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds for what usually takes milliseconds, in seconds."""

SUFFIXES: Final = {"s": "_seconds", "By": "_bytes", "By/s": "_bytes_per_second"}
"""Units that Prometheus has in a name; of other things a second it has only that they are by the second."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instrument:
    """One metric."""

    name: str
    """OpenTelemetry's name."""
    kind: Kind
    """What it counts."""
    unit: str
    """UCUM: ``s``, ``By``, or ``{things}``."""
    meaning: str
    """A sentence for people."""
    services: tuple[str, ...]
    """Services whose processes have it."""
    labels: tuple[str, ...] = ()
    """Names of its labels."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending, in its unit."""
    kafka: str = ""
    """Kafka's MBean for the same, or nearly so; empty: it has none."""

    @property
    def prometheus(self) -> str:
        """Its name in the text that Prometheus reads; a histogram's series add ``_bucket``, ``_sum`` and ``_count``."""
        unit = self.prometheus_unit
        name = self.name.replace(".", "_") + (f"_{unit}" if unit else "")
        return name + "_total" if self.kind is Kind.COUNTER else name

    @property
    def prometheus_unit(self) -> str:
        """Its unit as Prometheus has it; empty for things."""
        by_second = "per_second" if self.unit.endswith("/s") else ""
        return SUFFIXES.get(self.unit, by_second).removeprefix("_")

    @property
    def series(self) -> tuple[str, ...]:
        """Names of the series that Prometheus has of it."""
        suffixes = ("_bucket", "_sum", "_count") if self.kind is Kind.HISTOGRAM else ("",)
        return tuple(self.prometheus + suffix for suffix in suffixes)

    @property
    def description(self) -> str:
        """The sentence, with Kafka's name for whoever knows that."""
        return f"{self.meaning} (Kafka: {self.kafka})" if self.kafka else self.meaning


class Definitions:
    """The metrics that one module defines, in its order."""

    def __init__(self, *services: str) -> None:
        """``services``: those whose processes have them; none: all."""
        self._services: Final = services or ALL_SERVICES
        self._made: Final[list[Instrument]] = []

    def __iter__(self) -> Iterator[Instrument]:
        return iter(self._made)

    def counter(
        self, name: str, unit: str, meaning: str, *, labels: tuple[str, ...] = (), kafka: str = ""
    ) -> Instrument:
        """Define a sum."""
        return self._define(Kind.COUNTER, name, unit, meaning, labels, (), kafka)

    def gauge(self, name: str, unit: str, meaning: str, *, labels: tuple[str, ...] = (), kafka: str = "") -> Instrument:
        """Define a value as of now."""
        return self._define(Kind.GAUGE, name, unit, meaning, labels, (), kafka)

    def histogram(
        self,
        name: str,
        unit: str,
        meaning: str,
        *,
        bounds: tuple[float, ...] = LATENCY_S,
        labels: tuple[str, ...] = (),
        kafka: str = "",
    ) -> Instrument:
        """Define how often which values come."""
        return self._define(Kind.HISTOGRAM, name, unit, meaning, labels, bounds, kafka)

    def _define(
        self,
        kind: Kind,
        name: str,
        unit: str,
        meaning: str,
        labels: tuple[str, ...],
        bounds: tuple[float, ...],
        kafka: str,
    ) -> Instrument:
        made = Instrument(
            name=name,
            kind=kind,
            unit=unit,
            meaning=meaning,
            services=self._services,
            labels=labels,
            bounds=bounds,
            kafka=kafka,
        )
        self._made.append(made)
        return made
