"""Our verdict beside that of another judge: a command that is given a file and ends with 0 or 1."""

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from regnum_testing.linearizability.history import read_history
from regnum_testing.linearizability.verdict import judge

_PATIENCE_S: Final = 600.0
"""Seconds that the other judge may take for one history."""


class JudgeFailedError(Exception):
    """The other judge gave no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two judges over the same histories."""

    linearizable: int
    """Histories that both call linearizable."""
    broken: int
    """Histories that both call broken."""
    different: tuple[Path, ...]
    """Histories on which they differ."""

    @property
    def total(self) -> int:
        """Histories judged."""
        return self.linearizable + self.broken + len(self.different)


def compare(files: Iterable[Path], judge_command: Sequence[str]) -> Comparison:
    """Let both judge every file; raises JudgeFailedError."""
    agreed = {True: 0, False: 0}
    different: list[Path] = []
    for file in files:
        ours = judge(read_history(file)).is_linearizable
        if ours is _verdict_of(judge_command, file):
            agreed[ours] += 1
        else:
            different.append(file)
    return Comparison(linearizable=agreed[True], broken=agreed[False], different=tuple(different))


def _verdict_of(judge_command: Sequence[str], file: Path) -> bool:
    try:
        done = subprocess.run(
            [*judge_command, str(file)], capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JudgeFailedError(f"{judge_command[0]} gave no verdict on {file}: {error}") from None
    if done.returncode not in {0, 1}:
        raise JudgeFailedError(f"{judge_command[0]} ended with {done.returncode} on {file}: {done.stderr.strip()}")
    return done.returncode == 0
