"""What the cluster looks like to a client of Kafka: brokers by the listener that it came through, topics by id, a gate.

Administrative calls go to the controller, which is no broker: metadata names one live broker as its gate, chosen by
controller epoch. So a change of the controller looks to a client as it does in Kafka: NOT_CONTROLLER, and the next one.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from regnum.types.v1 import types_pb2
from regnum_model.ids import bytes_of_id, id_of_bytes

from regnum_broker.serving.metadata_cache import MetadataCache, TopicView

NOBODY: Final = -1


class Addresses:
    """Of one broker. Belongs to the event loop."""

    def __init__(self, cache: MetadataCache) -> None:
        """Only assigns."""
        self._cache: Final = cache
        self._names: dict[str, str] = {}
        self._names_of: Mapping[str, TopicView] | None = None

    @property
    def brokers(self) -> Mapping[int, types_pb2.Broker]:
        """Live brokers with a listener for Kafka's protocol, by id."""
        return {broker.id: broker for broker in self._cache.brokers if broker.HasField("kafka")}

    @property
    def gate(self) -> int:
        """The broker that administrative calls go to; -1: no controller is known."""
        controller, brokers = self._cache.controller, sorted(self.brokers)
        if controller.id < 0 or not brokers:
            return NOBODY
        return brokers[controller.epoch % len(brokers)]

    def named(self, ids: Iterable[int]) -> list[types_pb2.Broker]:
        """Those of these brokers that have such a listener."""
        brokers = self.brokers
        return [brokers[id] for id in sorted(set(ids)) if id in brokers]

    def name_of(self, topic_id: bytes) -> str | None:
        """The topic of an id; None: there is none."""
        return self._by_id().get(id_of_bytes(topic_id))

    def knows_any(self, topic_ids: Iterable[str]) -> bool:
        """Whether there is a topic of one of these ids, as this broker has heard."""
        known = self._by_id()
        return any(topic_id in known for topic_id in topic_ids)

    def _by_id(self) -> Mapping[str, str]:
        """Names by id, made anew when the picture has changed."""
        topics = self._cache.topics
        if topics is not self._names_of:
            self._names = {view.topic_id: name for name, view in topics.items()}
            self._names_of = topics
        return self._names

    def id_of(self, name: str) -> bytes:
        """The id of a topic, zeros if there is none."""
        view = self._cache.topics.get(name)
        return bytes(16) if view is None else id_bytes(view.topic_id)

    def text_of(self, topic_id: bytes) -> str:
        """An id as all else here writes it."""
        return id_of_bytes(topic_id)


def id_bytes(topic_id: str) -> bytes:
    """An id as Kafka writes it."""
    return bytes_of_id(topic_id) if topic_id else bytes(16)
