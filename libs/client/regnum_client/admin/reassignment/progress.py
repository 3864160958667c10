"""How far moves are, how fast they go, and what holds them up. Pure.

Goals: whoever waits sees that something happens, or why nothing does, in a few lines that come once.

Constraints: a new replica takes its time, and so does a partition that waits for others to arrive: that is no news
while bytes flow. What an operator has to do something about is told at once; other reasons pass by themselves within
a moment most of the time, so they are told when they have lasted.

Algorithm: a partition that is not open any more has all its bytes. The rate is what came in the last minute, as
brokers say how far they are in steps. A reason is told when it is one for an operator, when it is none of the usual
ones and has lasted for five seconds, and, whichever it is, when nothing has come for half a minute. It is told again
only after it had gone.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from regnum_client.admin.reassignment.plan import Place
from regnum_client.admin.reassignment.values import OngoingReassignment
from regnum_client.admin.reassignment.wording import named

USUAL: Final = ("are not in sync yet", "others move at present")
"""Parts of what every move waits for at some time."""

FOR_OPERATORS: Final = ("are not live", "cannot use their replicas")
"""Parts of what does not pass by itself."""

LASTS_S: Final = 5.0
"""How long a reason that is not usual may last untold."""

STILL_S: Final = 30.0
"""How long nothing may come before every reason is told."""

WINDOW_S: Final = 60.0
"""Time over which the rate is taken."""

TOLD_MAX: Final = 3
"""Reasons that are told at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the moves of one command are."""

    left: int
    """Partitions that are open."""
    percent: float
    """Of all of them, 0 to 100; one that has arrived counts whole."""
    bytes_per_s: float | None
    """What new replicas took of late; None: not known yet."""
    left_s: float | None
    """Seconds until all have arrived at that rate; None: not known."""
    news: tuple[str, ...]
    """What holds them up, where it is to be told now; a line each."""
    reasons: tuple[str, ...]
    """What they wait for at present, whether told or not; a line each."""


class MovesWatched:
    """What is remembered between two looks."""

    def __init__(self, places: Iterable[Place]) -> None:
        self._count = len(set(places))
        self._bytes: dict[Place, tuple[int, int | None]] = {}
        self._flow: deque[tuple[float, int]] = deque()
        self._since_s: dict[Place, tuple[str, float]] = {}
        self._moved: tuple[int, int] | None = None
        self._moved_s = 0.0
        self._told: set[str] = set()

    def look(self, left: Sequence[OngoingReassignment], now_s: float) -> Progress:
        """What is to be shown of those that are open; ``now_s`` is of one monotonic clock."""
        done, to_come = self._taken(left)
        if (len(left), done) != self._moved:
            self._moved, self._moved_s = (len(left), done), now_s
        still = now_s - self._moved_s >= STILL_S
        rate = None if still else self._rate(now_s, done)
        reasons = self._reasons(left, now_s)
        # What waits for an operator never arrives at any rate.
        stuck = any(_is_any(reason, FOR_OPERATORS) for reason, _, _ in reasons)
        return Progress(
            left=len(left),
            percent=(100.0 * (self._count - len(left)) + sum(one.percent or 0.0 for one in left)) / self._count,
            bytes_per_s=rate,
            left_s=to_come / rate if rate and to_come is not None and not stuck else None,
            news=self._news(reasons, now_s, still=still),
            reasons=tuple(_line(reason, places) for reason, places, _ in reasons[:TOLD_MAX]),
        )

    def _taken(self, left: Sequence[OngoingReassignment]) -> tuple[int, int | None]:
        """Bytes that have come, and those that are to come; None: a leader has not said how many."""
        known = {(one.topic, one.partition): (one.bytes_done, one.bytes_total) for one in left}
        gone = {place: (total or done, total) for place, (done, total) in self._bytes.items() if place not in known}
        self._bytes = gone | known
        totals = [total for _, total in known.values()]
        to_come = None if None in totals else sum(total - done for done, total in known.values() if total is not None)
        return sum(done for done, _ in self._bytes.values()), to_come

    def _rate(self, now_s: float, done: int) -> float | None:
        self._flow.append((now_s, done))
        while len(self._flow) > 2 and self._flow[1][0] <= now_s - WINDOW_S:
            self._flow.popleft()
        first_s, first = self._flow[0]
        return (done - first) / (now_s - first_s) if now_s > first_s and done > first else None

    def _reasons(self, left: Sequence[OngoingReassignment], now_s: float) -> list[tuple[str, list[Place], float]]:
        """Each reason with its partitions and since when; those of operators first, then the longest."""
        since: dict[Place, tuple[str, float]] = {}
        for one in left:
            place = (one.topic, one.partition)
            before = self._since_s.get(place)
            if one.waits_for:
                since[place] = before if before and before[0] == one.waits_for else (one.waits_for, now_s)
        self._since_s = since
        places: dict[str, list[Place]] = {}
        for place, (reason, _) in since.items():
            places.setdefault(reason, []).append(place)
        found = [(reason, some, min(since[place][1] for place in some)) for reason, some in places.items()]
        return sorted(found, key=lambda one: (not _is_any(one[0], FOR_OPERATORS), _is_any(one[0], USUAL), one[2]))

    def _news(self, reasons: Sequence[tuple[str, list[Place], float]], now_s: float, *, still: bool) -> tuple[str, ...]:
        due = [
            (reason, places)
            for reason, places, since_s in reasons
            if still or _is_any(reason, FOR_OPERATORS) or (not _is_any(reason, USUAL) and now_s - since_s >= LASTS_S)
        ]
        self._told &= {reason for reason, _ in due}
        new = [(reason, places) for reason, places in due if reason not in self._told][:TOLD_MAX]
        self._told |= {reason for reason, _ in new}
        return tuple(_line(reason, places) for reason, places in new)


def _is_any(reason: str, parts: Sequence[str]) -> bool:
    return any(part in reason for part in parts)


def _line(reason: str, places: Sequence[Place]) -> str:
    return f"{named(sorted(places), shown_max=1)}: {reason}"
