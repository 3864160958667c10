"""What the controller published, as those hold it that it was published to: for comparisons.

States are put into the words of the wire when somebody asks for them, from the picture of the last publication.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from regnum.types.v1 import types_pb2
from regnum_model.ids import PartitionKey, TopicId

from regnum_election.decisions.cluster import Cluster, Topic
from regnum_election.dispatch.control_requests import partition_state


def state_of(picture: Cluster, key: PartitionKey) -> types_pb2.PartitionState | None:
    """A partition in the words of the wire; None: there is none."""
    partition = picture.partitions.get(key)
    if partition is None:
        return None
    min_insync = picture.min_insync(key, partition)
    offline = picture.offline_at(key)
    return partition_state(key.partition, partition, offline, min_insync=min_insync, adding=partition.adding)


class _States(Mapping[int, types_pb2.PartitionState]):
    def __init__(self, picture: Cluster, topic: Topic) -> None:
        self._picture = picture
        self._topic = topic

    def __getitem__(self, number: int) -> types_pb2.PartitionState:
        state = state_of(self._picture, PartitionKey(self._topic.id, number))
        if state is None:
            raise KeyError(number)
        return state

    def __iter__(self) -> Iterator[int]:
        return iter(self._topic.partitions)

    def __len__(self) -> int:
        return len(self._topic.partitions)


@dataclass(frozen=True, slots=True)
class PublishedTopic:
    """One topic of the picture."""

    name: str
    topic_id: TopicId
    partitions: Mapping[int, types_pb2.PartitionState]


class PublishedTopics(Mapping[str, PublishedTopic]):
    """The topics of a picture, by name."""

    def __init__(self, picture: Cluster) -> None:
        self._picture = picture

    def __getitem__(self, name: str) -> PublishedTopic:
        topic = self._picture.topic_named(name)
        if topic is None:
            raise KeyError(name)
        return PublishedTopic(topic.name, topic.id, _States(self._picture, topic))

    def __contains__(self, name: Any) -> bool:
        return name in self._picture.names

    def __iter__(self) -> Iterator[str]:
        return iter(self._picture.names)

    def __len__(self) -> int:
        return len(self._picture.names)
