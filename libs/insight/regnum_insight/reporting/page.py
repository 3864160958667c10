"""The report as one page: no request to anywhere, no script needed, light and dark. Pure.

Its size is bounded whatever the number of changes: what is shown one by one are the worst, and all are in JSON and CSV.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib.resources import files
from statistics import median
from typing import Final

from regnum_insight.attribution import steps
from regnum_insight.attribution.changes import SUCCESSION, UNKNOWN_KIND, UNTRACED, Change, ClockNote
from regnum_insight.engine import Analysis
from regnum_insight.reporting import svg
from regnum_insight.reporting.rows import label_of, marked_label_of, started, title
from regnum_insight.reporting.statistics import percentile
from regnum_insight.reporting.text import notes_of
from regnum_insight.reporting.waterfall import STEP_CLASS, chain_bars, figures_of, key, waterfall
from regnum_insight.spans.span import Span

CHAINS_SHOWN: Final = 15
"""Worst chains that are drawn one below the other."""
LINES_SHOWN: Final = 500
"""Changes that have a line in the table; the longest, in the order of time."""
HEAT_COLUMNS: Final = 48
"""Columns of the heat map."""
GROUPS_SHOWN: Final = 12
"""Lines of a table by number of partitions: of the most frequent numbers."""
PROCESSES_SHOWN: Final = 200
"""Processes that have a line."""
POINTS_SHOWN: Final = 1000
"""Points of a picture."""

_STYLE: Final = "".join(
    files(__package__).joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "svg.css")
)


def page_of(analysis: Analysis, *, made: str, source: str) -> str:
    """The page. ``made`` is when, ``source`` which traces, both as they are to be shown."""
    changes = [change for change in analysis.changes if change.kind != UNTRACED]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Where the time of failovers went</title><style>{_STYLE}</style>",
        f"<h1>Where the time of failovers went</h1><p class=quiet>{escape(source)}, {escape(made)}</p>",
        f"<p class=verdict>{escape(verdict(analysis.changes))}</p>",
        key(),
        _kinds(analysis.changes),
        _planned(changes),
        _worst(changes),
        _each(changes, analysis.pictured),
        _heat(changes),
        _brokers(changes),
        _growth(changes),
        _all(changes),
        _quality(analysis),
    ]
    return "\n".join(part for part in parts if part) + "\n"


def verdict(changes: Sequence[Change]) -> str:
    """One sentence: how many changes there were, how long clients waited, and for what most."""
    known = [change for change in changes if change.kind != UNTRACED]
    found = f"{_count(len(known), 'change')} of leadership"
    if len(known) < len(changes):
        found += f" and {_count(len(changes) - len(known), 'outage')} that no change names"
    outages = [change for change in changes if change.outage_ms is not None]
    if not outages:
        return f"{found}, and no client that left spans had to wait."
    worst = max(outages, key=lambda change: change.outage_ms or 0)
    lengths = [change.outage_ms or 0.0 for change in outages]
    sums: dict[str, float] = defaultdict(float)
    for change in outages:
        for step, ms in change.steps_ms.items():
            sums[step] += ms
    step, most = max(sums.items(), key=lambda item: item[1])
    share = 100 * most / (sum(sums.values()) or 1)
    return (
        f"In {found} clients waited {median(lengths):.0f} ms in the median and "
        f"{worst.outage_ms:.0f} ms at worst ({worst.worst.name}, {label_of(worst)}); the largest part, "
        f"{share:.0f} % of all waiting, lies in the step “{title(step)}”."
    )


def _kinds(changes: Sequence[Change]) -> str:
    of: dict[str, list[Change]] = defaultdict(list)
    for change in changes:
        of[label_of(change)].append(change)
    lines = []
    for kind, group in sorted(of.items()):
        waits = [change.outage_ms for change in group if change.outage_ms is not None]
        figures = [f"{percentile(waits, share):.1f}" for share in (0.5, 0.9, 0.99, 1.0)] if waits else ["-"] * 4
        readers = [change.readers[0].outage_ms for change in group if change.readers]
        of_readers = f"{max(readers):.1f}" if readers else "-"
        chain = f"{median(change.total_ms for change in group):.1f}"
        lines.append([kind, str(len(group)), str(len(waits)), *figures, of_readers, chain])
    head = ["kind", "changes", "with an outage", "p50", "p90", "p99", "max", "consumers, max", "median chain"]
    return f"<h2>Outages of clients by kind, in milliseconds</h2>{_table(head, lines)}"


def _planned(changes: Sequence[Change]) -> str:
    """Planned moves beside failures: how many made a client wait, for how long, and what took most of it."""
    shown = [change for change in changes if change.kind not in {SUCCESSION, UNKNOWN_KIND}]
    groups = {
        "planned moves": [change for change in shown if change.kind in steps.PLANNED],
        "failures": [change for change in shown if change.kind not in steps.PLANNED],
    }
    if not all(groups.values()):
        return ""
    lines, rows = [], []
    for name, of in groups.items():
        waits = [change.outage_ms for change in of if change.outage_ms is not None]
        spread = [f"{percentile(waits, share):.1f}" for share in (0.5, 0.9, 1.0)] if waits else ["-"] * 3
        steps_ms = [change.steps_ms for change in of if change.outage_ms is not None]
        medians = {
            step: median(lengths) for step in steps.ALL_STEPS if (lengths := [one.get(step, 0.0) for one in steps_ms])
        }
        largest = max(medians, key=lambda step: medians[step], default="")
        most = f"{title(largest)} {medians[largest]:.1f}" if largest else "-"
        lines.append([name, str(len(of)), str(len(waits)), *spread, most])
        bars, at = [], 0.0
        for step, ms in medians.items():
            if ms > 0:
                bars.append(svg.Bar(at, at + ms, STEP_CLASS[step], f"{title(step)}: {ms:.2f} ms", title(step)))
                at += ms
        rows.append(svg.Row(name, bars))
    end = max((bar.end for row in rows for bar in row.bars), default=1.0)
    head = ["", "changes", "with an outage", "p50", "p90", "max", "longest step, median"]
    picture = svg.bars(rows, begin=0, end=end, about="Median of each step, planned moves beside failures")
    return (
        f"<h2>Planned moves beside failures, in milliseconds</h2>{_table(head, lines)}"
        f"<p class=quiet>Median of each step:</p><div class=wide>{picture}</div>"
    )


def _worst(changes: Sequence[Change]) -> str:
    chains = sorted(
        ((chain, change) for change in changes for chain in change.chains[:1] or (change.worst,)),
        key=lambda pair: (-pair[0].outage_ms, pair[1].trace_id),
    )[:CHAINS_SHOWN]
    if not chains:
        return ""
    rows = [
        svg.Row(f"{started(change)[11:19]} {marked_label_of(change)}", chain_bars(chain, 0.0))
        for chain, change in chains
    ]
    picture = svg.bars(rows, begin=0, end=chains[0][0].outage_ms, about="The longest chains, one below the other")
    return f"<h2>The longest chains</h2><div class=wide>{picture}</div>"


def _each(changes: Sequence[Change], pictured: Mapping[str, Sequence[Span]]) -> str:
    shown = sorted((change for change in changes if change.trace_id in pictured), key=lambda change: -change.total_ms)
    if not shown:
        return ""
    parts = ["<h2>The longest changes, one by one</h2>"]
    for position, change in enumerate(shown):
        together = "".join(f", belongs together with {other}" for other in change.links)
        exact = " ".join(f"{name}='{value}'" for name, value in figures_of(change).items())
        steps_text = ", ".join(f"{title(step)} {ms:.1f}" for step, ms in change.steps_ms.items() if ms >= 0.05)
        at = started(change)[:19].replace("T", " ")
        name = f"{at}: {marked_label_of(change)}, {change.victim or 'no victim recorded'}"
        parts.append(
            f"<details{' open' if position < 3 else ''}><summary>{escape(name)}; {change.total_ms:.1f} ms on "
            f"{escape(change.worst.name)}</summary><p {exact}>"
            f"{escape(steps_text)} = {change.total_ms:.1f} ms. "
            f"<span class=quiet>trace {change.trace_id}{together}</span></p>"
            f"<div class=wide>{waterfall(change, pictured[change.trace_id])}</div></details>"
        )
    return "".join(parts)


def _heat(changes: Sequence[Change]) -> str:
    shown = [change for change in changes if change.kind != SUCCESSION]
    if len(shown) < 2:
        return ""
    first, last = shown[0].start_ns, max(change.start_ns for change in shown)
    columns = min(HEAT_COLUMNS, len(shown))
    width = max(1, -(-(last - first + 1) // columns))
    sums: dict[str, list[list[float]]] = {step: [[] for _ in range(columns)] for step in steps.ALL_STEPS}
    when = [""] * columns
    for change in shown:
        column = min((change.start_ns - first) // width, columns - 1)
        when[column] = when[column] or started(change)[5:16].replace("T", " ")
        for step, ms in change.steps_ms.items():
            sums[step][column].append(ms)
    rows = [
        (title(step), [median(values) if values else None for values in of])
        for step, of in sums.items()
        if any(value >= 0.05 for values in of for value in values)
    ]
    picture = svg.heat(rows, when, about="Median length of each step over time")
    return f"<h2>Steps over time</h2><p class=quiet>Median of each step; each row by its own largest.</p>{picture}"


def _brokers(changes: Sequence[Change]) -> str:
    """New leaders side by side: what is their own part of a chain."""
    shown = (steps.RECEIVED, steps.LEADS, steps.IN_SYNC, steps.APPENDED, steps.REPLICATED, steps.ACKNOWLEDGED)
    led: dict[str, int] = defaultdict(int)
    of: dict[str, dict[str, list[float]]] = defaultdict(lambda: {step: [] for step in shown})
    for change in changes:
        for chain in change.chains or (change.worst,):
            if chain.leader:
                led[chain.leader] += 1
                lengths = of[chain.leader]
                for step, ms, _, _, _, _ in chain.segments:
                    if step in lengths:
                        lengths[step].append(ms)
    if not led:
        return ""
    lines, rows = [], []
    for broker, many in sorted(led.items()):
        medians = [median(each) if (each := of[broker][step]) else None for step in shown]
        lines.append([broker, str(many), *map(_ms, medians)])
        bars, at = [], 0.0
        for step, middle in zip(shown, medians, strict=True):
            if middle:
                about = f"{title(step)}: {middle:.2f} ms"
                bars.append(svg.Bar(at, at + middle, STEP_CLASS[step], about, title(step)))
                at += middle
        rows.append(svg.Row(f"broker {broker}", bars))
    head = ["broker", "leaderships", *map(title, shown)]
    end = max((bar.end for row in rows for bar in row.bars), default=1.0)
    picture = svg.bars(rows, begin=0, end=end, about="Median of the new leader's own steps, by broker")
    table = f"<div class=wide>{_table(head, lines)}</div>"
    return f"<h2>New leaders compared: medians in milliseconds</h2>{table}<div class=wide>{picture}</div>"


def _growth(changes: Sequence[Change]) -> str:
    shown = [change for change in changes if change.partitions and change.kind != SUCCESSION]
    if len({change.partitions for change in shown}) < 2:
        return ""
    shown = sorted(shown, key=lambda change: -change.total_ms)[:POINTS_SHOWN]
    picture = svg.points(
        (
            (change.partitions, change.total_ms, "dot", f"{label_of(change)}: {change.total_ms:.1f} ms")
            for change in shown
        ),
        x_name="partitions that needed a leader",
        y_name="length, ms",
        about="Length of changes by the number of partitions",
    )
    of: dict[int, list[float]] = defaultdict(list)
    for change in shown:
        of[change.partitions].append(change.total_ms)
    counts = sorted(of, key=lambda count: -len(of[count]))[:GROUPS_SHOWN]
    lines = [
        [str(count), str(len(of[count])), f"{median(of[count]):.1f}", f"{max(of[count]):.1f}"]
        for count in sorted(counts)
    ]
    table = _table(["partitions", "changes", "median, ms", "max, ms"], lines)
    return f"<h2>Growth with partitions</h2><div class=wide>{picture}</div>{table}"


def _all(changes: Sequence[Change]) -> str:
    if not changes:
        return ""
    longest = sorted(changes, key=lambda change: -change.total_ms)[:LINES_SHOWN]
    steps_ms = {change.trace_id: change.steps_ms for change in longest}
    used = [step for step in steps.ALL_STEPS if any(of.get(step, 0) >= 0.05 for of in steps_ms.values())]
    lines = [
        [
            started(change)[:23].replace("T", " "), marked_label_of(change), change.victim or "-",
            str(change.partitions), change.worst.name, *(_ms(steps_ms[change.trace_id].get(step)) for step in used),
            _ms(change.total_ms),
        ]
        for change in changes
        if change.trace_id in steps_ms
    ]  # fmt: skip
    head = ["started (UTC)", "kind", "victim", "partitions", "worst", *map(title, used), "all"]
    left_out = f" The longest {len(lines):,} of {len(changes):,}." if len(lines) < len(changes) else ""
    return (
        f"<h2>All changes, in milliseconds</h2><p class=quiet>{left_out}</p><div class=wide>{_table(head, lines)}</div>"
    )


def _quality(analysis: Analysis) -> str:
    notes = "".join(f"<li>{escape(note)}</li>" for note in notes_of(analysis.changes, analysis.intake))
    known = [change for change in analysis.changes if change.kind not in {UNTRACED, UNKNOWN_KIND}]
    whole = sum(change.total_ms for change in known)
    nameless = sum(change.worst.unexplained_ms for change in known)
    notes += f"<li>{100 * nameless / whole if whole else 0:.1f} % of the time of changes is unexplained</li>"
    aside = analysis.intake.aside[:20]
    lines = [[one.file, one.reason, one.text[:80]] for one in aside]
    table = _table(["file", "reason", "text"], lines) if lines else ""
    return (
        f"<h2>What is to be known of the data</h2><ul>{notes}</ul>{_processes(analysis)}<div class=wide>{table}</div>"
    )


def _processes(analysis: Analysis) -> str:
    """What wrote the traces: versions, and how far its clock was from the controller's."""
    clocks: dict[str, list[ClockNote]] = defaultdict(list)
    for change in analysis.changes:
        for note in change.clocks:
            clocks[note.process].append(note)
    about: dict[str, list[str]] = defaultdict(list)
    for one in sorted(analysis.intake.processes):
        about[one.name].append(f"{one.version or '-'}{f', {one.zone}' if one.zone else ''}")
    lines = []
    for process in sorted({*about, *clocks})[:PROCESSES_SHOWN]:
        notes = clocks[process]
        ahead = [note.ahead_ms for note in notes if note.ahead_ms]
        bounds = [note.bound_ms for note in notes if note.bound_ms is not None]
        lines.append(
            [
                process or "-",
                "; ".join(about[process]) or "-",
                f"{min(ahead):+.1f} to {max(ahead):+.1f}" if ahead else "none",
                f"{max(bounds):.1f}" if bounds else "-",
                str(sum(note.bound_ms is None for note in notes)),
            ]
        )
    head = ["process", "version, zone", "clock corrected, ms", "bound at worst, ms", "changes without any call"]
    return f"<div class=wide>{_table(head, lines)}</div>" if lines else ""


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    cell: Callable[[str], str] = lambda text: f"<td>{escape(text)}</td>"  # noqa: E731
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(f"<tr>{''.join(map(cell, line))}</tr>" for line in lines)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
