"""What a dashboard shows: panels in rows, and the queries that they ask. Pure."""

import enum
import re
from dataclasses import dataclass, field
from typing import Final

from regnum_telemetry.exposition import CLUSTER

from regnum_testing.prometheus_names import OF_PROCESSES, SERIES

CHOSEN: Final = f'{CLUSTER}="$cluster"'
"""Selects the cluster that a dashboard is about."""

_SERIES: Final = re.compile(r"\b((?:regnum|rpc|process|python|target)_\w+)\b(\{)?")


def in_cluster(expression: str) -> str:
    """An expression with every series in it, and nothing else, selected by cluster."""

    def selected(found: re.Match[str]) -> str:
        name, has_selector = found.groups()
        if name not in SERIES and name not in OF_PROCESSES:
            return found[0]
        return f"{name}{{{CHOSEN}," if has_selector else f"{name}{{{CHOSEN}}}"

    return _SERIES.sub(selected, expression)


class Look(enum.Enum):
    """How a panel looks."""

    LINES = "timeseries"
    """Lines over time."""
    STACK = "stack"
    """The same, one above the other."""
    NUMBER = "stat"
    """The last value, large."""
    HEAT = "heatmap"
    """Buckets of a histogram over time."""
    TEMPO = "tempo"
    """Traces that Tempo has, the longest first."""
    JAEGER = "jaeger"
    """Traces that Jaeger has, the longest first."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    expression: str
    """PromQL without the cluster, which is added; ``$__rate_interval`` and ``$__range`` are Grafana's."""
    legend: str = "__auto"
    """Name of its lines: text with labels in double braces."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel."""

    title: str
    """Its name; one of its dashboard."""
    queries: tuple[Query, ...] = ()
    """What it asks Prometheus."""
    unit: str = "short"
    """Of its values, as Grafana calls it: ``s``, ``bytes``, ``Bps``, ``short``, ``percentunit``, ``ops``."""
    about: str = ""
    """What a person should know who looks at it."""
    look: Look = Look.LINES
    """How it looks."""
    wide: int = 8
    """Of 24 columns."""
    exemplars: bool = False
    """Whether values are shown with links to their traces."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels below a headline."""

    title: str
    """The headline."""
    panels: tuple[Panel, ...]
    """In order."""
    is_folded: bool = False
    """Whether one opens it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard."""

    name: str
    """Of its file, and its uid in Grafana: ``regnum-`` and this."""
    title: str
    """What Grafana lists it as."""
    about: str
    """What it is for."""
    rows: tuple[Row, ...] = field(default=())
    """What it shows."""
    has_traces: bool = False
    """Whether it asks for traces as well."""


def number(title: str, expression: str, unit: str = "short", *, about: str = "", wide: int = 3) -> Panel:
    """A panel with one number."""
    return Panel(title, (Query(expression),), unit, about, Look.NUMBER, wide)


def lines(title: str, *queries: tuple[str, str], unit: str = "short", about: str = "", wide: int = 8) -> Panel:
    """A panel with lines, each query with its legend."""
    return Panel(title, tuple(Query(*query) for query in queries), unit, about, wide=wide)


def percentiles(title: str, series: str, *, by: str = "", about: str = "", wide: int = 8) -> Panel:
    """The median and the 99th percentile of a histogram of seconds, over the last rate interval."""
    legend = f"{{{{{by}}}}} " if by else ""
    among = f"le, {by}" if by else "le"
    queries = tuple(
        Query(f"histogram_quantile({share}, sum by ({among}) (rate({series}[$__rate_interval])))", f"{legend}p{name}")
        for share, name in ((0.5, "50"), (0.99, "99"))
    )
    return Panel(title, queries, "s", about, wide=wide)
