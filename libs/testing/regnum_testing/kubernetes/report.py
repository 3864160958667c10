"""What was found, for people as a table and for programs as JSON. Pure."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Final

from regnum_testing.kubernetes.observed import Observed
from regnum_testing.kubernetes.verdict import Row, said

LOOSE_MS: Final = 100
"""A load whose own event loop was this late measures stalls no better than that: it is said."""


def as_table(observed: Observed, rows: Sequence[Row]) -> str:
    """Promises first, then what was done with its longest stall."""
    lines = [_row("promise", "limit", "result", "holds"), _row("---", "---", "---", "---")]
    lines += [_row(one.promise, one.limit, one.result, "yes" if one.holds else "NO") for one in rows]
    lines += ["", _row("done", "to", "longest stall", "until all was well"), _row("---", "---", "---", "---")]
    for one in observed.disturbances:
        longest = max((stall.length_s for stall in observed.stalls_in(one)), default=0.0)
        well = f"{one.end - one.begin:.1f} s" if one.settled else "never"
        notes = "".join(f"; {name} {value}" for name, value in one.notes.items())
        lines.append(_row(one.kind.value, one.what, said(longest), well + notes))
    lines.append("")
    if observed.ready_s is not None:
        lines.append(f"Ready {observed.ready_s:.1f} s after apply.")
    late_ms = max((one.late_ms for one in observed.seconds), default=0)
    if late_ms >= LOOSE_MS:
        lines.append(
            f"The load's own event loop was up to {late_ms} ms late: stalls are the cluster's and the machine's."
        )
    lines.append("Machine: " + ", ".join(f"{name} {value}" for name, value in observed.machine.items()) + ".")
    return "\n".join(lines) + "\n"


def as_json(observed: Observed, rows: Sequence[Row]) -> str:
    """Everything that was seen, and the rows."""
    found = {"holds": all(one.holds for one in rows), "promises": [dataclasses.asdict(one) for one in rows]}
    seen = dataclasses.asdict(observed)
    for one, made in zip(seen["disturbances"], observed.disturbances, strict=True):
        one["kind"] = made.kind.value
    for one, tried in zip(seen["attempts"], observed.attempts, strict=True):
        one["gate"] = tried.gate.value
    return json.dumps(found | seen, indent=1) + "\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
