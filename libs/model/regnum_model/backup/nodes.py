"""Nodes that only a restored tree has: the mark of the restore, and partitions whose leader nobody knows yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from regnum_model.ids import NO_LEADER, BrokerId, ControllerEpoch, LeaderEpoch, LogId, TopicId
from regnum_model.nodes.reading import (
    MAX_BROKER_ID,
    MAX_EPOCH,
    MalformedNodeError,
    dumped,
    ids_of,
    int_of,
    loaded,
    number_of,
    object_of,
    str_of,
    topic_id_of,
)

MARK: Final = "/restored"
"""Stands since a restore began, and for good. While it says ``writing`` the tree is not whole and nobody may use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """How far numbers had come that no restore may give out again."""

    controller_epoch: int = 0
    """The last reign."""
    producer_id: int = 0
    """The first id that was not given out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreMark:
    """``/restored``: which backup the tree comes from, and whether all of it is there."""

    whole: bool
    """Whether everything was written. Until then no process may use the tree."""
    run: str
    """Unique name of the restore."""
    backup: str
    """SHA-256 of the backup's lines."""
    taken_ms: int
    """When the backup was taken, in ms since 1970."""
    since_ms: int
    """When the restore began, in ms since 1970."""
    brokers: frozenset[BrokerId] = frozenset()
    """Brokers that must have said what they have before a restored partition gets a leader by itself: each may hold
    the newest log of any of them."""
    logs: Mapping[BrokerId, frozenset[LogId]] = field(default_factory=dict)
    """Logs that brokers had when the backup was taken; a log of another id may have lost its end since (S10)."""
    former: Numbers = field(default_factory=Numbers)
    """How far the tree had come whose place this one takes: what is deleted of it may be gone when this is cut off."""

    def encode(self) -> bytes:
        """JSON."""
        return dumped(
            {
                "version": 1,
                "state": "whole" if self.whole else "writing",
                "run": self.run,
                "backup": self.backup,
                "taken_ms": self.taken_ms,
                "since_ms": self.since_ms,
                "brokers": sorted(self.brokers),
                "logs": {str(id): sorted(logs) for id, logs in sorted(self.logs.items())},
                "former": {"controller_epoch": self.former.controller_epoch, "producer_id": self.former.producer_id},
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError."""
        content = object_of(loaded(data), "the mark of a restore")
        state = content.get("state")
        if state not in {"whole", "writing"}:
            raise MalformedNodeError("state is neither whole nor writing")
        logs: dict[BrokerId, frozenset[LogId]] = {}
        for key, value in object_of(content.get("logs", {}), "logs").items():
            if not isinstance(value, list):
                raise MalformedNodeError(f"logs of broker {key} are not a list")
            id = BrokerId(number_of(key, "logs: broker", MAX_BROKER_ID))
            logs[id] = frozenset(LogId(str_of(one, "log id")) for one in value)
        former = object_of(content.get("former", {}), "former")
        return cls(
            whole=state == "whole",
            run=str_of(content.get("run"), "run"),
            backup=str_of(content.get("backup"), "backup"),
            taken_ms=int_of(content.get("taken_ms"), "taken_ms", low=0),
            since_ms=int_of(content.get("since_ms"), "since_ms", low=0),
            brokers=frozenset(ids_of(content.get("brokers", []), "brokers")),
            logs=logs,
            former=Numbers(
                controller_epoch=int_of(former.get("controller_epoch", 0), "former: epoch", low=0, high=MAX_EPOCH),
                producer_id=int_of(former.get("producer_id", 0), "former: producer id", low=0),
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredState:
    """A leaderAndISR node as a restore writes it: what the backup said, and nobody who may lead.

    It is no ``LeaderAndIsr`` (its ISR is empty), so that no version of a controller takes the members of a backup for
    those of today: what reads it as one finds it damaged, and leaves the partition Offline (safety rule S14).
    """

    topic_id: TopicId
    """Topic it belongs to."""
    leader_epoch: LeaderEpoch
    """Leader epoch in the backup; logs may know later ones."""
    controller_epoch: ControllerEpoch
    """Controller epoch that the restore wrote."""
    leader: BrokerId = NO_LEADER
    """Leader in the backup, for people."""
    isr: tuple[BrokerId, ...] = ()
    """In-sync replicas in the backup, for people."""
    elr: tuple[BrokerId, ...] = ()
    """Eligible leader replicas in the backup, for people."""
    holders: Mapping[BrokerId, LogId] = field(default_factory=dict)
    """Logs of the members of ISR and ELR in the backup: each had all that was acknowledged until then, and a log of
    another id need not have it any more."""

    def encode(self) -> bytes:
        """JSON."""
        return dumped(
            {
                "version": 1,
                "topic_id": self.topic_id,
                "leader": NO_LEADER,
                "leader_epoch": self.leader_epoch,
                "isr": [],
                "elr": [],
                "members": {},
                "controller_epoch": self.controller_epoch,
                "restored": {
                    "leader": self.leader,
                    "isr": list(self.isr),
                    "elr": list(self.elr),
                    "holders": {str(id): log for id, log in sorted(self.holders.items())},
                },
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read; raises MalformedNodeError, also for an ordinary state."""
        content = object_of(loaded(data), "a restored leaderAndISR")
        if content.get("isr") or content.get("elr") or content.get("leader") != NO_LEADER:
            raise MalformedNodeError("a restored partition has neither leader nor isr nor elr")
        former = object_of(content.get("restored"), "restored")
        return cls(
            topic_id=topic_id_of(content.get("topic_id")),
            leader_epoch=LeaderEpoch(int_of(content.get("leader_epoch"), "leader_epoch", low=0, high=MAX_EPOCH)),
            controller_epoch=ControllerEpoch(
                int_of(content.get("controller_epoch"), "controller_epoch", low=0, high=MAX_EPOCH)
            ),
            leader=BrokerId(int_of(former.get("leader"), "restored: leader", low=-1, high=MAX_BROKER_ID)),
            isr=ids_of(former.get("isr"), "restored: isr"),
            elr=ids_of(former.get("elr"), "restored: elr"),
            holders={
                BrokerId(number_of(key, "restored: holder", MAX_BROKER_ID)): LogId(str_of(log, "log id"))
                for key, log in object_of(former.get("holders", {}), "restored: holders").items()
            },
        )
