"""Which life of a partition a replica is of, and whether a broker that has none may lead. Pure.

Goals: a number that is given again after a partition was removed begins empty, whatever a broker that was forgotten
brings back (trace T10); and a replica that is missing is never taken for one that has no records yet (trace T9).

Constraint: leader epochs go on from those of the removed partition (safety rule S2), so the epoch at which a life
began parts the two: all that the former one wrote is below it, and nothing of this one is.

Example: partition 1 was removed in epoch 4, its tombstone has 5, and 6 is where the next life begins. A log whose
highest epoch is 4 is of the former life; one that has nothing, or begins in 6 or later, is of this one; one with 4 and
7 cannot be.
"""

import enum
from collections.abc import Iterable

from regnum_model.ids import LeaderEpoch


class Life(enum.Enum):
    """Which life a replica is of."""

    THIS = "this"
    """The present one, or nothing says otherwise."""
    FORMER = "former"
    """That of a removed partition of the same number: it is deleted before it takes a role (safety rule S13)."""
    BOTH = "both"
    """It contradicts itself: it is damaged."""


def life_of(
    epochs: Iterable[LeaderEpoch], *, highest: LeaderEpoch, has_records: bool, began: LeaderEpoch | None
) -> Life:
    """Which life a replica is of.

    Args:
        epochs: leader epochs of its log, in any order.
        highest: the highest that its log or the journal ever had; NO_EPOCH: none.
        has_records: whether its log has any.
        began: leader epoch at which the present life began; None: not known.
    """
    if began is None or began == 0:
        return Life.THIS
    known = [epoch for epoch in (*epochs, highest) if epoch >= 0]
    if not known:
        # No log that this broker, or release 0.1.0, wrote has records and no epoch: nothing says what these are of.
        return Life.BOTH if has_records else Life.THIS
    if min(known) >= began:
        return Life.THIS
    return Life.FORMER if max(known) < began else Life.BOTH


def may_make(*, is_new: bool, began: LeaderEpoch, deleted: LeaderEpoch | None) -> bool:
    """Whether a broker may lead with an empty replica, having none.

    Args:
        is_new: whether the controller says that it never had one of this life.
        began: leader epoch at which this life began.
        deleted: the highest epoch of a replica that this broker deleted in this run; None: it deleted none. The store
            may have gone back to a time before that.
    """
    return is_new and (deleted is None or began > deleted)
