"""A change as plain values: what JSON and CSV have of it. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, Any, Final

from regnum_telemetry import conventions as names

from regnum_insight.attribution import steps
from regnum_insight.attribution.chains import Chain, Segment, is_uncertain
from regnum_insight.attribution.changes import UNKNOWN_KIND, UNTRACED, Change, Spread, spread_of

_DIGITS: Final = 6
"""To the nanosecond: a sum of steps is to show what was measured, and not what was rounded. A length between two
moments is a whole number of them as it is."""

SEGMENT_COLUMNS: Final = (
    "trace_id", "kind", "cause", "victim", "started", "partition", "leader", "client", "seen_by", "outage_ms",
    "position", "step", "until", "ms", "raw_ms", "bound_ms", "uncertain", "process",
)  # fmt: skip
"""Columns of the CSV: a line for each segment of each chain."""


def row_of(change: Change) -> dict[str, Any]:
    """One change, for JSON."""
    return {
        **summary_of(change),
        "chains": [chain_row(chain) for chain in change.chains or (change.worst,)],
        "readers": [chain_row(chain) for chain in change.readers],
        "unseen": [chain_row(chain) for chain in change.unseen],
        "spread": {step: _spread(of) for step, of in spread_of(change.chains).items()},
        "clocks": [
            {
                "process": note.process,
                "ahead_ms": note.ahead_ms,
                "bound_ms": note.bound_ms,
                "consistent": note.consistent,
            }
            for note in change.clocks
        ],
    }


def summary_of(change: Change) -> dict[str, Any]:
    """The same without its chains: a row of a table."""
    return {
        "trace_id": change.trace_id,
        "kind": change.kind,
        "cause": change.cause or None,
        "evidence": change.evidence or None,
        "victim": change.victim or None,
        "controller": change.controller or None,
        "partitions": change.partitions,
        "started": started(change),
        "start_ns": change.start_ns,
        "complete": change.complete,
        "planned": change.kind in steps.PLANNED,
        "unfinished": change.unfinished,
        "unsaid": list(change.unsaid),
        "total_ms": change.total_ms,
        "stages_ms": change.steps_ms,
        "unexplained_ms": _rounded(change.worst.unexplained_ms),
        "missing": [segment.until for segment in change.worst.segments if segment.step == steps.UNEXPLAINED],
        "before_root_ms": _rounded(change.before_ms),
        "outage_ms": change.outage_ms,
        "outage_partitions": len({(chain.topic, chain.partition) for chain in change.chains}),
        "worst": change.worst.name,
        "links": list(change.links),
    }


def started(change: Change) -> str:
    """When it began, in UTC, to the millisecond."""
    return datetime.fromtimestamp(change.start_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def write_csv(file: IO[bytes], changes: Iterable[Change]) -> None:
    """A line for each segment of each chain, with SEGMENT_COLUMNS above."""
    file.write(f"{','.join(SEGMENT_COLUMNS)}\n".encode())
    for change in changes:
        about = (change.trace_id, change.kind, change.cause, change.victim, started(change))
        lines = []
        for chain in chains_of(change):
            # Once for all its lines: of very many changes the file is what takes longest.
            of = ",".join(map(_cell, (*about, chain.name, chain.leader, chain.client, chain.seen_by)))
            of = f"{of},{chain.outage_ms:.6f}"
            lines += [f"{of},{position},{_line(segment)}" for position, segment in enumerate(chain.segments)]
        lines.append("")
        file.write("\n".join(lines).encode())


@lru_cache(maxsize=1024)
def _line(segment: Segment) -> str:
    """What a line says of its segment. Partitions of one change have most of theirs in common."""
    step, ms, raw_ms, bound_ms, until, process = segment
    length = f"{ms:.6f}"
    raw = length if raw_ms == ms else f"{raw_ms:.6f}"
    bound = "" if bound_ms is None else f"{bound_ms:.6f}"
    uncertain = "true" if is_uncertain(ms, bound_ms) else "false"
    return f"{step},{until},{length},{raw},{bound},{uncertain},{_cell(process)}"


@lru_cache(maxsize=4096)
def _cell(text: str) -> str:
    """As CSV spells it (RFC 4180)."""
    return f'"{text.replace(_QUOTE, 2 * _QUOTE)}"' if _QUOTED.search(text) else text


_QUOTE: Final = '"'
_QUOTED: Final = re.compile('[",\r\n]')


def chain_row(chain: Chain) -> dict[str, Any]:
    """One chain, for JSON."""
    return {
        "partition": chain.name,
        "leader": chain.leader or None,
        "leader_epoch": chain.leader_epoch or None,
        "client": chain.client or None,
        "seen_by": chain.seen_by,
        "inside_ms": dict(chain.inside),
        "outage_ms": chain.outage_ms,
        "retried": chain.retried,
        "error": chain.error or None,
        "segments": list(map(_segment_row, chain.segments)),
    }


@lru_cache(maxsize=1024)
def _segment_row(segment: Segment) -> Mapping[str, Any]:
    """One segment, for JSON; the same object for equal ones, which partitions of one change have many of."""
    step, ms, raw_ms, bound_ms, until, process = segment
    return {
        "step": step,
        "until": until,
        "ms": ms,
        "raw_ms": raw_ms,
        "bound_ms": bound_ms,
        "uncertain": is_uncertain(ms, bound_ms),
        "process": process,
    }


def _spread(of: Spread) -> Mapping[str, Any]:
    n, least, middle, most = of
    # Where all are equal, as what the controller did is, that is none of two.
    return {"n": n, "min_ms": least, "median_ms": middle if least == most else _rounded(middle), "max_ms": most}


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, _DIGITS)


def chains_of(change: Change) -> Sequence[Chain]:
    """All chains of a change: of producers, consumers, and clients without spans; or that of its slowest order."""
    return [*change.chains, *change.readers, *change.unseen] or [change.worst]


_LABELS: Final = {UNTRACED: "outage of no change", UNKNOWN_KIND: "without a root"}


def label_of(change: Change) -> str:
    """How a change is called in tables: its cause where it has one."""
    if change.kind == names.KIND_BROKER_FAILURE and change.cause:
        return change.cause
    return _LABELS.get(change.kind, change.kind)


def marked_label_of(change: Change) -> str:
    """The same, with a mark where the change was never finished."""
    return f"{label_of(change)} (unfinished)" if change.unfinished else label_of(change)


def title(step: str) -> str:
    """A step's name for people: ``order sent``."""
    return step.replace("_", " ")
