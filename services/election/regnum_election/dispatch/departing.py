"""Brokers that lost a partition by reassignment and have not said yet that they have deleted it.

A topic that is deleted meanwhile, or a partition that is removed, has to name them: without a topic node nobody could
tell a broker any more that its files are not needed (safety rule S13). Known to one reign; a broker that was told
nothing by it finds out alone.
"""

from collections.abc import Iterable
from typing import Final

from regnum_model.ids import BrokerId, PartitionKey, TopicId


class Departing:
    """Of one reign. Used by the controller's loop only."""

    def __init__(self) -> None:
        self._topics: Final[dict[TopicId, dict[int, set[BrokerId]]]] = {}

    def add(self, key: PartitionKey, brokers: Iterable[BrokerId]) -> None:
        """A partition went away from brokers."""
        if left := set(brokers):
            self._topics.setdefault(key.topic_id, {}).setdefault(key.partition, set()).update(left)

    def done(self, key: PartitionKey, broker: BrokerId) -> None:
        """A broker has deleted it, or has it again."""
        numbers = self._topics.get(key.topic_id)
        if numbers is None or key.partition not in numbers:
            return
        numbers[key.partition].discard(broker)
        if not numbers[key.partition]:
            del numbers[key.partition]
        if not numbers:
            del self._topics[key.topic_id]

    def answered(self, key: PartitionKey, broker: BrokerId, *, succeeded: bool) -> None:
        """A broker answered the order to delete it; one that could not is asked again."""
        if succeeded:
            self.done(key, broker)

    def of_topic(self, id: TopicId) -> frozenset[BrokerId]:
        """Brokers that any partition of a topic went away from."""
        return frozenset(broker for brokers in self._topics.get(id, {}).values() for broker in brokers)

    def of_partition(self, key: PartitionKey) -> frozenset[BrokerId]:
        """Brokers that a partition went away from."""
        return frozenset(self._topics.get(key.topic_id, {}).get(key.partition, ()))

    def forget(self, id: TopicId) -> None:
        """The topic is being deleted, and its record names them."""
        self._topics.pop(id, None)
