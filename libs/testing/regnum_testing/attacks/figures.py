"""What was measured while an attack went on, and what of it is beyond its bound."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from regnum_testing.attacks.target import MIB

P99_S_MAX: Final = 0.5
"""Of the bystander's waits for acknowledgements, and of those for its records, while an attack goes on."""
TIMES_QUIET: Final = 5.0
"""On a machine that is busy without any attack, its 99th percentile may be so many times the one without."""
HELD_TIMES_MAX: Final = 4
"""Resident memory of a broker, in bytes that it may hold for clients."""
CONTROL_BYTES_MAX: Final = 400 * MIB
"""Resident memory of every other process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Of the bystander, in a time, in seconds."""

    count: int
    """How many."""
    p50_s: float
    """Half of them are no longer."""
    p99_s: float
    """Of a hundred, one is longer."""
    max_s: float
    """The longest."""

    @classmethod
    def of(cls, waits_s: Sequence[float]) -> "Waits":
        """Of waits that are sorted; there is at least one."""
        count = len(waits_s)
        return cls(count=count, p50_s=waits_s[count // 2], p99_s=waits_s[count * 99 // 100], max_s=waits_s[-1])

    @property
    def bound_s(self) -> float:
        """What the 99th percentile may be under attack, if these are the waits of the same minute without."""
        return max(P99_S_MAX, TIMES_QUIET * self.p99_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one attack."""

    attack: str
    """Its name."""
    client: str
    """Whose certificate the attacker showed."""
    has_quotas: bool
    """Whether each user had one."""
    is_charged: bool
    """Whether a quota of the attacker's is used up by it."""
    heard: Mapping[str, int]
    """How the attacker's calls ended."""
    quiet: Mapping[str, Waits]
    """Before it, by kind of sample (``ack``, ``read``, ``call``)."""
    attacked: Mapping[str, Waits]
    """While it went on."""
    errors: int
    """Records and calls of the bystander that ended with an error."""
    told: int
    """Times that a broker asked the bystander to wait."""
    throttled: int
    """Answers that asked a client to wait for a quota."""
    isr_shrinks: int
    """In-sync sets that were made smaller."""
    ended: Sequence[str]
    """Processes that ended or began anew."""
    held_max: int
    """Bytes that a broker may hold for clients."""
    held_peak: int
    """The most that one held since it began."""
    brokers: int
    """Resident memory of the largest broker, in bytes, at its peak."""
    others: int
    """The same of the other processes."""

    def findings(self) -> list[str]:
        """What is beyond its bound, in words."""
        found = [
            f"{kind}: p99 {self.attacked[kind].p99_s:.3f} s, bound {quiet.bound_s:.3f} s (quiet {quiet.p99_s:.3f} s)"
            for kind, quiet in self.quiet.items()
            if self.attacked[kind].p99_s > quiet.bound_s
        ]
        if self.errors:
            found.append(f"{self.errors} records or calls of the bystander ended with errors")
        if self.isr_shrinks:
            found.append(f"{self.isr_shrinks} in-sync sets were made smaller")
        if self.ended:
            found.append(f"ended: {', '.join(self.ended)}")
        if self.brokers > HELD_TIMES_MAX * self.held_max:
            found.append(f"a broker had {self.brokers // MIB} MiB, {HELD_TIMES_MAX} times {self.held_max // MIB} MiB")
        if self.others > CONTROL_BYTES_MAX:
            found.append(f"a process that is no broker had {self.others // MIB} MiB")
        if self.told:
            found.append("the bystander was asked to wait for a quota")
        if self.has_quotas and self.is_charged and not self.throttled:
            found.append("the attacker was never asked to wait for a quota")
        return found


HEAD: Final = (
    "attack",
    "quotas",
    "p99 ack quiet",
    "attacked",
    "longest",
    "p99 read quiet",
    "attacked",
    "p99 call quiet",
    "attacked",
    "ISR",
    "broker MiB",
    "others MiB",
    "throttled",
    "heard",
)


def table(figures: Iterable[Figures]) -> str:
    """Rows with columns that line up; waits in ms."""
    rows = [HEAD, *map(_row, figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _row(one: Figures) -> tuple[str, ...]:
    ack, read, call = (
        (f"{one.quiet[kind].p99_s * 1e3:.0f}", f"{one.attacked[kind].p99_s * 1e3:.0f}")
        for kind in ("ack", "read", "call")
    )
    return (
        one.attack,
        "yes" if one.has_quotas else "no",
        *ack,
        f"{one.attacked['ack'].max_s * 1e3:.0f}",
        *read,
        *call,
        str(one.isr_shrinks),
        str(one.brokers // MIB),
        str(one.others // MIB),
        str(one.throttled),
        ", ".join(f"{count} {how}" for how, count in sorted(one.heard.items())),
    )


def write_json(file: Path, figures: Iterable[Figures]) -> None:
    """All of them, with what is beyond its bound, as one document."""
    file.write_text(json.dumps([asdict(one) | {"findings": one.findings()} for one in figures], indent=1))
