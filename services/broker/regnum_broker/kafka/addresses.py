"""What the cluster looks like to a client of Kafka: brokers by the listener that it came through, topics by id, a gate.

Administrative calls go to the controller, which is no broker: metadata names one live broker as its gate, chosen by
controller epoch. So a change of the controller looks to a client as it does in Kafka: NOT_CONTROLLER, and the next one.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.ids import bytes_of_id, id_of_bytes

from regnum_broker.serving.metadata_cache import MetadataCache

NOBODY: Final = -1
LISTENER_NOT_FOUND: Final = 72
"""Kafka's number: the leader has no such listener."""


class Addresses:
    """Of one broker. Belongs to the event loop."""

    def __init__(self, cache: MetadataCache) -> None:
        """Only assigns."""
        self._cache: Final = cache

    @property
    def brokers(self) -> Mapping[int, types_pb2.Broker]:
        """Live brokers with a listener for Kafka's protocol, by id."""
        return {broker.id: broker for broker in self._cache.brokers if broker.HasField("kafka")}

    def reached(self, rack: str) -> str:
        """A rack, if every live broker in it has such a listener; else none.

        Who is sent to a broker of which clients are not told comes back, and would be sent there again.
        """
        return rack if all(broker.HasField("kafka") for broker in self._cache.brokers if broker.rack == rack) else ""

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
        return self._cache.names_by_id.get(id_of_bytes(topic_id))

    def knows_any(self, topic_ids: Iterable[str]) -> bool:
        """Whether there is a topic of one of these ids, as this broker has heard."""
        known = self._cache.names_by_id
        return any(topic_id in known for topic_id in topic_ids)

    def id_of(self, name: str) -> bytes:
        """The id of a topic, zeros if there is none."""
        view = self._cache.topics.get(name)
        return bytes(16) if view is None else id_bytes(view.topic_id)

    def text_of(self, topic_id: bytes) -> str:
        """An id as all else here writes it."""
        return id_of_bytes(topic_id)


def shown_leader(
    state: types_pb2.PartitionState, brokers: Collection[int], *, knows_listeners: bool
) -> tuple[int, int]:
    """What a client is told of a leader: its id, or -1 and the error that says why.

    Args:
        state: of the partition.
        brokers: those that have a listener for Kafka's protocol.
        knows_listeners: whether the client knows the error that says that the leader has none.
    """
    if state.leader in brokers:
        return state.leader, errors_pb2.ERROR_CODE_NONE
    if state.leader >= 0 and knows_listeners:
        return NOBODY, LISTENER_NOT_FOUND
    return NOBODY, errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE


def id_bytes(topic_id: str) -> bytes:
    """An id as Kafka writes it."""
    return bytes_of_id(topic_id) if topic_id else bytes(16)
