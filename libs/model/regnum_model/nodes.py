"""Contents of store nodes: JSON that a person can read and write, decoded into frozen values.

Store contents written by hand are input (seed 001 B, seed 002, safety rule S14). ``decode`` raises MalformedNodeError
with the reason and never anything else, whatever the bytes are; ``encode`` is deterministic.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Self

from regnum_model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    DirectoryId,
    ElectionId,
    LeaderEpoch,
    LogId,
    Registration,
    TopicId,
    is_topic_id,
)
from regnum_model.reassignment import Reassignment

MAX_EPOCH: Final = 999_999_999
"""Largest controller or leader epoch that a node may name: the next ones still fit where the wire carries them."""
MAX_BROKER_ID: Final = 2**31 - 1
MAX_PARTITIONS: Final = 1_000_000
"""Partitions of one topic that a node may list."""


class MalformedNodeError(ValueError):
    """A node's content is not what its path promises. The message says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a listener can be reached."""

    host: str
    """Host name or IP address."""
    port: int
    """TCP port, 1 to 65535."""

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``host:port``; raises MalformedNodeError."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
            raise MalformedNodeError(f"{text!r} is not host:port")
        return cls(host=host.strip("[]"), port=int(port))


def _load(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise MalformedNodeError(f"not JSON: {error}") from None


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
"""Made once: nodes are encoded by the thousand."""


def _dump(value: object) -> bytes:
    return _ENCODER.encode(value).encode("utf-8")


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedNodeError(f"{what} is not a JSON object")
    return value


def _int(value: object, what: str, *, low: int, high: int = 2**63 - 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MalformedNodeError(f"{what} is not an integer from {low} to {high}")
    return value


def _str(value: object, what: str) -> str:
    if not isinstance(value, str) or len(value) > 1024:
        raise MalformedNodeError(f"{what} is not a short string")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        # JSON may name half a character; no message and no path can carry it.
        raise MalformedNodeError(f"{what} has half a character (a lone surrogate)")
    return value


def _ids(value: object, what: str) -> tuple[BrokerId, ...]:
    if not isinstance(value, list):
        raise MalformedNodeError(f"{what} is not a list of broker ids")
    for item in value:
        # States are read by the hundred thousand, and messages about them are rare.
        if type(item) is not int or not 0 <= item <= MAX_BROKER_ID:
            _int(item, f"{what}: broker id", low=0, high=MAX_BROKER_ID)
    if len(set(value)) != len(value):
        raise MalformedNodeError(f"{what} names a broker twice")
    return tuple(value)


def _topic_id(value: object) -> TopicId:
    if not isinstance(value, str) or not is_topic_id(value):
        raise MalformedNodeError("topic_id is not 22 characters of URL-safe base64")
    return TopicId(value)


def _number_key(key: str, what: str, high: int) -> int:
    if key.isascii() and key.isdigit() and (number := int(key)) <= high and str(number) == key:
        return number
    raise MalformedNodeError(f"{what} {key!r} is not a plain number up to {high}")


def _listeners(value: object) -> dict[str, Address]:
    return {name: Address.parse(_str(text, f"listener {name}")) for name, text in _object(value, "listeners").items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerNode:
    """``/controller`` as in seed 002."""

    election_id: ElectionId
    """Election id of the controller; -1 is written by people who want a new election."""
    timestamp: str
    """When it won, milliseconds since 1970, as text."""

    def encode(self) -> bytes:
        """JSON; the field is named ``brokerid`` because seed 002 names it so."""
        return _dump({"version": 1, "brokerid": self.election_id, "timestamp": self.timestamp})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = _object(_load(data), "/controller")
        id = _int(content.get("brokerid"), "brokerid", low=-1, high=MAX_BROKER_ID)
        return cls(election_id=ElectionId(id), timestamp=_str(content.get("timestamp", ""), "timestamp"))


def encode_controller_epoch(epoch: ControllerEpoch) -> bytes:
    """``/controller_epoch``: plain decimal text."""
    return str(epoch).encode("ascii")


def decode_controller_epoch(data: bytes) -> ControllerEpoch:
    """Read; raises MalformedNodeError."""
    text = data.decode("ascii", errors="replace").strip()
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise MalformedNodeError(f"/controller_epoch is not a plain number up to {MAX_EPOCH}")
    return ControllerEpoch(int(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionNode:
    """``/election/ids/<id>``: where an election process can be reached."""

    incarnation: str
    """Unique name of this run of the process."""
    listeners: Mapping[str, Address]
    """``client`` (admin), ``internal`` (brokers), ``lifeline`` (beats and probes)."""

    def encode(self) -> bytes:
        """JSON."""
        listeners = {name: str(address) for name, address in sorted(self.listeners.items())}
        return _dump({"version": 1, "incarnation": self.incarnation, "listeners": listeners})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError. All three listeners must be there."""
        content = _object(_load(data), "an election node")
        listeners = _listeners(content.get("listeners"))
        if missing := {"client", "internal", "lifeline"} - listeners.keys():
            raise MalformedNodeError(f"listeners lacks {', '.join(sorted(missing))}")
        return cls(incarnation=_str(content.get("incarnation"), "incarnation"), listeners=listeners)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataNode:
    """``/metadata/ids/<id>``: where a metadata process can be reached."""

    incarnation: str
    """Unique name of this run of the process."""
    listeners: Mapping[str, Address]
    """``client`` (GetMetadata) and ``internal`` (the controller)."""

    def encode(self) -> bytes:
        """JSON."""
        listeners = {name: str(address) for name, address in sorted(self.listeners.items())}
        return _dump({"version": 1, "incarnation": self.incarnation, "listeners": listeners})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError. Both listeners must be there."""
        content = _object(_load(data), "a metadata node")
        listeners = _listeners(content.get("listeners"))
        if missing := {"client", "internal"} - listeners.keys():
            raise MalformedNodeError(f"listeners lacks {', '.join(sorted(missing))}")
        return cls(incarnation=_str(content.get("incarnation"), "incarnation"), listeners=listeners)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerNode:
    """``/brokers/ids/<id>``: the registration of a live broker."""

    incarnation: str
    """Unique name of this run of the process."""
    registration: Registration
    """Version of ``/brokers/epochs/<id>`` that this registration set."""
    rack: str | None
    """Failure domain."""
    directories: Mapping[DirectoryId, LogId]
    """Log directories and the log id of what each holds now."""
    listeners: Mapping[str, Address]
    """``client`` and ``internal``."""

    def encode(self) -> bytes:
        """JSON."""
        return _dump(
            {
                "version": 1,
                "incarnation": self.incarnation,
                "registration": self.registration,
                "rack": self.rack,
                "directories": dict(sorted(self.directories.items())),
                "listeners": {name: str(address) for name, address in sorted(self.listeners.items())},
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = _object(_load(data), "a broker node")
        listeners = _listeners(content.get("listeners"))
        if missing := {"client", "internal"} - listeners.keys():
            raise MalformedNodeError(f"listeners lacks {', '.join(sorted(missing))}")
        rack = content.get("rack")
        directories = _object(content.get("directories"), "directories")
        if not directories:
            raise MalformedNodeError("directories is empty")
        return cls(
            incarnation=_str(content.get("incarnation"), "incarnation"),
            registration=Registration(_int(content.get("registration"), "registration", low=0)),
            rack=None if rack is None else _str(rack, "rack"),
            directories={DirectoryId(key): LogId(_str(value, "log id")) for key, value in directories.items()},
            listeners=listeners,
        )


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

    def encode(self) -> bytes:
        """JSON; what is empty is absent, but for ``partitions``."""
        content: dict[str, object] = {"version": 1}
        if self.topic_id is not None:
            content["topic_id"] = self.topic_id
        content["partitions"] = {str(key): list(value) for key, value in sorted(self.partitions.items())}
        if self.creating:
            content["creating"] = sorted(self.creating)
        if self.mutation is not None:
            content["mutation"] = self.mutation
        if self.removing:
            content["removing"] = {str(key): list(value) for key, value in sorted(self.removing.items())}
        if self.partition_mutations:
            content["partition_mutations"] = list(self.partition_mutations)
        if self.reassigning:
            content["reassigning"] = {
                str(key): {"from": list(move.origin), "to": list(move.target), "since": move.since_ms}
                for key, move in sorted(self.reassigning.items())
            }
        if self.left:
            content["left"] = {str(key): list(value) for key, value in sorted(self.left.items())}
        return _dump(content)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the full form or seed 001's bare ``{"0":[1,2,3]}``; raises MalformedNodeError."""
        content = _object(_load(data), "a topic node")
        bare = "partitions" not in content
        listed = _object(content if bare else content["partitions"], "partitions")
        if not listed or len(listed) > MAX_PARTITIONS:
            raise MalformedNodeError(f"a topic has 1 to {MAX_PARTITIONS} partitions; this node lists {len(listed)}")
        partitions: dict[int, tuple[BrokerId, ...]] = {}
        for key, value in listed.items():
            number = _number_key(key, "partition", MAX_PARTITIONS - 1)
            partitions[number] = _kept_ids(_ids(value, f"replicas of partition {number}"))
            if not partitions[number]:
                raise MalformedNodeError(f"partition {number} has no replicas")
        if bare:
            return cls(topic_id=None, partitions=partitions)
        topic_id, mutation, creating = content.get("topic_id"), content.get("mutation"), content.get("creating", [])
        if not isinstance(creating, list):
            raise MalformedNodeError("creating is not a list of partitions")
        removing = _removing(content.get("removing", {}))
        if both := sorted(removing.keys() & partitions.keys()):
            raise MalformedNodeError(f"partitions {both[:5]} stand in partitions and in removing")
        return cls(
            topic_id=None if topic_id is None else _topic_id(topic_id),
            partitions=partitions,
            creating=frozenset(_int(item, "creating", low=0, high=MAX_PARTITIONS) for item in creating),
            mutation=None if mutation is None else _str(mutation, "mutation"),
            removing=removing,
            partition_mutations=_mutations(content.get("partition_mutations", [])),
            reassigning=_reassigning(content.get("reassigning"), partitions),
            left=_left(content.get("left"), partitions),
        )


def _removing(value: object) -> dict[int, tuple[BrokerId, ...]]:
    listed = _object(value, "removing")
    if len(listed) > MAX_PARTITIONS:
        raise MalformedNodeError(f"removing lists more than {MAX_PARTITIONS} partitions")
    return {
        _number_key(key, "removed partition", MAX_PARTITIONS - 1): _kept_ids(
            _ids(brokers, f"brokers of removed partition {key}")
        )
        for key, brokers in listed.items()
    }


def _left(value: object, partitions: Mapping[int, tuple[BrokerId, ...]]) -> dict[int, tuple[BrokerId, ...]]:
    """What is said of a partition that the topic does not have means nothing."""
    left: dict[int, tuple[BrokerId, ...]] = {}
    for key, brokers in _object({} if value is None else value, "left").items():
        number = _number_key(key, "left: partition", MAX_PARTITIONS - 1)
        if number in partitions:
            left[number] = _kept_ids(_ids(brokers, f"left: brokers of partition {number}"))
    return left


def _mutations(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 1_000:
        raise MalformedNodeError("partition_mutations is not a short list")
    return tuple(_str(item, "mutation") for item in value)


def _reassigning(value: object, partitions: Mapping[int, tuple[BrokerId, ...]]) -> dict[int, Reassignment]:
    """Open reassignments; what is said of a partition that the topic does not have means nothing."""
    moves: dict[int, Reassignment] = {}
    for key, entry in _object({} if value is None else value, "reassigning").items():
        number = _number_key(key, "reassigning: partition", MAX_PARTITIONS - 1)
        if number not in partitions:
            continue
        what = f"reassigning: partition {number}"
        move = _object(entry, what)
        origin = _kept_ids(_ids(move.get("from"), f"{what}: from"))
        target = _kept_ids(_ids(move.get("to"), f"{what}: to"))
        if not origin or not target:
            raise MalformedNodeError(f"{what} names no broker that it comes from, or none that it goes to")
        if not set(origin) <= set(partitions[number]):
            raise MalformedNodeError(f"{what} comes from brokers that are not among the replicas of the partition")
        since_ms = _int(move.get("since", 0), f"{what}: since", low=0)
        moves[number] = Reassignment(origin=origin, target=target, since_ms=since_ms)
    return moves


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicIdNode:
    """``/brokers/topic_ids/<topic id>``: guard of a topic."""

    topic: str
    """Name of the topic."""

    def encode(self) -> bytes:
        """JSON."""
        return _dump({"version": 1, "topic": self.topic})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        return cls(topic=_str(_object(_load(data), "a topic id node").get("topic"), "topic"))


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
        return _dump(content)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = _object(_load(data), "a deletion node")
        mutation = content.get("mutation")
        return cls(
            topic=_str(content.get("topic"), "topic"),
            brokers=frozenset(_ids(content.get("brokers"), "brokers")),
            mutation=None if mutation is None else _str(mutation, "mutation"),
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
        return _dump(
            {"version": 1, "topic": self.topic, "brokers": sorted(self.brokers), "leader_epoch": self.leader_epoch}
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = _object(_load(data), "a partition's deletion node")
        return cls(
            topic=_str(content.get("topic"), "topic"),
            brokers=frozenset(_ids(content.get("brokers"), "brokers")),
            leader_epoch=LeaderEpoch(_int(content.get("leader_epoch"), "leader_epoch", low=0, high=MAX_EPOCH)),
        )


def decode_added_replicas(data: bytes) -> tuple[BrokerId, ...]:
    """``/admin/partitions_add/<topic>/<partition>``: broker ids; none: the controller chooses.

    Written by hand: ``[1,2,3]``, ``{"replicas":[1,2,3]}``, or nothing. Raises MalformedNodeError.
    """
    if not data.strip():
        return ()
    content = _load(data)
    return _ids(content.get("replicas", []) if isinstance(content, dict) else content, "replicas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Which log of a broker counts as a member of a partition (safety rule S10)."""

    broker_epoch: BrokerEpoch
    """Broker epoch at which it became, or was last confirmed as, a member."""
    log_id: LogId
    """Log that holds the replica."""


MEMBERS_KEPT: Final = 16_384
"""Different replica lists, and lists of members, of which one copy each is kept."""


def _members(content: dict[str, Any]) -> Mapping[BrokerId, Membership]:
    """Members as a node names them; thousands of partitions have the same, and share them."""
    flat: list[str | int] = []
    for key, value in content.items():
        if not isinstance(value, list) or len(value) != 2:
            raise MalformedNodeError(f"member {key} is not [broker epoch, log id]")
        # Checked before the cache: it takes True for 1.
        flat += (key, _int(value[0], "broker epoch", low=0), _str(value[1], "log id"))
    return _kept_members(*flat)


@lru_cache(maxsize=MEMBERS_KEPT)
def _kept_members(*flat: Any) -> Mapping[BrokerId, Membership]:
    """From name, broker epoch and log id of each."""
    return {
        BrokerId(_number_key(key, "member", MAX_BROKER_ID)): _kept_membership(broker_epoch, log_id)
        for key, broker_epoch, log_id in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    }


@lru_cache(maxsize=MEMBERS_KEPT)
def _kept_membership(broker_epoch: BrokerEpoch, log_id: LogId) -> Membership:
    return Membership(broker_epoch=broker_epoch, log_id=log_id)


@lru_cache(maxsize=MEMBERS_KEPT)
def _kept_ids(ids: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    return ids


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    """``/brokers/topics/<topic>/<partition>/leaderAndISR``: who leads a partition and which logs are complete."""

    topic_id: TopicId
    """Topic it belongs to; restores a lost id (safety rule S14)."""
    leader: BrokerId
    """Leader, or NO_LEADER."""
    leader_epoch: LeaderEpoch
    """Grows by one with every election."""
    isr: tuple[BrokerId, ...]
    """In-sync replicas, never empty but where ``removed``."""
    elr: tuple[BrokerId, ...]
    """Eligible leader replicas (KIP-966)."""
    members: Mapping[BrokerId, Membership]
    """Log of every broker in ``isr`` and ``elr``."""
    controller_epoch: ControllerEpoch
    """Reign that last elected the leader or wrote the state."""
    removed: bool = False
    """A tombstone: the partition was removed. One of the same number goes on from its version and epoch (S2)."""

    def kept(self) -> Self:
        """The same, with parts that it shares with other states: what a picture of all partitions is made of."""
        flat = [part for id, one in self.members.items() for part in (str(id), one.broker_epoch, one.log_id)]
        return replace(self, isr=_kept_ids(self.isr), members=_kept_members(*flat))

    def encode(self) -> bytes:
        """JSON."""
        members = {str(id): [member.broker_epoch, member.log_id] for id, member in sorted(self.members.items())}
        content: dict[str, object] = {
            "version": 1,
            "topic_id": self.topic_id,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
            "elr": list(self.elr),
            "members": members,
            "controller_epoch": self.controller_epoch,
        }
        if self.removed:
            content["removed"] = True
        return _dump(content)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError, also when a member of isr or elr has no recorded log."""
        content = _object(_load(data), "leaderAndISR")
        isr, elr = _ids(content.get("isr"), "isr"), _ids(content.get("elr"), "elr")
        removed = content.get("removed", False)
        if not isinstance(removed, bool):
            raise MalformedNodeError("removed is neither true nor false")
        if not isr and not removed:
            raise MalformedNodeError("isr is empty")
        if set(isr) & set(elr):
            raise MalformedNodeError("a broker stands in isr and in elr")
        leader = BrokerId(_int(content.get("leader"), "leader", low=-1, high=MAX_BROKER_ID))
        if leader >= 0 and leader not in isr:
            raise MalformedNodeError("the leader is not in isr")
        if removed and (isr or elr):
            raise MalformedNodeError("a removed partition has neither isr nor elr")
        members = _members(_object(content.get("members"), "members"))
        if unrecorded := (set(isr) | set(elr)) - members.keys():
            raise MalformedNodeError(f"members lacks {sorted(unrecorded)}")
        return cls(
            topic_id=_topic_id(content.get("topic_id")),
            leader=leader,
            leader_epoch=LeaderEpoch(_int(content.get("leader_epoch"), "leader_epoch", low=0, high=MAX_EPOCH)),
            isr=_kept_ids(isr),
            elr=elr,
            members=members,
            controller_epoch=ControllerEpoch(
                _int(content.get("controller_epoch"), "controller_epoch", low=0, high=MAX_EPOCH)
            ),
            removed=removed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlockNode:
    """``/latest_producer_id_block``: the newest block of producer ids handed out."""

    first: int
    """First id of the block."""
    count: int
    """Ids in the block."""

    def encode(self) -> bytes:
        """JSON."""
        return _dump({"version": 1, "first": self.first, "count": self.count})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = _object(_load(data), "/latest_producer_id_block")
        first, count = _int(content.get("first"), "first", low=0), _int(content.get("count"), "count", low=1)
        return cls(first=first, count=count)
