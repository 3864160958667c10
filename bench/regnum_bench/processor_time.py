"""Processor time that each kind of process spends while something is measured, and how busy the machine was meanwhile.

On a machine that all processes of a cluster share, this tells a limit of the processors from a wait: where they are
busy all the time, what remains is to need less of them. On a virtual machine some of it may be stolen by others on the
same host: figures taken then say more about those than about us.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

OWN: Final = "bench"
"""Stands for this process."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorTime:
    """Processor time so far, in seconds. Differences of two say what was spent."""

    spent_s: Mapping[tuple[str, int], float]
    """By kind and process id."""
    busy_s: float
    """Of the whole machine, all processors together; without what was stolen."""
    idle_s: float
    """The same, idle; waiting for a disk included."""
    stolen_s: float
    """The same, taken by other machines of the host while somebody here wanted it."""

    @classmethod
    def of(cls, processes: Iterable[tuple[str, int]], proc: Path = Path("/proc")) -> Self:
        """As of now.

        Args:
            processes: kind and process id of each; one that is gone has spent nothing that can be known.
            proc: where the kernel tells.
        """
        spent = {(kind, pid): seconds for kind, pid in processes if (seconds := _of_process(proc, pid)) is not None}
        busy, idle, stolen = _of_machine(proc)
        return cls(spent_s={**spent, (OWN, 0): time.process_time()}, busy_s=busy, idle_s=idle, stolen_s=stolen)

    def since(self, before: "ProcessorTime", phase: str) -> dict[str, float]:
        """Figures of a phase: seconds by kind, and the shares of all processors' time that were spent, and stolen.

        A process that is in one of the two only is left out: it was killed, or has just begun.
        """
        kinds: defaultdict[str, float] = defaultdict(float)
        for process, seconds in self.spent_s.items():
            if process in before.spent_s:
                kinds[process[0]] += seconds - before.spent_s[process]
        figures = {f"{phase}_cpu_{kind}_s": kinds[kind] for kind in sorted(kinds)}
        busy, whole = self.busy_s - before.busy_s, self.whole_since(before)
        if whole > 0:
            # Sums of ticks: of a machine without a pause the last digit may say more than all.
            figures[f"{phase}_busy_ratio"] = min(1.0, busy / whole)
            figures[f"{phase}_stolen_ratio"] = (self.stolen_s - before.stolen_s) / whole
        return figures

    def whole_since(self, before: "ProcessorTime") -> float:
        """Seconds of all processors together since then."""
        # What the kernel counts as waiting for a disk may grow less, by some ticks.
        idle_s = max(0.0, self.idle_s - before.idle_s)
        return self.busy_s - before.busy_s + idle_s + self.stolen_s - before.stolen_s

    def others_ratio(self, before: "ProcessorTime") -> float:
        """Share of all processors' time that others had, here or on the host; 0 where the kernel does not tell."""
        ours = sum(seconds - before.spent_s[key] for key, seconds in self.spent_s.items() if key in before.spent_s)
        busy = self.busy_s + self.stolen_s - before.busy_s - before.stolen_s
        whole = self.whole_since(before)
        return max(0.0, busy - ours) / whole if whole > 0 else 0.0


def _of_process(proc: Path, pid: int) -> float | None:
    try:
        stat = (proc / str(pid) / "stat").read_text(encoding="utf-8")
    except OSError:
        return None
    # The name in parentheses may hold anything; user and system time are the 14th and 15th field of the line.
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def of_threads(pid: int, proc: Path = Path("/proc")) -> tuple[float, float]:
    """Seconds of a process so far: of threads that have its name, as Python's have, and of all others; (0, 0): gone."""
    own = others = 0.0
    try:
        name = (proc / str(pid) / "comm").read_text(encoding="utf-8")
        for task in (proc / str(pid) / "task").iterdir():
            spent_s = _of_process(task.parent, int(task.name)) or 0.0
            if (task / "comm").read_text(encoding="utf-8") == name:
                own += spent_s
            else:
                others += spent_s
    except OSError:
        # A thread that ends while it is looked at is none that works.
        return own, others
    return own, others


def _of_machine(proc: Path) -> tuple[float, float, float]:
    try:
        first = (proc / "stat").read_text(encoding="utf-8").partition("\n")[0]
    except OSError:
        return 0.0, 0.0, 0.0
    # user nice system idle iowait irq softirq steal; guests are counted in user.
    ticks = [int(field) for field in first.split()[1:9]]
    idle, stolen = ticks[3] + ticks[4], ticks[7]
    return (sum(ticks) - idle - stolen) / _TICKS_PER_S, idle / _TICKS_PER_S, stolen / _TICKS_PER_S
