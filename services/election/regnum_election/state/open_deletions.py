"""Deletions that some broker has still to confirm, found by topic, by mutation and by broker.

Goals: what a broker's answer, arrival or end costs depends on the deletions that concern it, and not on all that are
open; the same for a repeat of a client's call.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from regnum_model.ids import BrokerId, TopicId

from regnum_election.decisions.deletion import Deletion

K = TypeVar("K", str, BrokerId)


class OpenDeletions:
    """All open deletions of one reign. Used by the controller's task only."""

    def __init__(self) -> None:
        self._deletions: dict[TopicId, Deletion] = {}
        self._mutations: dict[str, dict[TopicId, None]] = {}
        self._named: dict[BrokerId, dict[TopicId, None]] = {}
        """Deletions whose records name a broker, confirmed or not."""
        self._untold: dict[BrokerId, dict[TopicId, None]] = {}
        """Those that a broker has not been told of since it came."""

    def __len__(self) -> int:
        return len(self._deletions)

    def __iter__(self) -> Iterator[TopicId]:
        return iter(self._deletions)

    def __contains__(self, topic_id: object) -> bool:
        return topic_id in self._deletions

    def __getitem__(self, topic_id: TopicId) -> Deletion:
        return self._deletions[topic_id]

    def get(self, topic_id: TopicId) -> Deletion | None:
        """The deletion of a topic, while it is open."""
        return self._deletions.get(topic_id)

    def of_mutation(self, mutation: str) -> Iterator[Deletion]:
        """Deletions that a mutation asked for (safety rule S20)."""
        return (self._deletions[id] for id in self._mutations.get(mutation, ()))

    def of_broker(self, broker: BrokerId) -> tuple[TopicId, ...]:
        """Topics whose records name a broker."""
        return tuple(self._named.get(broker, ()))

    def untold(self, broker: BrokerId) -> tuple[TopicId, ...]:
        """Topics that a broker is to be told of once it is live."""
        return tuple(self._untold.get(broker, ()))

    def add(self, deletion: Deletion) -> None:
        """A deletion began, or goes on; it replaces what was known of the topic."""
        self.remove(deletion.topic_id)
        self._deletions[deletion.topic_id] = deletion
        if deletion.mutation is not None:
            self._mutations.setdefault(deletion.mutation, {})[deletion.topic_id] = None
        for broker in deletion.recorded:
            self._named.setdefault(broker, {})[deletion.topic_id] = None
            if deletion.is_to_tell(broker):
                self._untold.setdefault(broker, {})[deletion.topic_id] = None

    def remove(self, topic_id: TopicId) -> None:
        """A deletion is over."""
        deletion = self._deletions.pop(topic_id, None)
        if deletion is None:
            return
        if deletion.mutation is not None:
            _drop(self._mutations, deletion.mutation, topic_id)
        for broker in deletion.recorded:
            _drop(self._named, broker, topic_id)
            _drop(self._untold, broker, topic_id)

    def told(self, broker: BrokerId, topics: Iterable[TopicId]) -> None:
        """A broker has been given orders."""
        for topic_id in topics:
            self._move(self._deletions[topic_id].told((broker,)), broker)

    def away(self, broker: BrokerId, topics: Iterable[TopicId]) -> None:
        """A broker is gone, or came anew: it is to be told again of what it has not confirmed."""
        for topic_id in topics:
            self._move(self._deletions[topic_id].away(broker), broker)

    def answered(self, broker: BrokerId, topic_id: TopicId, *, succeeded: bool) -> None:
        """A broker answered an order; a refused one is repeated by the dispatch until the broker obeys or is gone."""
        deletion = self._deletions[topic_id]
        self._move(deletion.confirmed(broker) if succeeded else deletion.refused(broker).told((broker,)), broker)

    def _move(self, deletion: Deletion, broker: BrokerId) -> None:
        self._deletions[deletion.topic_id] = deletion
        if deletion.is_to_tell(broker):
            self._untold.setdefault(broker, {})[deletion.topic_id] = None
        else:
            _drop(self._untold, broker, deletion.topic_id)


def _drop(index: dict[K, dict[TopicId, None]], key: K, topic_id: TopicId) -> None:
    topics = index.get(key)
    if topics is not None:
        topics.pop(topic_id, None)
        if not topics:
            del index[key]
