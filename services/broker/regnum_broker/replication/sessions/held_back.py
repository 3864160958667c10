"""What a throttle holds back of one fetch stream, and who gets the next portion of what it lets through.

Goals: new replicas arrive one after another. Filled side by side they would all arrive at once, and a broker with fifty
of them in sync from one moment to the next is felt by everybody. None waits for ever.

Algorithm: what has least left goes first. One portion in FAIR_EVERY goes to whoever waits longest: one that grows as
fast as it is filled may have the least left, in records, for hours.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from regnum_model.ids import PartitionKey
from regnum_service.clock import Clock

from regnum_broker.replication.sessions.allowance import Allowance
from regnum_broker.replication.sessions.fetch_positions import Read, records_left, waits_since

HELD_S_MAX: Final = 1.0
"""Longest time that what a throttle holds back is not looked at: its leader may be another one by then."""

FAIR_EVERY: Final = 8
"""Of so many portions of what a throttle holds back, one goes to whoever waits longest, whatever it has left."""


class HeldBack:
    """New replicas for which there was no room. Belongs to its stream's session."""

    def __init__(self, allowance: Allowance, clock: Clock) -> None:
        """Only assigns."""
        self._allowance: Final = allowance
        self._clock: Final = clock
        self._keys: dict[PartitionKey, None] = {}
        self._since_s = 0.0
        self._portions = 0

    def portion(self, reads: Sequence[Read]) -> list[Read]:
        """In the order in which they share the next portion."""
        self._portions += 1
        by_left = sorted(reads, key=records_left)
        return sorted(by_left, key=waits_since) if self._portions % FAIR_EVERY == 0 else by_left

    def hold(self, keys: Iterable[PartitionKey]) -> None:
        """There was no room for more of these."""
        if not self._keys:
            self._since_s = self._clock.monotonic()
        for key in keys:
            self._keys[key] = None

    def forget(self, key: PartitionKey) -> None:
        """The follower asks for it no more."""
        self._keys.pop(key, None)

    def may_go(self, bytes_max: int) -> bool:
        """Whether there are some to be looked at again: there is room, or it is time to ask who leads them."""
        if not self._keys:
            return False
        return self._allowance.room(bytes_max) > 0 or self._clock.monotonic() >= self._since_s + HELD_S_MAX

    def let_go(self) -> dict[PartitionKey, None]:
        """All of them; they are held back no more."""
        keys, self._keys = self._keys, {}
        return keys

    def pause_s(self) -> float:
        """After which time to look again; infinite when there are none."""
        return min(self._allowance.pause_s() or HELD_S_MAX, HELD_S_MAX) if self._keys else math.inf
