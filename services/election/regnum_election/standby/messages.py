"""Changes of the picture in the words of FollowState. Pure."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from regnum.election.v1 import standby_pb2
from regnum_model.ids import ControllerEpoch, PartitionKey, TopicId

from regnum_election.decisions.cluster import Cluster
from regnum_election.publication.delta_log import Publication
from regnum_election.standby.states import StateWriter

PART_PARTITIONS: Final = 500
"""Partitions of one part, at most: about 5 ms on either side. Topics of which nothing else is told count as one."""


def parts_of(publication: Publication, epoch: ControllerEpoch) -> Iterator[bytes]:
    """The parts of a change, encoded, one after another."""
    waiting: list[standby_pb2.FollowedTopic] = []
    number = size = 0
    states = StateWriter()

    def part(*, last: bool) -> bytes:
        return standby_pb2.StatePart(
            controller_epoch=epoch,
            from_version=publication.from_version,
            to_version=publication.to_version,
            part=number,
            last=last,
            topics=waiting,
            members=states.take_unlisted(),
        ).SerializeToString()

    for topic in _topics(publication, states):
        weight = max(len(topic.partitions), 1)
        if waiting and size + weight > PART_PARTITIONS:
            yield part(last=False)
            waiting, number, size = [], number + 1, 0
        waiting.append(topic)
        size += weight
    yield part(last=True)


def confirmation(epoch: ControllerEpoch, version: int) -> bytes:
    """A change in which nothing changes: what is held is known here, and what follows joins on to it."""
    return standby_pb2.StatePart(
        controller_epoch=epoch, from_version=version, to_version=version, last=True
    ).SerializeToString()


def _topics(publication: Publication, states: StateWriter) -> Iterator[standby_pb2.FollowedTopic]:
    picture = publication.picture
    for id, name in publication.deleted.items():
        if id not in picture.topics:
            yield standby_pb2.FollowedTopic(name=name, topic_id=id, deleted=True)
    for id, numbers in publication.numbers():
        # What is gone comes first: a topic never seems to have more partitions than it has.
        left = iter(sorted(numbers, key=lambda number: PartitionKey(id, number) in picture.partitions))
        while taken := list(islice(left, PART_PARTITIONS)):
            yield _topic(picture, id, taken, states)


def _topic(picture: Cluster, id: TopicId, numbers: list[int], states: StateWriter) -> standby_pb2.FollowedTopic:
    topic = picture.topics[id]
    return standby_pb2.FollowedTopic(
        name=topic.name,
        topic_id=id,
        version=topic.version,
        creation_id=topic.creation_id,
        mutation=topic.mutation,
        partition_count=len(topic.partitions),
        partition_mutations=topic.partition_mutations,
        partitions=[_partition(picture, PartitionKey(id, number), states) for number in numbers],
    )


def _partition(picture: Cluster, key: PartitionKey, states: StateWriter) -> standby_pb2.FollowedPartition:
    partition = picture.partitions.get(key)
    if partition is None:
        return standby_pb2.FollowedPartition(partition=key.partition, removed=True)
    held, move = partition.held, partition.reassignment
    return standby_pb2.FollowedPartition(
        partition=key.partition,
        replicas=partition.replicas,
        creating=partition.creating,
        trouble=partition.trouble,
        held=None if held is None else states.message(held.state),
        state_version=0 if held is None else held.version,
        replicas_offline=bool(picture.offline_at(key)),
        reassignment=None
        if move is None
        else standby_pb2.FollowedReassignment(origin=move.origin, target=move.target, since_ms=move.since_ms),
        began_leader_epoch=partition.began,
    )
