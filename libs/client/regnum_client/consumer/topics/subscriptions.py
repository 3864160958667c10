"""Topics of which a consumer reads all partitions, those that are added later too."""

from collections.abc import Iterable
from typing import Final

from regnum_model.ids import TopicId

from regnum_client.cluster.view import ClusterView
from regnum_client.consumer.cursor import Cursor
from regnum_client.consumer.fetching.fetcher import Fetcher
from regnum_client.records import TopicPartition


class Subscriptions:
    """Of one consumer."""

    def __init__(self) -> None:
        self._topics: Final[dict[str, tuple[TopicId, set[int]]]] = {}
        """Their ids, and partitions that were taken up."""

    def add(self, topic: str, topic_id: TopicId, partitions: Iterable[int]) -> None:
        """A topic in this life of it, with partitions that are read already."""
        self._topics[topic] = (topic_id, set(partitions))

    def drop(self, topic: str, fetcher: Fetcher) -> None:
        """Read a topic no more; nothing happens when it is not subscribed to."""
        _, known = self._topics.pop(topic, (None, ()))
        for number in known:
            fetcher.unassign(TopicPartition(topic, number))

    def id_of(self, topic: str) -> TopicId | None:
        """In which life of it a topic is read; None: it is not."""
        found = self._topics.get(topic)
        return None if found is None else found[0]

    @property
    def topics(self) -> frozenset[str]:
        """Their names."""
        return frozenset(self._topics)

    def gone(self, view: ClusterView) -> frozenset[str]:
        """Those that are not there, or in another life."""
        topics = view.topics
        return frozenset(
            topic for topic, (id, _) in self._topics.items() if topic not in topics or topics[topic].topic_id != id
        )

    def follow(self, view: ClusterView, fetcher: Fetcher) -> None:
        """There may be news of topics: take partitions up that were added, and let go of those that were removed."""
        for topic, (id, known) in self._topics.items():
            found = view.topics.get(topic)
            if found is None or found.topic_id != id:
                continue
            for number in known - found.partitions.keys():
                fetcher.unassign(TopicPartition(topic, number))
                known.discard(number)
            for number in sorted(found.partitions.keys() - known):
                known.add(number)
                fetcher.assign(Cursor(TopicPartition(topic, number), found.topic_id, 0))
