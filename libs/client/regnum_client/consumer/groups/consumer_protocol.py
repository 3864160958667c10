"""What members of a group tell each other, in bytes that no broker reads. Pure.

``regnum.broker.v1`` has the messages, so that clients in other languages share groups with this one. What somebody
else wrote is input: bytes that cannot be read are nothing wanted, or nothing assigned, and not the end of the group.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError
from regnum.broker.v1.consumer_pb2 import ConsumerAssignment, ConsumerPartitions, ConsumerSubscription

from regnum_client.records import TopicPartition

PROTOCOL_TYPE: Final = "consumer"
"""Kind of members that understand this (Kafka's word)."""
NO_GENERATION: Final = -1
"""Of a member that has been in none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """What a member wants, and what it has."""

    topics: frozenset[str] = frozenset()
    """By name."""
    owned: frozenset[TopicPartition] = frozenset()
    """Assigned and not given up."""
    generation: int = NO_GENERATION
    """In which it was assigned that."""


def subscription_bytes(subscription: Subscription) -> bytes:
    """The same subscription is the same bytes."""
    message = ConsumerSubscription(topics=sorted(subscription.topics), owned=_grouped(subscription.owned))
    if subscription.generation != NO_GENERATION:
        message.generation_id = subscription.generation
    return message.SerializeToString(deterministic=True)


def subscription_of(data: bytes) -> Subscription:
    """What a member wrote; nothing where it cannot be read."""
    try:
        message = ConsumerSubscription.FromString(data)
    except DecodeError:
        return Subscription()
    return Subscription(
        topics=frozenset(message.topics),
        owned=frozenset(_each(message.owned)),
        generation=message.generation_id if message.HasField("generation_id") else NO_GENERATION,
    )


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """The same partitions are the same bytes."""
    return ConsumerAssignment(partitions=_grouped(partitions)).SerializeToString(deterministic=True)


def assignment_of(data: bytes) -> frozenset[TopicPartition]:
    """What a leader wrote; nothing where it cannot be read, and for a member that it left out."""
    try:
        return frozenset(_each(ConsumerAssignment.FromString(data).partitions))
    except DecodeError:
        return frozenset()


def _grouped(partitions: Iterable[TopicPartition]) -> list[ConsumerPartitions]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return [ConsumerPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]


def _each(grouped: Iterable[ConsumerPartitions]) -> Iterable[TopicPartition]:
    return (TopicPartition(one.topic, number) for one in grouped for number in one.partitions if number >= 0)
