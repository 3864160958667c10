"""Names of what a change changes, put together as its messages are gone through."""

from collections.abc import Iterable

from regnum.types.v1 import types_pb2
from regnum_model.ids import BrokerId, TopicId
from regnum_model.picture_line import News, TopicNews


class NamedChanges:
    """Of one change."""

    def __init__(self) -> None:
        self._topics: dict[TopicId, tuple[str, set[int]]] = {}
        self._deleted: dict[TopicId, str] = {}

    def add(self, state: types_pb2.TopicState) -> None:
        """One of its topics, or a part of one."""
        id = TopicId(state.topic_id)
        if state.deleted:
            self._deleted[id] = state.name
        else:
            self._topics.setdefault(id, (state.name, set()))[1].update([item.partition for item in state.partitions])

    def news(self, brokers: Iterable[BrokerId], traceparent: str) -> News:
        """All of it, with the brokers that it names."""
        topics = {id: TopicNews(name, frozenset(numbers)) for id, (name, numbers) in self._topics.items()}
        return News(topics=topics, deleted=self._deleted, brokers=frozenset(brokers), traceparent=traceparent)
