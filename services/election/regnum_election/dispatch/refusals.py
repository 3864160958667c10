"""What one incarnation of a broker refused, and when it is told of it again. Pure: time comes in.

Two kinds. What was refused for a reason that may have passed a second later is repeated then, as it is by then. A
replica that the broker cannot use stays so until somebody mends its disk: the broker is asked now and then, and when it
says that its disk takes records again, and only what it says to that is news.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_election.dispatch.outbox import Stop

REFUSED_INTERVAL_S: Final = 1.0
"""Pause before single partitions that were refused are told again."""

OFFLINE_INTERVAL_S: Final = 30.0
"""Pause before a broker is asked again whether it can use replicas that it could not use. A broker that takes a replica
up as follower and refuses it as leader gets one more leader epoch in such a time at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What is to be repeated now."""

    states: frozenset[PartitionKey]
    """Partitions whose states were refused."""
    stops: frozenset[Stop]
    """Orders to delete that were refused."""


class Refusals:
    """What was refused and is to be repeated. Times are the clock's monotonic seconds."""

    def __init__(self) -> None:
        self._states: set[PartitionKey] = set()
        self._stops: set[Stop] = set()
        self._until_s: float | None = None
        """End of the pause; None: none is running."""

    @property
    def states(self) -> Collection[PartitionKey]:
        """Partitions whose states were refused, and have not been told again."""
        return self._states

    @property
    def stops(self) -> Collection[Stop]:
        """Orders to delete that were refused, and have not been given again."""
        return self._stops

    @property
    def next_s(self) -> float | None:
        """When something is to be repeated; None: nothing is."""
        return self._until_s

    def refuse_state(self, key: PartitionKey) -> None:
        """The state of a partition was refused; ``wait`` follows."""
        self._states.add(key)

    def refuse_stop(self, stop: Stop) -> None:
        """An order to delete was refused; ``wait`` follows."""
        self._stops.add(stop)

    def wait(self, now_s: float) -> None:
        """An answer has been read: what is refused by now is not repeated for a while.

        A pause that is running goes on. Answers to other orders may follow one another more closely than pauses end.
        """
        if self._until_s is None and (self._states or self._stops):
            self._until_s = now_s + REFUSED_INTERVAL_S

    def take_due(self, now_s: float) -> Refused:
        """What is to be repeated now; none of it is refused any more."""
        if self._until_s is None or now_s < self._until_s:
            return Refused(states=frozenset(), stops=frozenset())
        self._until_s = None
        due = Refused(states=frozenset(self._states), stops=frozenset(self._stops))
        self._states.clear()
        self._stops.clear()
        return due

    def withdraw(self, keys: Collection[PartitionKey]) -> list[Stop]:
        """Do not repeat what was refused of removed partitions; returns what is dropped by that."""
        over = [
            stop for stop in self._stops if not stop.reassigned and PartitionKey(stop.topic_id, stop.partition) in keys
        ]
        self._stops.difference_update(over)
        if not self._states and not self._stops:
            self._until_s = None
        return over


class Unusable:
    """Replicas that the broker cannot use. Times are the clock's monotonic seconds."""

    def __init__(self) -> None:
        self._keys: set[PartitionKey] = set()
        self._asked: set[PartitionKey] = set()
        """Those of them that it is being told of again: only what it says to that is news."""
        self._again_s = 0.0

    @property
    def next_s(self) -> float | None:
        """When the broker is to be asked again; None: it is not."""
        return self._again_s if self._keys else None

    def note(self, keys: Iterable[PartitionKey], now_s: float) -> None:
        """Replicas that the broker cannot use."""
        if not self._keys:
            self._again_s = now_s + OFFLINE_INTERVAL_S
        self._keys.update(keys)

    def ask_now(self, now_s: float) -> None:
        """What it said of its disk is over: it is asked again at once."""
        self._again_s = min(self._again_s, now_s)

    def take_due(self, now_s: float, is_here: Callable[[PartitionKey], bool]) -> Collection[PartitionKey]:
        """Those that the broker is to be told of again now; what is another broker's by now is forgotten."""
        if not self._keys or now_s < self._again_s:
            return ()
        self._again_s = now_s + OFFLINE_INTERVAL_S
        self._keys = set(filter(is_here, self._keys))
        self._asked = set(self._keys)
        return frozenset(self._keys)

    def answered(self, *, taken: Iterable[PartitionKey], offline: Collection[PartitionKey]) -> frozenset[PartitionKey]:
        """What a broker took up, and what it cannot use; returns what it can use again, for it was asked."""
        usable = self._asked.intersection(taken)
        self._asked.difference_update(offline, usable)
        self._keys -= usable
        return frozenset(usable)
