"""Removed partitions that some broker has still to confirm, found by partition, by topic and by broker.

Goals: what a broker's answer, arrival or end costs depends on the removals that concern it, and not on all that are
open; whoever wants to add a partition of the same number can wait until the removed one is gone everywhere.
"""

import asyncio
import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from regnum_model.ids import BrokerId, PartitionKey, TopicId

from regnum_election.decisions.deletion import Removal


class Part(enum.Enum):
    """What is damaged of a removed partition."""

    RECORD = "removal record"
    """It names the brokers that have still to confirm."""
    STATE = "state on its way out"
    """It has to become a tombstone."""
    TOMBSTONE = "tombstone"
    """It says from which leader epoch the number goes on (safety rule S2)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What keeps the number of a removed partition from being given again until a person does something."""

    part: Part
    reason: str
    """What is wrong, for people."""


class OpenRemovals:
    """All open removals of one reign. Used by the controller's loop only."""

    def __init__(self) -> None:
        self.begun: Final[dict[TopicId, dict[int, tuple[BrokerId, ...]]]] = {}
        """Partitions that topic nodes name as ``removing``, with the brokers that may have files: not recorded yet."""
        self._removals: dict[TopicId, dict[int, Removal]] = {}
        self._named: dict[BrokerId, dict[PartitionKey, None]] = {}
        """Removals whose records name a broker, confirmed or not."""
        self._untold: dict[BrokerId, dict[PartitionKey, None]] = {}
        """Those that a broker has not been told of since it came."""
        self._damaged: dict[TopicId, dict[int, Damage]] = {}
        """Partitions of which some part cannot be read: their numbers stay taken."""
        self._count = 0
        self._closed = asyncio.Event()

    def __len__(self) -> int:
        return self._count

    @property
    def topics(self) -> tuple[TopicId, ...]:
        """Topics with open removals that are recorded."""
        return tuple(self._removals)

    def get(self, key: PartitionKey) -> Removal | None:
        """The removal of a partition, while it is open."""
        return self._removals.get(key.topic_id, {}).get(key.partition)

    def of_topic(self, id: TopicId) -> Mapping[int, Removal]:
        """Open removals of a topic by partition."""
        return self._removals.get(id, {})

    def of_broker(self, broker: BrokerId) -> tuple[PartitionKey, ...]:
        """Partitions whose records name a broker."""
        return tuple(self._named.get(broker, ()))

    def untold(self, broker: BrokerId) -> tuple[PartitionKey, ...]:
        """Partitions that a broker is to be told of once it is live."""
        return tuple(self._untold.get(broker, ()))

    def brokers_of(self, id: TopicId) -> frozenset[BrokerId]:
        """Brokers that may have files of a topic's removed partitions."""
        named = {broker for removal in self.of_topic(id).values() for broker in removal.recorded}
        return frozenset(named.union(*self.begun.get(id, {}).values()))

    def waiting_for(self, id: TopicId, numbers: Collection[int]) -> frozenset[BrokerId]:
        """Brokers that have still to confirm that partitions of these numbers are gone."""
        waiting: set[BrokerId] = set()
        for number, brokers in self.begun.get(id, {}).items():
            if number in numbers:
                waiting.update(brokers)
        for number, removal in self.of_topic(id).items():
            if number in numbers:
                waiting.update(removal.waiting)
        return frozenset(waiting)

    def is_open(self, id: TopicId, numbers: Collection[int]) -> bool:
        """Whether a partition of one of these numbers is still on its way out."""
        taken = (self.begun.get(id, {}), self.of_topic(id), self._damaged.get(id, ()))
        return any(number in numbers for some in taken for number in some)

    def unreadable(self, key: PartitionKey, reason: str, part: Part = Part.RECORD) -> None:
        """A part of what is recorded of a removed partition cannot be read."""
        self._damaged.setdefault(key.topic_id, {})[key.partition] = Damage(part=part, reason=reason)
        self._closed.set()

    def mended(self, key: PartitionKey) -> None:
        """Nothing is damaged of a removed partition any more."""
        damaged = self._damaged.get(key.topic_id)
        if damaged is not None and damaged.pop(key.partition, None) is not None:
            if not damaged:
                del self._damaged[key.topic_id]
            self._closed.set()

    def damage_of(self, key: PartitionKey) -> Damage | None:
        """What is damaged of a removed partition."""
        return self._damaged.get(key.topic_id, {}).get(key.partition)

    def damaged_of(self, id: TopicId) -> tuple[int, ...]:
        """Removed partitions of a topic of which something is damaged."""
        return tuple(self._damaged.get(id, ()))

    @property
    def damaged(self) -> Mapping[TopicId, Mapping[int, Damage]]:
        """What is damaged, by topic and number."""
        return self._damaged

    async def wait_closed(self, id: TopicId, numbers: Collection[int]) -> None:
        """Return when no partition of these numbers is on its way out; perhaps never: use a deadline.

        Where a tombstone is damaged it returns at once: nothing is under way that could end that.
        """
        while self.is_open(id, numbers) and not self._is_stuck(id, numbers):
            self._closed.clear()
            await self._closed.wait()

    def _is_stuck(self, id: TopicId, numbers: Collection[int]) -> bool:
        damaged = self._damaged.get(id, {})
        return any(number in numbers and damage.part is Part.TOMBSTONE for number, damage in damaged.items())

    def add(self, removal: Removal) -> None:
        """A removal is recorded; brokers that it names are to be told."""
        self.remove(removal.key)
        self._put(removal)
        self._count += 1
        for broker in removal.recorded:
            self._named.setdefault(broker, {})[removal.key] = None
            if broker in removal.waiting:
                self._untold.setdefault(broker, {})[removal.key] = None

    def replace(self, removal: Removal) -> None:
        """A removal's record names fewer brokers."""
        known = self.get(removal.key)
        self._put(removal)
        for broker in () if known is None else known.recorded - removal.recorded:
            _drop(self._named, broker, removal.key)
            _drop(self._untold, broker, removal.key)

    def remove(self, key: PartitionKey) -> None:
        """A removal is over."""
        of_topic = self._removals.get(key.topic_id, {})
        removal = of_topic.pop(key.partition, None)
        if removal is None:
            return
        self._count -= 1
        if not of_topic:
            del self._removals[key.topic_id]
        for broker in removal.recorded:
            _drop(self._named, broker, key)
            _drop(self._untold, broker, key)
        self._closed.set()

    def not_begun(self, id: TopicId, numbers: Iterable[int]) -> None:
        """Of these partitions the topic node says nothing any more."""
        left = self.begun.get(id)
        if left is not None:
            for number in numbers:
                left.pop(number, None)
            if not left:
                del self.begun[id]
            self._closed.set()

    def drop_topic(self, id: TopicId) -> None:
        """The whole topic is deleted, which is recorded with every broker that is named here."""
        self.begun.pop(id, None)
        self._damaged.pop(id, None)
        for number in tuple(self.of_topic(id)):
            self.remove(PartitionKey(id, number))
        self._closed.set()

    def told(self, broker: BrokerId, keys: Iterable[PartitionKey]) -> None:
        """A broker has been given orders."""
        for key in keys:
            _drop(self._untold, broker, key)

    def away(self, broker: BrokerId, keys: Iterable[PartitionKey]) -> None:
        """A broker is gone, or came anew: it is to be told again of what it has not confirmed."""
        for key in keys:
            removal = self.get(key)
            if removal is not None and broker in removal.waiting:
                self._untold.setdefault(broker, {})[key] = None

    def confirmed(self, broker: BrokerId, key: PartitionKey) -> bool:
        """A broker has no files of a partition any more; whether that was news."""
        removal = self.get(key)
        if removal is None or broker not in removal.waiting:
            return False
        self._put(removal.confirmed(broker))
        _drop(self._untold, broker, key)
        return True

    def _put(self, removal: Removal) -> None:
        self._removals.setdefault(removal.key.topic_id, {})[removal.key.partition] = removal


def _drop(index: dict[BrokerId, dict[PartitionKey, None]], broker: BrokerId, key: PartitionKey) -> None:
    keys = index.get(broker)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del index[broker]
