"""What did not succeed, counted and not repeated, so that nobody can fill a disk by being refused. Pure.

Goals: a single refusal has its line; a flood has a bounded number of them and says how many it stands for; one client's
flood does not hide what another is refused.

Algorithm: within a window of a second equal entries are counted. Of one caller ``OF_ONE_MAX`` different ones are kept,
of all ``OF_ALL_MAX``; the rest is counted under the caller, or under everybody. When the window is over, lines are
written for as long as a bucket has tokens (``BURST`` of them, ``RATE`` more a second), the first of every caller before
the second of any; what is left over is one line with a count, for denials and for failures each.

So however many calls are refused, there are at most ``BURST`` lines at once, and ``RATE`` + 2 lines a second in the
long run: with the longest lines 48 KB a second, with usual ones 6 KB.
"""

from collections.abc import Iterable
from typing import Final

from regnum_model.principals import NOBODY

from regnum_service.access.auditing.lines import Entry
from regnum_service.access.identity import Caller

WINDOW_S: Final = 1.0
"""Within so long equal entries are one line."""

OF_ONE_MAX: Final = 20
"""Different entries of one caller in a window."""

OF_ALL_MAX: Final = 200
"""Different entries of all callers in a window."""

RATE: Final = 10.0
"""Lines a second, in the long run."""

BURST: Final = 200.0
"""Lines at once."""

OTHERS: Final = "others"
"""Resource of a line that stands for different ones."""

EVERYBODY: Final = Caller(principal=NOBODY, listener="any")
"""Whose lines are counted together when there are too many callers."""


class _Counted:
    __slots__ = ("at_ms", "count", "entry")

    def __init__(self, entry: Entry, at_ms: int) -> None:
        self.entry: Final = entry
        self.at_ms: Final = at_ms
        self.count = 0


class Repeats:
    """Entries of the window that is open. The caller sees to it that one thread at a time is inside."""

    def __init__(self) -> None:
        """Empty, with a full bucket."""
        self._open: dict[Entry, _Counted] = {}
        self._of_caller: dict[Caller, int] = {}
        self._ends_s = 0.0
        self._tokens = BURST
        self._filled_s: float | None = None

    def __len__(self) -> int:
        """Different entries that wait."""
        return len(self._open)

    def note(self, entry: Entry, *, at_ms: int, now_s: float, count: int = 1) -> None:
        """It happened. ``now_s``: monotonic seconds."""
        if not self._open:
            self._ends_s = now_s + WINDOW_S
        found = self._open.get(entry) or self._added(entry, at_ms)
        found.count += count

    def _added(self, entry: Entry, at_ms: int) -> _Counted:
        who = entry.who
        of_caller = self._of_caller.get(who, 0)
        if len(self._open) >= OF_ALL_MAX:
            entry = Entry(event=entry.event, who=EVERYBODY, resource=OTHERS)
        elif of_caller >= OF_ONE_MAX:
            entry = Entry(event=entry.event, who=who, resource=OTHERS)
        else:
            self._of_caller[who] = of_caller + 1
        found = self._open.get(entry)
        if found is None:
            found = self._open[entry] = _Counted(entry, at_ms)
        return found

    def due_s(self, now_s: float) -> float | None:
        """Seconds until the window is over, at least 0; None: none is open."""
        return max(0.0, self._ends_s - now_s) if self._open else None

    def take(self, now_s: float) -> list[tuple[Entry, int, int]]:
        """Close the window: entries, when the first of each came (milliseconds since 1970), and how many there were."""
        found, self._open = self._open, {}
        self._of_caller = {}
        if self._filled_s is not None:
            self._tokens = min(BURST, self._tokens + RATE * max(0.0, now_s - self._filled_s))
        self._filled_s = now_s
        return self._within_bucket(_by_turns(found.values()))

    def _within_bucket(self, counted: list[_Counted]) -> list[tuple[Entry, int, int]]:
        lines = [(one.entry, one.at_ms, one.count) for one in counted[: int(self._tokens)]]
        self._tokens -= len(lines)
        left = counted[len(lines) :]
        for event in dict.fromkeys(one.entry.event for one in left):
            rest = [one for one in left if one.entry.event == event]
            at_ms, count = min(one.at_ms for one in rest), sum(one.count for one in rest)
            lines.append((Entry(event=event, who=EVERYBODY, resource=OTHERS), at_ms, count))
        return lines


def _by_turns(counted: Iterable[_Counted]) -> list[_Counted]:
    """The first of every caller before the second of any."""
    turns: dict[Caller, int] = {}
    numbered: list[tuple[int, _Counted]] = []
    for one in counted:
        turn = turns[one.entry.who] = turns.get(one.entry.who, 0) + 1
        numbered.append((turn, one))
    return [one for _, one in sorted(numbered, key=lambda item: item[0])]
