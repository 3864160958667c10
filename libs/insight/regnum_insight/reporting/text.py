"""The report for a terminal: a table of changes, what is to be known of the data, and one chain drawn as bars. Pure."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from regnum_insight.attribution import steps
from regnum_insight.attribution.chains import Chain, Segment
from regnum_insight.attribution.changes import SUCCESSION, UNKNOWN_KIND, UNTRACED, Change
from regnum_insight.reporting.rows import marked_label_of, started, title

if TYPE_CHECKING:
    from regnum_insight.spans.intake import Tally

LINES_SHOWN: Final = 500
"""Changes that have a line in a table of a terminal: the longest, in the order of time."""
_BAR_COLUMNS: Final = 22
_SHOWN_MS: Final = 0.05
_PROCESS: Final = 11
"""Columns of a process' name beside a bar: a line fits eighty."""


def tables_of(changes: Sequence[Change]) -> str:
    """A line for each change, times in milliseconds; a table for changes of a controller and one for all others."""
    shown = [change for change in changes if change.kind != UNTRACED]
    successions = [change for change in shown if change.kind == SUCCESSION]
    others = [change for change in shown if change.kind != SUCCESSION]
    tables = [_table(of, what) for of, what in ((others, "leaders"), (successions, "controllers")) if of]
    return "\n\n".join(tables) or "No change of leadership in these traces."


def _table(changes: Sequence[Change], what: str) -> str:
    longest = {change.trace_id for change in sorted(changes, key=lambda change: -change.total_ms)[:LINES_SHOWN]}
    shown = [change for change in changes if change.trace_id in longest]
    steps_ms = [change.steps_ms for change in shown]
    used = [step for step in steps.ALL_STEPS if any(of.get(step, 0) >= _SHOWN_MS for of in steps_ms)]
    lines = [["started", "kind", "victim", "parts", "worst", *map(title, used), "total", "outage"]]
    for change, of in zip(shown, steps_ms, strict=True):
        lengths = [_ms(of.get(step)) for step in used]
        about = [started(change)[11:23], marked_label_of(change), change.victim or "-", str(change.partitions)]
        lines.append([*about, change.worst.name, *lengths, _ms(change.total_ms), _ms(change.outage_ms)])
    left_out = f", the longest {len(shown):,} of {len(changes):,}" if len(shown) < len(changes) else ""
    return "\n".join([f"changes of {what}{left_out} (ms)", *aligned(lines, left=(0, 1, 2, 4))])


def chain_text(change: Change, *, columns: int = _BAR_COLUMNS) -> str:
    """The worst chain of a change, a line for each step with its bar where it lies in time."""
    chain = change.worst
    waited = f"{chain.name} waited {chain.outage_ms:.1f} ms" if change.chains else f"{chain.outage_ms:.1f} ms"
    head = f"{marked_label_of(change)}: {change.victim or 'no victim recorded'} at {started(change)[11:23]}; {waited}"
    return "\n".join([head, *chain_lines(chain, columns=columns)])


def chain_lines(chain: Chain, *, columns: int = _BAR_COLUMNS) -> list[str]:
    """A line for each step that took time: its name, its length, its bar, and who recorded its end."""
    whole = chain.outage_ms or 1.0
    at = 0.0
    lines = []
    for segment in chain.segments:
        before, at = at, at + segment.ms
        if segment.ms < _SHOWN_MS:
            continue
        begin, end = round(before / whole * columns), round(at / whole * columns)
        bar = " " * begin + ("▏" if end == begin else "█" * (end - begin))
        bound = f" ±{segment.bound_ms:.1f}" if segment.uncertain and segment.bound_ms is not None else ""
        step = _step(segment)
        process = segment.process if len(segment.process) <= _PROCESS else f"{segment.process[: _PROCESS - 1]}…"
        lines.append(f"  {step:<24} {segment.ms:>9.1f}{bound:<7} {bar:<{columns + 1}} {process}".rstrip())
        if segment.step == steps.LEADS and chain.inside:
            lines.append(f"    of which {', '.join(f'{part} {ms:.1f}' for part, ms in chain.inside)}")
    lines.append(f"  {'all':<24} {chain.outage_ms:>9.1f}")
    return lines


def _step(segment: Segment) -> str:
    if segment.step == steps.UNEXPLAINED:
        return f"unexplained: {title(segment.until)}"
    if segment.step == steps.UNSEEN:
        return "client, left no spans"
    return title(segment.step)


def notes_of(changes: Sequence[Change], intake: "Tally") -> list[str]:
    """What is to be known of the data, a sentence each."""
    notes = [f"{intake.spans_n:,} spans of {intake.files_n:,} files"]
    aside = intake.documents_torn_n + intake.spans_refused_n
    if aside:
        notes.append(
            f"{intake.documents_torn_n:,} torn documents and {intake.spans_refused_n:,} spans without ids, name or "
            "times were set aside"
        )
    if intake.files_empty:
        notes.append(f"no span in {_some(intake.files_empty)}")
    unknown = [change for change in changes if change.kind == UNKNOWN_KIND]
    if unknown:
        notes.append(
            f"{len(unknown):,} changes have no root: their controller died before it wrote anything, or its file is "
            "missing"
        )
    unfinished = [change for change in changes if change.unfinished]
    if unfinished:
        notes.append(f"{len(unfinished):,} changes are unfinished: their controller died, or is not done")
    before = [change for change in changes if change.unsaid]
    if before:
        unsaid = ", ".join(title(step) for step in before[0].unsaid)
        notes.append(
            f"{len(before):,} changes were written before there was one root for all, and do not tell: {unsaid}"
        )
    unseen = [change for change in changes if change.unseen]
    if unseen:
        notes.append(f"in {len(unseen):,} changes clients waited that left no spans: their own part is unknown")
    untraced = [change for change in changes if change.kind == UNTRACED]
    if untraced:
        longest = max(change.total_ms for change in untraced)
        notes.append(
            f"{len(untraced):,} outages of clients, of {longest:.1f} ms at most, are in no change's trace: "
            "what moved those leaders left no root"
        )
    corrected = sorted({note.process for change in changes for note in change.clocks if note.ahead_ms})
    if corrected:
        notes.append(f"clocks differ, and times were corrected: {_some(corrected)}")
    unclear = sorted({note.process for change in changes for note in change.clocks if note.bound_ms is None})
    if unclear:
        notes.append(f"no call shows how far the clock differs: {_some(unclear)}")
    return notes


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5:,} more" if len(names) > 5 else "")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def aligned(lines: Sequence[Sequence[str]], *, left: Iterable[int]) -> list[str]:
    """Lines of a table; columns are to the right but for those of ``left``."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    of_left = set(left)
    return [
        "  ".join(
            cell.ljust(width) if column in of_left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
