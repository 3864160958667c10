"""Turns, by their former place (``regnum_service.limits.turns_of_callers``)."""

from regnum_service.limits.turns_of_callers import Turn, TurnsOfCallers, turn_of

__all__ = ["Turn", "TurnsOfCallers", "turn_of"]
