"""Seeds for hours, the next ones each time; what they came to is added to a committed count (``make soak HOURS=n``).

    python -m regnum_testing.simulation.soak --hours 2 [--keep soak]

Histories that fail are kept in a folder, one file for each seed. The count is ``docs/soaks.json``, and the scoreboard
of ``docs/reliability.md`` is made from it alone; ``--write`` does only that. Exit status 1: a seed failed.
"""

import argparse
import contextlib
import dataclasses
import datetime as dt
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from regnum_testing.simulation import DEFAULT, pin

ROOT: Final = Path(__file__).parents[4]
COUNT: Final = ROOT / "docs" / "soaks.json"
PAGE: Final = ROOT / "docs" / "reliability.md"
BEGIN: Final = "<!-- made by `make soak` -->"
END: Final = "<!-- end -->"
HEAD: Final = (
    "| date | commit | seeds | failed | simulated hours | faults | leader epochs | records acknowledged |",
    "|---|---|---|---|---|---|---|---|",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What one came to."""

    date: str
    """Of its end, UTC."""
    commit: str
    """What ran."""
    first: int
    """First seed."""
    last: int
    """Last seed."""
    failed: tuple[int, ...] = ()
    """Seeds that found something."""
    simulated_s: float = 0.0
    """Virtual time of all of them."""
    faults: int = 0
    """Faults that did something."""
    epochs: int = 0
    """Leader epochs that were seen."""
    acknowledged: int = 0
    """Records, of which none may be lost."""

    def row(self) -> str:
        """As a row of the scoreboard."""
        failed = ", ".join(map(str, self.failed)) or "none"
        hours = f"{self.simulated_s / 3600:.1f}"
        return (
            f"| {self.date} | {self.commit} | {self.first} to {self.last} | {failed} | {hours} | {self.faults:,} |"
            f" {self.epochs:,} | {self.acknowledged:,} |"
        )


def scoreboard(soaks: Sequence[Soak]) -> str:
    """The table, newest first, and what all of them come to."""
    seeds = sum(one.last - one.first + 1 for one in soaks)
    clean = seeds - sum(len(one.failed) for one in soaks)
    hours = sum(one.simulated_s for one in soaks) / 3600
    total = f"{seeds:,} seeds so far, {clean:,} of them clean, {hours:.0f} simulated hours of clusters under faults."
    return "\n".join((total, "", *HEAD, *(one.row() for one in reversed(soaks))))


def page_with(page: str, soaks: Sequence[Soak]) -> str:
    """The page with the scoreboard in its place."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{scoreboard(soaks)}\n{END}{after}"


def counted() -> list[Soak]:
    """Those so far."""
    return [Soak(**{**one, "failed": tuple(one["failed"])}) for one in json.loads(COUNT.read_text(encoding="utf-8"))]


def write(soaks: Sequence[Soak]) -> None:
    """Keep the count, and bring the page in step."""
    told = [dataclasses.asdict(one) for one in soaks]
    COUNT.write_text("[" + ",".join(f"\n  {json.dumps(one)}" for one in told) + "\n]\n", encoding="utf-8")
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), soaks), encoding="utf-8")


def soaked(first: int, outcomes: Iterable[Any], *, date: str, commit: str) -> Soak:
    """What outcomes of seeds from ``first`` on come to."""
    soak = Soak(date=date, commit=commit, first=first, last=first - 1)
    # Ctrl-C ends it: what ran by then is counted.
    with contextlib.suppress(KeyboardInterrupt):
        for outcome in outcomes:
            soak = dataclasses.replace(
                soak,
                last=outcome.seed,
                failed=(*soak.failed, outcome.seed) if outcome.found else soak.failed,
                simulated_s=round(soak.simulated_s + outcome.simulated_s, 1),
                faults=soak.faults + sum(outcome.struck.values()),
                epochs=soak.epochs + outcome.epochs,
                acknowledged=soak.acknowledged + outcome.acknowledged,
            )
    return soak


def _outcomes(first: int, hours: float, keep: Path) -> Iterable[Any]:
    from regnum_testing.simulation.run import forked, quiet, say  # noqa: PLC0415 - the table needs no cluster

    quiet()
    until_s, seed = time.monotonic() + hours * 3600, first
    while time.monotonic() < until_s:
        outcome = forked(seed)
        say(f"seed {seed}: {'FAULT' if outcome.found else 'clean'} in {outcome.cpu_s:.1f} s, trace {outcome.trace}")
        if outcome.found:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{seed}.json").write_text(json.dumps(dataclasses.asdict(outcome), indent=1), encoding="utf-8")
        yield outcome
        seed += 1


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--keep", type=Path, default=Path("soak"), help="folder of histories that fail")
    parser.add_argument("--hash-seed", default=DEFAULT, help="of Python, for another order of sets; part of the run")
    parser.add_argument("--write", action="store_true", help="only make the scoreboard")
    told = parser.parse_args()
    soaks = counted()
    if told.write:
        write(soaks)
        return 0
    first = max((one.last for one in soaks), default=0) + 1
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    today = dt.datetime.now(dt.UTC).date().isoformat()
    soak = soaked(first, _outcomes(first, told.hours, told.keep), date=today, commit=commit)
    if soak.last >= first:
        write([*soaks, soak])
    return 1 if soak.failed else 0


if __name__ == "__main__":
    pin("regnum_testing.simulation.soak")
    sys.exit(main())
