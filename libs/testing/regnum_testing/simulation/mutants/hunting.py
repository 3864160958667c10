"""Which seed finds each mutant first, and after how much processor time.

    python -m regnum_testing.simulation.mutants.hunting [--limit-s 600] [--first 1] [--hash-seed 0] [NAME...]

A line for each, as of the table of ``docs/track-record.md``. Exit status 1: one was not found.
"""

import argparse
import itertools
import sys

from regnum_testing.simulation import DEFAULT, pin
from regnum_testing.simulation.mutants import MUTANTS, Mutant
from regnum_testing.simulation.run import forked, quiet, say

LIMIT_S = 600.0
"""Processor time for each, unless told otherwise."""


def hunted(mutant: Mutant, *, first: int, limit_s: float) -> tuple[int | None, float, str]:
    """The seed that finds it, None if none does in that time; processor seconds; and what it found."""
    spent_s = 0.0
    for seed in itertools.count(first):
        outcome = forked(seed, first=mutant.apply)
        spent_s += outcome.cpu_s
        if outcome.found:
            return seed, spent_s, outcome.found[0].splitlines()[-1]
        if spent_s >= limit_s:
            break
    return None, spent_s, ""


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit-s", type=float, default=LIMIT_S)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *MUTANTS])
    parser.add_argument("--hash-seed", default=DEFAULT, help="of Python, for another order of sets; part of the run")
    told = parser.parse_args()
    quiet()
    left = 0
    for name in told.names or MUTANTS:
        mutant = MUTANTS[name]
        seed, spent_s, found = hunted(mutant, first=told.first, limit_s=told.limit_s)
        left += seed is None
        where = "not found" if seed is None else f"seed {seed}"
        say(f"| `{name}` | {mutant.rules} | {mutant.breaks} | {where} | {spent_s:.0f} | {found} |")
    return 1 if left else 0


if __name__ == "__main__":
    pin("regnum_testing.simulation.mutants.hunting")
    sys.exit(main())
