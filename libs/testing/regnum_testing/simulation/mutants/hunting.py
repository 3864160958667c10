"""What finds each mutant, and after how much processor time.

    python -m regnum_testing.simulation.mutants.hunting [--limit-s 600] [--seconds 12] [--by-seeds] [NAME...]

A line for each, as of the table of ``docs/track-record.md``: the story that is aimed at it, or the first seed. Exit
status 1: one was not found.
"""

import argparse
import itertools
import sys
from typing import Final

from regnum_testing.simulation import DEFAULT, pin
from regnum_testing.simulation.mutants import MUTANTS, Mutant
from regnum_testing.simulation.run import Outcome, forked, quiet, say
from regnum_testing.simulation.schedules.stories import STORIES

SECONDS = 12.0
"""How long the faults of a seed last, unless told otherwise: many short runs see more mixes than few long ones."""

LIMIT_S = 600.0
"""Processor time for each, unless told otherwise."""


TIMES_TOLD: Final = 3
"""Seeds of a story that are tried: whether its moments meet depends on how long everything takes."""


def told(mutant: Mutant) -> Outcome:
    """What its story finds: the first time that it finds the mutant, or else the last."""
    for seed in range(1, TIMES_TOLD + 1):
        outcome = forked(seed, schedule=STORIES[mutant.story], first=mutant.put_in)
        if mutant.is_found(outcome.found):
            break
    return outcome


def hunted(mutant: Mutant, *, first: int, limit_s: float, seconds: float) -> tuple[int | None, float, str]:
    """The seed that finds it, None if none does in that time; processor seconds; and what it found."""
    spent_s = 0.0
    for seed in itertools.count(first):
        outcome = forked(seed, seconds=seconds, first=mutant.put_in)
        spent_s += outcome.cpu_s
        if mutant.is_found(outcome.found):
            return seed, spent_s, _last_line(mutant, outcome)
        if spent_s >= limit_s:
            break
    return None, spent_s, ""


def _last_line(mutant: Mutant, outcome: Outcome) -> str:
    return next((one.splitlines()[-1] for one in outcome.found if mutant.is_found([one])), "")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--by-seeds", action="store_true", help="leave stories aside")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *MUTANTS])
    parser.add_argument("--hash-seed", default=DEFAULT, help="of Python, for another order of sets; part of the run")
    asked = parser.parse_args()
    quiet()
    left = 0
    for name in asked.names or MUTANTS:
        mutant = MUTANTS[name]
        if mutant.story and not asked.by_seeds:
            outcome = told(mutant)
            spent_s, found = outcome.cpu_s, _last_line(mutant, outcome)
            where = f"`{mutant.story}`" if found else "not found"
        else:
            limits = {"limit_s": asked.limit_s, "seconds": asked.seconds}
            seed, spent_s, found = hunted(mutant, first=asked.first, **limits)
            where = "not found" if seed is None else f"seed {seed}"
        left += not found
        say(f"| `{name}` | {mutant.rules} | {mutant.breaks} | {where} | {spent_s:.1f} | {found} |")
    return 1 if left else 0


if __name__ == "__main__":
    pin("regnum_testing.simulation.mutants.hunting")
    sys.exit(main())
