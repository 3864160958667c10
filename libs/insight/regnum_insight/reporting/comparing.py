"""Two sets of changes, or two changes, side by side: which step differs, by how much, and what else does. Pure.

Failures are compared with failures and planned changes with planned ones: these have no failure to find out, and in one
sample with them the median of a step says how many there are of each.
A step counts as different where the interval of the difference of its medians does not hold zero. The interval is that
of so many comparisons at once (Bonferroni), so that equal sets seldom raise anything. Two changes stand side by side as
they were, which says nothing of their kinds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from regnum_insight.attribution import steps
from regnum_insight.attribution.changes import SUCCESSION, UNTRACED, Change
from regnum_insight.reporting.choosing import errors_of
from regnum_insight.reporting.rows import label_of, marked_label_of, started, title
from regnum_insight.reporting.statistics import Difference, difference
from regnum_insight.reporting.text import aligned
from regnum_insight.spans.otlp import Process

CHANGES_MIN: Final = 8
"""With fewer changes on a side nothing is said to differ: resampling five tells too little of how they vary."""
LEAST_MS: Final = 1.0
"""A smaller difference is none."""
SHOWN_MS: Final = 0.05
"""A stage of two changes that took less in both is not shown to a person."""
_CONFIDENCE: Final = 0.99


class StepDifference(NamedTuple):
    """One step in both."""

    step: str
    """Its name; ``all`` for the whole."""
    n_first: int
    """Changes of the first set that have it."""
    n_second: int
    """Changes of the second set that have it."""
    of: Difference | None
    """Difference of the medians, in milliseconds; None: too few changes."""

    @property
    def is_clear(self) -> bool:
        """Whether it is a difference and no noise."""
        return self.of is not None and self.of.is_clear and abs(self.of.value) >= LEAST_MS

    def to_value(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "step": self.step,
            "n": [self.n_first, self.n_second],
            "differs": self.is_clear,
            "difference_ms": None if self.of is None else round(self.of.value, 6),
            "interval_ms": None if self.of is None else [round(self.of.low, 6), round(self.of.high, 6)],
        }


class Comparison(NamedTuple):
    """What differs."""

    steps: tuple[StepDifference, ...]
    """All steps of failures: clear differences first, the largest first."""
    planned: tuple[StepDifference, ...]
    """The same of planned changes."""
    around: tuple[str, ...]
    """What else differs: causes, numbers of partitions, leaders; a sentence each."""


def compare(
    first: Sequence[Change], second: Sequence[Change], *, wrote: tuple[Iterable[Process], Iterable[Process]] = ((), ())
) -> Comparison:
    """Compare the changes of leaders of two sets; successions and outages of no change are left out.

    ``wrote``: the processes that wrote the traces of each.
    """
    one, other = _compared(first), _compared(second)
    failures, planned = (differences(_lengths(one, planned=of), _lengths(other, planned=of)) for of in (False, True))
    return Comparison(failures, planned, (*_around(one, other), *_wrote(*map(set, wrote))))


def differences(
    of_one: Mapping[str, Sequence[float]], of_other: Mapping[str, Sequence[float]]
) -> tuple[StepDifference, ...]:
    """Compare lengths by step, and of the whole as ``all``: clear differences first, the largest first."""
    names = [step for step in (*steps.ALL_STEPS, "all") if step in of_one or step in of_other]
    confidence = 1 - (1 - _CONFIDENCE) / max(1, len(names))
    found = []
    for step in names:
        before, after = of_one.get(step, []), of_other.get(step, [])
        enough = min(len(before), len(after)) >= CHANGES_MIN
        between = difference(before, after, confidence=confidence) if enough else None
        found.append(StepDifference(step, len(before), len(after), between))
    found.sort(key=lambda step: (not step.is_clear, step.step == "all", -abs(step.of.value) if step.of else 0.0))
    return tuple(found)


def comparison_text(comparison: Comparison) -> str:
    """A line for each step of failures and of planned changes, the clear differences first."""
    told = [
        line
        for what, of in (("failures", comparison.steps), ("planned changes", comparison.planned))
        if of
        for line in (f"{what}: {_verdict(of)}", *step_lines(of))
    ]
    return "\n".join([*(told or ["no change to compare"]), *comparison.around])


def _verdict(of: Sequence[StepDifference]) -> str:
    clear = [step for step in of if step.is_clear and step.step != "all"]
    if clear and clear[0].of is not None:
        return f"{title(clear[0].step)} differs most: by {clear[0].of.value:+.1f} ms in the median"
    return "no step differs"


def step_lines(steps_of: Iterable[StepDifference]) -> list[str]:
    """A line for each step."""
    lines = []
    for step in steps_of:
        if step.of is None:
            lines.append(f"  {title(step.step):<16} too few changes: {step.n_first} and {step.n_second}")
            continue
        mark = "differs" if step.is_clear else "the same"
        between = f"{step.of.low:+.1f} to {step.of.high:+.1f}"
        lines.append(f"  {title(step.step):<16} {step.of.value:>+9.1f} ms  ({between})  {mark}")
    return lines


def _compared(changes: Sequence[Change]) -> list[Change]:
    return [change for change in changes if change.kind not in {SUCCESSION, UNTRACED}]


def _lengths(changes: Iterable[Change], *, planned: bool) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for change in changes:
        if (change.kind in steps.PLANNED) != planned:
            continue
        for step, ms in change.steps_ms.items():
            found[step].append(ms)
        found["all"].append(change.total_ms)
    return found


def _around(first: Sequence[Change], second: Sequence[Change]) -> tuple[str, ...]:
    texts = []
    for what, of in (
        ("kinds", label_of),
        ("partitions", lambda change: str(change.partitions)),
        ("victims", lambda change: change.victim or "-"),
        ("new leaders", lambda change: change.worst.leader or "-"),
    ):
        one, other = Counter(map(of, first)), Counter(map(of, second))
        if one.keys() != other.keys():
            texts.append(f"{what}: {_told(one)} before, {_told(other)} after")
    return tuple(texts)


def _wrote(first: set[Process], second: set[Process]) -> list[str]:
    """Versions and zones of the processes, where they differ."""
    texts = []
    for what, of in (("versions", "version"), ("zones", "zone")):
        one, other = (Counter(getattr(process, of) or "-" for process in wrote) for wrote in (first, second))
        if one.keys() != other.keys():
            texts.append(f"{what} of processes: {_told(one)} before, {_told(other)} after")
    return texts


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({n})" for name, n in counts.most_common(6)) or "none"


class Stage(NamedTuple):
    """One stage of both."""

    step: str
    """Its name; ``all`` for the whole."""
    first_ms: float | None
    """What it took in the first; None: it has none."""
    second_ms: float | None
    """What it took in the second."""

    @property
    def difference_ms(self) -> float:
        """By how much the second took longer."""
        return round((self.second_ms or 0.0) - (self.first_ms or 0.0), 6)


class Pair(NamedTuple):
    """Two changes."""

    first: Change
    """The one that differences start from."""
    second: Change
    """Is compared with it."""
    stages: tuple[Stage, ...]
    """Stages of their worst chains in the order of time, and the whole at the end."""
    about: tuple[tuple[str, str, str], ...]
    """What each is: name of the fact, and both."""


def pair_of(first: Change, second: Change) -> Pair:
    """Put two changes side by side."""
    one, other = first.steps_ms, second.steps_ms
    stages = [Stage(step, one.get(step), other.get(step)) for step in steps.ALL_STEPS if step in one or step in other]
    facts = (
        ("trace", lambda of: of.trace_id),
        ("began", lambda of: started(of)[:23].replace("T", " ")),
        ("kind", marked_label_of),
        ("victim", lambda of: of.victim or "-"),
        ("partitions", lambda of: f"{of.partitions:,}"),
        ("worst", lambda of: of.worst.name),
        ("new leader", lambda of: of.worst.leader or "-"),
        ("outage, ms", lambda of: "-" if of.outage_ms is None else f"{of.outage_ms:.1f}"),
        ("errors", lambda of: ", ".join(errors_of(of)) or "-"),
        ("version", lambda of: of.version or "-"),
    )
    return Pair(
        first,
        second,
        (*stages, Stage("all", first.total_ms, second.total_ms)),
        tuple((name, fact(first), fact(second)) for name, fact in facts),
    )


def shown_stages(pair: Pair) -> list[list[str]]:
    """Cells of each stage that took time: name, both, the difference, and a mark at the largest one."""
    shown = [one for one in pair.stages if max(one.first_ms or 0, one.second_ms or 0) >= SHOWN_MS or one.step == "all"]
    parts = [one for one in shown if one.step != "all" and abs(one.difference_ms) >= SHOWN_MS]
    largest = max(parts, key=lambda one: abs(one.difference_ms), default=None)
    return [
        [
            title(one.step), _ms(one.first_ms), _ms(one.second_ms), f"{one.difference_ms:+.1f}",
            "differs most" if one is largest else "",
        ]
        for one in shown
    ]  # fmt: skip


def pair_text(pair: Pair) -> str:
    """Both for a terminal."""
    about = aligned([["", "first", "second"], *map(list, pair.about)], left=(0, 1, 2))
    stages = aligned([["stage", "first, ms", "second, ms", "difference", ""], *shown_stages(pair)], left=(0, 4))
    return "\n".join([*about, "", *stages])


def pair_value(pair: Pair) -> dict[str, Any]:
    """Both for JSON."""
    return {
        "about": [{"fact": name, "first": one, "second": other} for name, one, other in pair.about],
        "stages": [
            {"step": one.step, "first_ms": one.first_ms, "second_ms": one.second_ms, "difference_ms": one.difference_ms}
            for one in pair.stages
        ],
    }


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
