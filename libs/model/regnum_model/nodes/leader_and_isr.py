"""The node of a partition: who leads it, and which logs are complete."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from regnum_model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    LogId,
    TopicId,
)
from regnum_model.nodes.reading import (
    MAX_BROKER_ID,
    MAX_EPOCH,
    MEMBERS_KEPT,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Which log of a broker counts as a member of a partition (safety rule S10)."""

    broker_epoch: BrokerEpoch
    """Broker epoch at which it became, or was last confirmed as, a member."""
    log_id: LogId
    """Log that holds the replica."""


def _members(content: dict[str, Any]) -> Mapping[BrokerId, Membership]:
    """Members as a node names them; thousands of partitions have the same, and share them."""
    flat: list[str | int] = []
    for key, value in content.items():
        if not isinstance(value, list) or len(value) != 2:
            raise MalformedNodeError(f"member {key} is not [broker epoch, log id]")
        # Checked before the cache: it takes True for 1.
        flat += (key, int_of(value[0], "broker epoch", low=0), str_of(value[1], "log id"))
    return _kept_members(*flat)


@lru_cache(maxsize=MEMBERS_KEPT)
def _kept_members(*flat: Any) -> Mapping[BrokerId, Membership]:
    """From name, broker epoch and log id of each."""
    return {
        BrokerId(number_of(key, "member", MAX_BROKER_ID)): _kept_membership(broker_epoch, log_id)
        for key, broker_epoch, log_id in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    }


@lru_cache(maxsize=MEMBERS_KEPT)
def _kept_membership(broker_epoch: BrokerEpoch, log_id: LogId) -> Membership:
    return Membership(broker_epoch=broker_epoch, log_id=log_id)


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
        return replace(self, isr=kept_ids(self.isr), members=_kept_members(*flat))

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
        return dumped(content)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError, also when a member of isr or elr has no recorded log."""
        content = versioned(loaded(data), "leaderAndISR")
        isr, elr = ids_of(content.get("isr"), "isr"), ids_of(content.get("elr"), "elr")
        removed = content.get("removed", False)
        if not isinstance(removed, bool):
            raise MalformedNodeError("removed is neither true nor false")
        if not isr and not removed:
            raise MalformedNodeError("isr is empty")
        if set(isr) & set(elr):
            raise MalformedNodeError("a broker stands in isr and in elr")
        leader = BrokerId(int_of(content.get("leader"), "leader", low=-1, high=MAX_BROKER_ID))
        if leader >= 0 and leader not in isr:
            raise MalformedNodeError("the leader is not in isr")
        if removed and (isr or elr):
            raise MalformedNodeError("a removed partition has neither isr nor elr")
        members = _members(object_of(content.get("members"), "members"))
        if unrecorded := (set(isr) | set(elr)) - members.keys():
            raise MalformedNodeError(f"members lacks {sorted(unrecorded)}")
        return cls(
            topic_id=topic_id_of(content.get("topic_id")),
            leader=leader,
            leader_epoch=LeaderEpoch(int_of(content.get("leader_epoch"), "leader_epoch", low=0, high=MAX_EPOCH)),
            isr=kept_ids(isr),
            elr=elr,
            members=members,
            controller_epoch=ControllerEpoch(
                int_of(content.get("controller_epoch"), "controller_epoch", low=0, high=MAX_EPOCH)
            ),
            removed=removed,
        )
