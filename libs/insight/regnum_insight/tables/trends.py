"""What tables say of weeks and months: how many changes, how long, and what a release made longer. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any, Final, NamedTuple

from regnum_insight.attribution.changes import SUCCESSION
from regnum_insight.reporting.comparing import StepDifference, differences, step_lines
from regnum_insight.reporting.statistics import percentile
from regnum_insight.reporting.text import aligned

COLUMNS: Final = (
    "trace_id", "start_ns", "kind", "planned", "version", "outage_ms", "total_ms", "steps_ms", "cluster",
)  # fmt: skip
"""Columns of ``changes`` that are looked at; ``cluster`` is that of its folder."""
_NUMBERS: Final = re.compile(r"\d+")


class Period(StrEnum):
    """Lengths of the parts of time that changes are counted by."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    def begin(self, ns: int) -> date:
        """The first day of the part that a moment lies in, UTC."""
        day = datetime.fromtimestamp(ns // 10**9, UTC).date()
        match self:
            case Period.DAY:
                return day
            case Period.WEEK:
                return day - timedelta(days=day.weekday())
            case Period.MONTH:
                return day.replace(day=1)


class Part(NamedTuple):
    """The changes of leaders of one cluster in one part of time."""

    begin: date
    """Its first day."""
    cluster: str
    """Id of the cluster."""
    changes: int
    """All of them."""
    planned: int
    """Of these, planned ones."""
    waited: int
    """Of these, changes for which a producer waited."""
    p50_ms: float | None
    """Percentiles of the longest outages of a producer; None: none waited."""
    p90_ms: float | None
    """Likewise."""
    p99_ms: float | None
    """Likewise."""
    max_ms: float | None
    """The longest."""


class Release(NamedTuple):
    """Two releases, one after the other, side by side."""

    earlier: str
    """Version."""
    later: str
    """The next of which there are changes."""
    planned: bool
    """Whether it is about planned changes; otherwise about failures."""
    steps: Sequence[StepDifference]
    """All steps: clear differences first."""

    @property
    def regressions(self) -> list[StepDifference]:
        """Steps that clearly take longer."""
        return [step for step in self.steps if step.is_clear and step.of is not None and step.of.value > 0]


class Trends(NamedTuple):
    """What tables say."""

    parts: Sequence[Part]
    """By time and cluster."""
    releases: Sequence[Release]
    """By their numbers."""


def trends_of(changes: Iterable[Mapping[str, Any]], period: Period) -> Trends:
    """Of rows of ``changes`` with COLUMNS; successions are left out."""
    rows = [row for row in changes if row["kind"] != SUCCESSION]
    by_part: dict[tuple[date, str], list[Mapping[str, Any]]] = defaultdict(list)
    by_release: dict[tuple[bool, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in sorted(rows, key=lambda row: (row["start_ns"], row["trace_id"])):
        by_part[period.begin(row["start_ns"]), row["cluster"]].append(row)
        if row["version"]:
            lengths = by_release[row["planned"], row["version"]]
            lengths["all"].append(row["total_ms"])
            for step, ms in row["steps_ms"]:
                lengths[step].append(ms)
    releases = []
    for planned in (False, True):
        versions = sorted((version for of, version in by_release if of == planned), key=_in_order)
        for earlier, later in pairwise(versions):
            steps = differences(by_release[planned, earlier], by_release[planned, later])
            releases.append(Release(earlier, later, planned, steps))
    return Trends([_part(*of, some) for of, some in sorted(by_part.items())], releases)


def _part(begin: date, cluster: str, rows: Sequence[Mapping[str, Any]]) -> Part:
    waits = [row["outage_ms"] for row in rows if row["outage_ms"] is not None]
    p50, p90, p99 = (percentile(waits, share) if waits else None for share in (0.5, 0.9, 0.99))
    planned = sum(row["planned"] for row in rows)
    return Part(begin, cluster, len(rows), planned, len(waits), p50, p90, p99, max(waits, default=None))


def _in_order(version: str) -> tuple[list[int], str]:
    return [int(number) for number in _NUMBERS.findall(version)], version


def trends_text(trends: Trends) -> str:
    """A table by time, and what each release made longer, for people."""
    if not trends.parts:
        return "No change of leadership in these tables."
    lines = [["from", "cluster", "changes", "planned", "waited", "p50", "p90", "p99", "max"]]
    for part in trends.parts:
        counts = map(str, (part.changes, part.planned, part.waited))
        lengths = ("-" if ms is None else f"{ms:.1f}" for ms in part[5:])
        lines.append([part.begin.isoformat(), part.cluster, *counts, *lengths])
    told = ["outages of producers (ms)", *aligned(lines, left=(0, 1))]
    for release in trends.releases:
        what = "planned changes" if release.planned else "failures"
        longer = ", ".join(step.step for step in release.regressions if step.step != "all")
        told += [
            "",
            f"{release.earlier} to {release.later}, {what}: {f'longer: {longer}' if longer else 'none longer'}",
        ]
        told += step_lines(release.steps)
    return "\n".join(told)


def trends_values(trends: Trends) -> dict[str, Any]:
    """The same as values, for JSON."""
    return {
        "parts": [{**part._asdict(), "begin": part.begin.isoformat()} for part in trends.parts],
        "releases": [
            {
                "earlier": release.earlier,
                "later": release.later,
                "planned": release.planned,
                "regressions": [step.step for step in release.regressions],
                "steps": [step.to_value() for step in release.steps],
            }
            for release in trends.releases
        ],
    }
