"""Faults that are put into the product on purpose: what finds them is worth something (decision 120).

Each mutant takes one thing away that a safety rule asks for, by patching the product in a process that is of no other
use afterwards. ``hunting`` looks for the first seed that finds it.
"""

from typing import Final

from regnum_testing.simulation.mutants import controllers, leaders, logs
from regnum_testing.simulation.mutants.mutant import Mutant

MUTANTS: Final = {mutant.name: mutant for mutant in (*leaders.MUTANTS, *controllers.MUTANTS, *logs.MUTANTS)}
"""By name."""


__all__ = ["MUTANTS", "Mutant"]
