"""Names of what a change changes, put together as its messages are gone through."""

from collections.abc import Iterable

from regnum.types.v1 import types_pb2
from regnum_model.ids import BrokerId, TopicId
from regnum_model.picture_line import News, TopicNews


class NamedChanges:
    """Of one change."""

    def __init__(self) -> None:
        self._topics: dict[TopicId, TopicNews] = {}
        self._in_parts: dict[TopicId, set[int]] = {}
        """Partitions of topics that came in several parts; there are few of them."""
        self._deleted: dict[TopicId, str] = {}

    def add(self, state: types_pb2.TopicState) -> None:
        """One of its topics, or a part of one."""
        id = TopicId(state.topic_id)
        if state.deleted:
            self._deleted[id] = state.name
            return
        known = self._topics.get(id)
        numbers = [item.partition for item in state.partitions]
        if known is None:
            self._topics[id] = TopicNews(state.name, frozenset(numbers))
        else:
            self._in_parts.setdefault(id, set(known.partitions)).update(numbers)

    def news(self, brokers: Iterable[BrokerId], traceparent: str) -> News:
        """All of it, with the brokers that it names. To be asked once."""
        for id, numbers in self._in_parts.items():
            self._topics[id] = TopicNews(self._topics[id].name, frozenset(numbers))
        return News(topics=self._topics, deleted=self._deleted, brokers=frozenset(brokers), traceparent=traceparent)
