"""Partitions from which nothing comes, and when others are asked about them. Pure. All times are monotonic seconds.

Partitions are kept in the order in which they were last heard of, so that a look costs what has become quiet since the
last one. A question comes soon after a partition has become quiet, and then at intervals that grow with its silence:
an idle consumer of an hour asks some 130 times.
"""

from collections import OrderedDict
from typing import Final

from regnum_client.consumer.cursor import Cursor

QUIET_S: Final = 1.0
"""A partition from which nothing came for so long is compared with what other brokers say of its leader."""
COMPARE_EVERY_S: Final = 30.0
"""Between two comparisons at most. A leader that is cut off from all of the cluster says so itself long before."""


class Comparisons:
    """Of one consumer."""

    def __init__(self) -> None:
        self._last_s = float("-inf")

    def due_s(self, heard_s: float, now_s: float) -> float:
        """When others are asked, where the partition that became quiet last was heard of at ``heard_s``."""
        return self._last_s + min(COMPARE_EVERY_S, max(QUIET_S, (now_s - heard_s) / 4))

    def done(self, now_s: float) -> None:
        """They are being asked."""
        self._last_s = now_s


class Silence:
    """Of one consumer."""

    def __init__(self, *, quiet_s: float) -> None:
        """``quiet_s``: a partition that was not heard of for so long is quiet."""
        self._quiet_s: Final = quiet_s
        self._heard: Final = OrderedDict[Cursor, float]()
        self._quiet: Final = OrderedDict[Cursor, float]()

    @property
    def next_s(self) -> float:
        """When the next partition may become quiet; infinity when all are."""
        return next((heard_s + self._quiet_s for heard_s in self._heard.values()), float("inf"))

    @property
    def topics(self) -> frozenset[str]:
        """Topics of partitions that have become quiet."""
        return frozenset(cursor.partition.topic for cursor in self._quiet)

    def heard(self, cursor: Cursor, now_s: float) -> None:
        """Something came from it, or it is listened to from now on."""
        self._quiet.pop(cursor, None)
        self._heard[cursor] = now_s
        self._heard.move_to_end(cursor)

    def forget(self, cursor: Cursor) -> None:
        """It is not listened to any more."""
        self._quiet.pop(cursor, None)
        self._heard.pop(cursor, None)

    def last(self, now_s: float) -> tuple[float, Cursor] | None:
        """The partition that became quiet last, and when it was heard of: all others have been looked at before.

        One with something that nobody has read, or with an error, is not quiet: it is not asked for records.
        """
        while self.next_s <= now_s:
            cursor, heard_s = self._heard.popitem(last=False)
            if _is_busy(cursor):
                self.heard(cursor, now_s)
            else:
                self._quiet[cursor] = heard_s
        while self._quiet:
            cursor = next(reversed(self._quiet))
            if not _is_busy(cursor):
                return self._quiet[cursor], cursor
            self.heard(cursor, now_s)
        return None


def _is_busy(cursor: Cursor) -> bool:
    return cursor.has_chunk or cursor.error is not None
