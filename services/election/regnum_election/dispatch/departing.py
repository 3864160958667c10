"""Brokers that lost a partition by reassignment and have not said yet that they have deleted it.

A topic that is deleted meanwhile, or a partition that is removed, has to name them: without a topic node nobody could
tell a broker any more that its files are not needed, and a number given again would begin with the old records (safety
rules S2, S13).

The write that takes a partition from brokers names them in the topic node as ``left``; so whoever reigns next knows
them. They are told, also when they come back after that, and look for themselves whether the partition is elsewhere.
What they have confirmed is taken out of the node a little later, for many partitions together.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from regnum_model.ids import BrokerId, PartitionKey, TopicId

Brokers = dict[int, set[BrokerId]]
"""Brokers by partition number."""


class Departing:
    """Of one reign. Used by the controller's loop only."""

    def __init__(self) -> None:
        self._topics: Final[dict[TopicId, Brokers]] = {}
        self._of_broker: Final[dict[BrokerId, dict[PartitionKey, None]]] = {}
        self._untold: Final[dict[BrokerId, dict[PartitionKey, None]]] = {}
        self._confirmed: Final[dict[TopicId, Brokers]] = {}
        """What topic nodes still say and that is over."""
        self._damaged: Final[set[tuple[PartitionKey, BrokerId]]] = set()
        """Those of them that their broker cannot use."""

    def add(self, key: PartitionKey, brokers: Iterable[BrokerId]) -> None:
        """A partition went away from brokers, as its topic node says; who is live is told when somebody else leads."""
        for broker in brokers:
            self._topics.setdefault(key.topic_id, {}).setdefault(key.partition, set()).add(broker)
            self._of_broker.setdefault(broker, {})[key] = None
            _take(self._confirmed, key, broker)

    def found(self, id: TopicId, left: Mapping[int, Collection[BrokerId]]) -> None:
        """A topic node names brokers that an earlier reign took partitions from: they are to be told."""
        for number, brokers in left.items():
            key = PartitionKey(id, number)
            self.add(key, brokers)
            for broker in brokers:
                self._untold.setdefault(broker, {})[key] = None

    def done(self, key: PartitionKey, broker: BrokerId) -> None:
        """A broker has deleted it; the topic node is to say so."""
        if broker in self.of_partition(key):
            self.back(key, (broker,))
            self._confirmed.setdefault(key.topic_id, {}).setdefault(key.partition, set()).add(broker)

    def back(self, key: PartitionKey, brokers: Iterable[BrokerId]) -> None:
        """Brokers have the partition again, as its topic node says."""
        for broker in brokers:
            _take(self._topics, key, broker)
            _take(self._confirmed, key, broker)
            _drop(self._of_broker, broker, key)
            _drop(self._untold, broker, key)
            self._damaged.discard((key, broker))

    def note_damaged(self, broker: BrokerId, keys: Iterable[PartitionKey]) -> None:
        """A broker cannot use its replicas of partitions: some of these may have gone away from it."""
        known = self._of_broker.get(broker, {})
        self._damaged.update((key, broker) for key in keys if key in known)

    def damaged(self, key: PartitionKey) -> frozenset[BrokerId]:
        """Brokers that have still to delete a replica that they cannot use: given it again they would keep that."""
        return frozenset(broker for broker in self.of_partition(key) if (key, broker) in self._damaged)

    def of_topic(self, id: TopicId) -> frozenset[BrokerId]:
        """Brokers that any partition of a topic went away from."""
        return frozenset(broker for brokers in self._topics.get(id, {}).values() for broker in brokers)

    def of_partition(self, key: PartitionKey) -> frozenset[BrokerId]:
        """Brokers that a partition went away from."""
        return frozenset(self._topics.get(key.topic_id, {}).get(key.partition, ()))

    def of_broker(self, broker: BrokerId) -> tuple[PartitionKey, ...]:
        """Partitions that went away from a broker."""
        return tuple(self._of_broker.get(broker, ()))

    def untold(self, broker: BrokerId) -> tuple[PartitionKey, ...]:
        """Those that a broker is to be told of once it is live."""
        return tuple(self._untold.get(broker, ()))

    def told(self, broker: BrokerId, keys: Iterable[PartitionKey]) -> None:
        """A broker has been given orders."""
        for key in keys:
            _drop(self._untold, broker, key)

    def away(self, broker: BrokerId, keys: Iterable[PartitionKey]) -> None:
        """A broker is gone, or came anew: it is to be told again."""
        for key in keys:
            if broker in self.of_partition(key):
                self._untold.setdefault(broker, {})[key] = None

    def forget(self, id: TopicId, numbers: Iterable[int] | None = None) -> None:
        """Partitions of a topic, or all of it, are on their way out, and records name these brokers."""
        known = {*self._topics.get(id, ()), *self._confirmed.get(id, ())}
        for number in known if numbers is None else known.intersection(numbers):
            key = PartitionKey(id, number)
            self.back(key, self.of_partition(key) | self._confirmed.get(id, {}).get(number, set()))

    @property
    def has_confirmed(self) -> bool:
        """Whether a topic node says anything that is over."""
        return bool(self._confirmed)

    def take_confirmed(self, most: int) -> dict[TopicId, Brokers]:
        """What some topic nodes are not to say any more; whoever takes it writes it, or gives it back."""
        return {id: self._confirmed.pop(id) for id in tuple(islice(self._confirmed, most))}

    def give_back(self, id: TopicId, confirmed: Brokers) -> None:
        """It could not be written."""
        for number, brokers in confirmed.items():
            lost = brokers - self.of_partition(PartitionKey(id, number))
            if lost:
                self._confirmed.setdefault(id, {}).setdefault(number, set()).update(lost)


def _take(topics: dict[TopicId, Brokers], key: PartitionKey, broker: BrokerId) -> None:
    numbers = topics.get(key.topic_id)
    if numbers is None or key.partition not in numbers:
        return
    numbers[key.partition].discard(broker)
    if not numbers[key.partition]:
        del numbers[key.partition]
    if not numbers:
        del topics[key.topic_id]


def _drop(index: dict[BrokerId, dict[PartitionKey, None]], broker: BrokerId, key: PartitionKey) -> None:
    keys = index.get(broker)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del index[broker]
