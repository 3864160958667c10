"""Nodes of topics: assignment, what is deleted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from regnum_model.ids import (
    BrokerId,
    LeaderEpoch,
    TopicId,
)
from regnum_model.nodes.reading import (
    MAX_EPOCH,
    MAX_PARTITIONS,
    MalformedNodeError,
    dumped,
    ids_of,
    int_of,
    kept_ids,
    loaded,
    number_of,
    object_of,
    str_of,
    topic_id_of,
    versioned,
)
from regnum_model.reassignment import Reassignment


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNode:
    """``/brokers/topics/<topic>``: assignment of replicas. May be written by hand, also in seed 001's bare form."""

    topic_id: TopicId | None
    """None only in a node written by hand that the controller has not accepted yet."""
    partitions: Mapping[int, tuple[BrokerId, ...]]
    """Replicas of each partition; the first is the preferred leader."""
    creating: frozenset[int] = field(default_factory=frozenset)
    """Partitions that may still get a first leader (safety rule S14)."""
    mutation: str | None = None
    """Id of the mutation that made the topic (safety rule S20)."""
    removing: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    """Partitions that are removed and not recorded as such yet, with the brokers that may have files of them (S13)."""
    partition_mutations: tuple[str, ...] = ()
    """Ids of the last mutations that added or removed partitions, newest last (safety rule S20)."""
    reassigning: Mapping[int, Reassignment] = field(default_factory=dict)
    """Open reassignments by partition; ``partitions`` names the old replicas and, once it has begun, the new ones."""
    left: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    """By partition, brokers that it went away from and that have not said that its files are gone (safety rule S13)."""
    began: Mapping[int, LeaderEpoch] = field(default_factory=dict)
    """By partition, the leader epoch at which its life began, where a removed one had the number before (S13).

    What is absent began at 0, or was added by release 0.1.0, which does not say it.
    """
    further: Mapping[str, Any] = field(default_factory=dict)
    """What a later release says besides; it stays when the node is written again."""

    def encode(self) -> bytes:
        """JSON; what is empty is absent, but for ``partitions``."""
        content: dict[str, object] = {"version": 1}
        if self.topic_id is not None:
            content["topic_id"] = self.topic_id
        content["partitions"] = replicas_said(self.partitions)
        if self.creating:
            content["creating"] = sorted(self.creating)
        if self.mutation is not None:
            content["mutation"] = self.mutation
        if self.removing:
            content["removing"] = {str(key): list(value) for key, value in sorted(self.removing.items())}
        if self.partition_mutations:
            content["partition_mutations"] = list(self.partition_mutations)
        if self.reassigning:
            content["reassigning"] = reassignments_said(self.reassigning)
        if self.left:
            content["left"] = {str(key): list(value) for key, value in sorted(self.left.items())}
        if began := {str(key): epoch for key, epoch in sorted(self.began.items()) if key in self.partitions}:
            content["began"] = began
        return dumped({**self.further, **content} if self.further else content)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the full form or seed 001's bare ``{"0":[1,2,3]}``; raises MalformedNodeError."""
        content = versioned(loaded(data), "a topic node")
        bare = "partitions" not in content
        partitions = replicas_of(content if bare else content["partitions"])
        if bare:
            return cls(topic_id=None, partitions=partitions)
        topic_id, mutation, creating = content.get("topic_id"), content.get("mutation"), content.get("creating", [])
        if not isinstance(creating, list):
            raise MalformedNodeError("creating is not a list of partitions")
        removing = _removing(content.get("removing", {}))
        if both := sorted(removing.keys() & partitions.keys()):
            raise MalformedNodeError(f"partitions {both[:5]} stand in partitions and in removing")
        return cls(
            topic_id=None if topic_id is None else topic_id_of(topic_id),
            partitions=partitions,
            creating=frozenset(int_of(item, "creating", low=0, high=MAX_PARTITIONS) for item in creating),
            mutation=None if mutation is None else str_of(mutation, "mutation"),
            removing=removing,
            partition_mutations=_mutations(content.get("partition_mutations", [])),
            reassigning=reassignments_of(content.get("reassigning"), partitions),
            left=_left(content.get("left"), partitions),
            began=beginnings_of(content.get("began"), partitions),
            further={key: content[key] for key in content if key not in _KNOWN},
        )


_KNOWN: Final = frozenset(
    {
        *("version", "topic_id", "partitions", "creating", "mutation", "removing"),
        *("partition_mutations", "reassigning", "left", "began"),
    }
)
"""Fields of a topic node that this release knows."""


def replicas_said(partitions: Mapping[int, tuple[BrokerId, ...]]) -> dict[str, list[int]]:
    """Replicas by partition, for JSON."""
    return {str(key): list(value) for key, value in sorted(partitions.items())}


def replicas_of(value: object) -> dict[int, tuple[BrokerId, ...]]:
    """Replicas by partition, from JSON; raises MalformedNodeError."""
    listed = object_of(value, "partitions")
    if not listed or len(listed) > MAX_PARTITIONS:
        raise MalformedNodeError(f"a topic has 1 to {MAX_PARTITIONS} partitions; this node lists {len(listed)}")
    partitions: dict[int, tuple[BrokerId, ...]] = {}
    for key, replicas in listed.items():
        number = number_of(key, "partition", MAX_PARTITIONS - 1)
        partitions[number] = kept_ids(ids_of(replicas, f"replicas of partition {number}"))
        if not partitions[number]:
            raise MalformedNodeError(f"partition {number} has no replicas")
    return partitions


def reassignments_said(moves: Mapping[int, Reassignment]) -> dict[str, dict[str, object]]:
    """Open reassignments by partition, for JSON."""
    return {
        str(key): {"from": list(move.origin), "to": list(move.target), "since": move.since_ms}
        for key, move in sorted(moves.items())
    }


def _removing(value: object) -> dict[int, tuple[BrokerId, ...]]:
    listed = object_of(value, "removing")
    if len(listed) > MAX_PARTITIONS:
        raise MalformedNodeError(f"removing lists more than {MAX_PARTITIONS} partitions")
    return {
        number_of(key, "removed partition", MAX_PARTITIONS - 1): kept_ids(
            ids_of(brokers, f"brokers of removed partition {key}")
        )
        for key, brokers in listed.items()
    }


def _left(value: object, partitions: Mapping[int, tuple[BrokerId, ...]]) -> dict[int, tuple[BrokerId, ...]]:
    """What is said of a partition that the topic does not have means nothing."""
    left: dict[int, tuple[BrokerId, ...]] = {}
    for key, brokers in object_of({} if value is None else value, "left").items():
        number = number_of(key, "left: partition", MAX_PARTITIONS - 1)
        if number in partitions:
            left[number] = kept_ids(ids_of(brokers, f"left: brokers of partition {number}"))
    return left


def beginnings_of(value: object, partitions: Mapping[int, tuple[BrokerId, ...]]) -> dict[int, LeaderEpoch]:
    """Leader epochs at which lives began, from JSON; raises MalformedNodeError.

    What is said of a partition that the topic does not have means nothing: it is of a former life.
    """
    began: dict[int, LeaderEpoch] = {}
    for key, epoch in object_of({} if value is None else value, "began").items():
        number = number_of(key, "began: partition", MAX_PARTITIONS - 1)
        first = LeaderEpoch(int_of(epoch, f"began: leader epoch of partition {number}", low=0, high=MAX_EPOCH))
        if number in partitions and first:
            began[number] = first
    return began


def _mutations(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 1_000:
        raise MalformedNodeError("partition_mutations is not a short list")
    return tuple(str_of(item, "mutation") for item in value)


def reassignments_of(value: object, partitions: Mapping[int, tuple[BrokerId, ...]]) -> dict[int, Reassignment]:
    """Open reassignments, from JSON; what is said of a partition that the topic does not have means nothing.

    Raises MalformedNodeError.
    """
    moves: dict[int, Reassignment] = {}
    for key, entry in object_of({} if value is None else value, "reassigning").items():
        number = number_of(key, "reassigning: partition", MAX_PARTITIONS - 1)
        if number not in partitions:
            continue
        what = f"reassigning: partition {number}"
        move = object_of(entry, what)
        origin = kept_ids(ids_of(move.get("from"), f"{what}: from"))
        target = kept_ids(ids_of(move.get("to"), f"{what}: to"))
        if not origin or not target:
            raise MalformedNodeError(f"{what} names no broker that it comes from, or none that it goes to")
        if not set(origin) <= set(partitions[number]):
            raise MalformedNodeError(f"{what} comes from brokers that are not among the replicas of the partition")
        since_ms = int_of(move.get("since", 0), f"{what}: since", low=0)
        moves[number] = Reassignment(origin=origin, target=target, since_ms=since_ms)
    return moves


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionNode:
    """``/admin/delete_topics/<topic id>``: a deletion that is not confirmed by every broker yet."""

    topic: str
    """Name the topic had."""
    brokers: frozenset[BrokerId]
    """Brokers that have still to confirm."""
    mutation: str | None = None
    """Id of the mutation that deleted the topic (safety rule S20)."""

    def encode(self) -> bytes:
        """JSON."""
        content: dict[str, object] = {"version": 1, "topic": self.topic, "brokers": sorted(self.brokers)}
        if self.mutation is not None:
            content["mutation"] = self.mutation
        return dumped(content)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = versioned(loaded(data), "a deletion node")
        mutation = content.get("mutation")
        return cls(
            topic=str_of(content.get("topic"), "topic"),
            brokers=frozenset(ids_of(content.get("brokers"), "brokers")),
            mutation=None if mutation is None else str_of(mutation, "mutation"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopicNode:
    """``/admin/deleted_topics/<digest>``: a deletion that is over, for who repeats it (safety rule S20)."""

    topic: str
    """Name the topic had."""
    topic_id: TopicId
    """Its id."""
    mutation: str
    """Id of the mutation that deleted it."""
    at_ms: int
    """When the last broker had confirmed, in milliseconds since 1970."""

    def encode(self) -> bytes:
        """JSON."""
        return dumped(
            {
                "version": 1,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "mutation": self.mutation,
                "at": self.at_ms,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = versioned(loaded(data), "a deleted topic's node")
        return cls(
            topic=str_of(content.get("topic"), "topic"),
            topic_id=topic_id_of(content.get("topic_id")),
            mutation=str_of(content.get("mutation"), "mutation"),
            at_ms=int_of(content.get("at"), "at", low=0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeletionNode:
    """``/admin/delete_partitions/<topic id>/<partition>``: a removal that is not confirmed by every broker yet."""

    topic: str
    """Name of the topic."""
    brokers: frozenset[BrokerId]
    """Brokers that have still to confirm."""
    leader_epoch: LeaderEpoch
    """Leader epoch of the tombstone: a replica of a later epoch is one that was added since."""

    def encode(self) -> bytes:
        """JSON."""
        return dumped(
            {"version": 1, "topic": self.topic, "brokers": sorted(self.brokers), "leader_epoch": self.leader_epoch}
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = versioned(loaded(data), "a partition's deletion node")
        return cls(
            topic=str_of(content.get("topic"), "topic"),
            brokers=frozenset(ids_of(content.get("brokers"), "brokers")),
            leader_epoch=LeaderEpoch(int_of(content.get("leader_epoch"), "leader_epoch", low=0, high=MAX_EPOCH)),
        )


def decode_added_replicas(data: bytes) -> tuple[BrokerId, ...]:
    """``/admin/partitions_add/<topic>/<partition>``: broker ids; none: the controller chooses.

    Written by hand: ``[1,2,3]``, ``{"replicas":[1,2,3]}``, or nothing. Raises MalformedNodeError.
    """
    if not data.strip():
        return ()
    content = loaded(data)
    return ids_of(content.get("replicas", []) if isinstance(content, dict) else content, "replicas")
