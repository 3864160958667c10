"""Faults that are put into the product on purpose: what finds them is worth something (decision 120).

Each mutant takes one thing away that a safety rule asks for, by patching the product in a process that is of no other
use afterwards. ``hunting`` looks for the first seed that finds it.
"""

from collections.abc import Callable
from typing import Final

from regnum_testing.simulation.mutants import controllers, leaders, logs
from regnum_testing.simulation.mutants.mutant import Mutant

MUTANTS: Final = {mutant.name: mutant for mutant in (*leaders.MUTANTS, *controllers.MUTANTS, *logs.MUTANTS)}
"""By name."""


def applied(name: str) -> Callable[[], None]:
    """What puts a mutant into the product, with those that go with it."""

    def apply() -> None:
        for one in (*MUTANTS[name].beside, name):
            MUTANTS[one].apply()

    return apply


__all__ = ["MUTANTS", "Mutant", "applied"]
