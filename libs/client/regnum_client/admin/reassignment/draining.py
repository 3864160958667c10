"""What is due for a broker that is being emptied. Pure.

Goals: the broker ends up with nothing, whatever came in between; nobody who wants otherwise is overruled.

Constraints: the mark of a broker that is being drained is the only thing that says that it is wanted empty, and it may
be taken back at any time. A move that was asked for, or was seen under way, and is due again was called back by
somebody else, or sent back to the broker: the mark keeps everything else from coming.

Algorithm: look at the mark, then at what was called back, then at what is left. Whoever asks again after a call-back
has to run the command again: only a person knows whether the other one still wants it.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from regnum_client.admin.reassignment.plan import Place, PlannedMove


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One look at a broker that is being drained; all of it is of the same moment, or of moments that agree."""

    draining: bool
    """Whether it has the mark."""
    moves: Sequence[PlannedMove]
    """What has to be asked for so that it gets empty."""
    leaving: Collection[Place]
    """Partitions that are on their way off it."""


@dataclass(frozen=True, slots=True)
class Undone:
    """Somebody took the mark back: it is not to be emptied any more."""


@dataclass(frozen=True, slots=True)
class CalledBack:
    """Somebody called moves back, or sent them back to the broker."""

    places: tuple[Place, ...]
    """Which."""


@dataclass(frozen=True, slots=True)
class Empty:
    """It has nothing, nothing is under way, and nothing new comes."""


@dataclass(frozen=True, slots=True)
class Ask:
    """There is something to ask for, or to wait for."""

    moves: tuple[PlannedMove, ...]
    """What to ask for."""


def due(seen: Seen, followed: Collection[Place]) -> Undone | CalledBack | Empty | Ask:
    """What to do next.

    Args:
        seen: how it is.
        followed: partitions whose moves off it were asked for, or seen under way, before.
    """
    if not seen.draining:
        return Undone()
    back = sorted(place for move in seen.moves if (place := (move.topic, move.partition)) in followed)
    if back:
        return CalledBack(tuple(back))
    if not seen.moves and not seen.leaving:
        return Empty()
    return Ask(tuple(seen.moves))
