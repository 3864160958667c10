"""Who leads now, as far as this broker knows: metadata, and what the controller ordered here since.

Goals: without metadata processes a failover is seen all the same, by whoever asks a broker that holds a replica; a
client that comes to the wrong broker is sent to the right one.

Algorithm: LeaderAndIsr comes straight from the controller, so for a partition that this broker leads or follows the
order is laid over the picture that the metadata processes sent: only where the picture has the very topic id, and only
at a higher leader epoch. Nothing is kept for it: an order whose epoch the picture has reached is seen no more. A
refusal names the leader by the same rule (KIP-951), and never the broker that refuses.
"""

from typing import Any, Final, NamedTuple, Protocol

from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey, TopicId
from regnum_model.nodes import Address, LeaderAndIsr
from regnum_service.errors import Code
from regnum_service.item_errors import item_status

from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.replicas import Replicas
from regnum_broker.serving.metadata_cache import MetadataCache, TopicView

SENDS_AWAY: Final = frozenset(
    {
        errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER,
        errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH,
        errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Refusals that name the leader, unless it is the broker that refuses."""


class CurrentLeader(NamedTuple):
    """Who leads a partition, as a refusal tells it."""

    leader: BrokerId
    """NO_LEADER: nobody does."""
    leader_epoch: int
    """In which it leads."""
    client: types_pb2.Endpoint | None
    """Its listener for clients; None: not known here."""


class Result(Protocol):
    """What became of one partition of a request."""

    topic: str
    partition: int
    error_code: Code
    current_leader: CurrentLeader | None


class CurrentLeaders:
    """Answers from the replicas and the metadata cache. Belongs to the event loop."""

    def __init__(self, replicas: Replicas, cache: MetadataCache) -> None:
        self._replicas: Final = replicas
        self._cache: Final = cache

    def knows(self, topic: str, partition: int) -> bool:
        """Whether a partition exists as far as this broker has heard."""
        return self._cache.knows(topic, partition)

    def state_of(self, view: TopicView, number: int) -> types_pb2.PartitionState:
        """A partition of the picture, with what was ordered here since."""
        known = view.partitions[number]
        replica = self._replicas.get(PartitionKey(TopicId(view.topic_id), number))
        if replica is None or replica.leader_epoch <= known.leader_epoch:
            return known
        ordered = _ordered(replica)
        return known if ordered is None else _overlaid(known, ordered, replica.version)

    def complete(self, result: Result) -> None:
        """Say in a refusal who leads, if it sends its caller away."""
        if result.error_code in SENDS_AWAY:
            result.current_leader = self.instead(result.error_code, result.topic, result.partition)

    def instead(self, code: Code, topic: str, partition: int) -> CurrentLeader | None:
        """Who leads a partition that was refused with that code; None: it sends nobody away, or it is not known."""
        if code not in SENDS_AWAY:
            return None
        leader, epoch = self._leader_of(topic, partition)
        if leader == self._replicas.broker or epoch < 0:
            # Metadata is behind, or this broker has been told to lead and does not yet: nobody knows better.
            return None
        return CurrentLeader(leader, epoch, self._replicas.client_listener_of(leader))

    def _leader_of(self, topic: str, number: int) -> tuple[BrokerId, int]:
        view = self._cache.topics.get(topic)
        if view is not None and number in view.partitions:
            state = self.state_of(view, number)
            return BrokerId(state.leader), state.leader_epoch
        replica = self._replicas.named(topic, number) if view is None else None
        ordered = None if replica is None else _ordered(replica)
        return (NO_LEADER, -1) if ordered is None else (ordered.leader, ordered.leader_epoch)


def tell_refusal(message: Any, leader: CurrentLeader | None) -> None:
    """Put into a result on gRPC's wire, with an error, what follows from it: who leads, and the status in full."""
    facts: dict[str, str] | None = None
    if leader is not None:
        told = message.current_leader
        told.leader, told.leader_epoch = leader.leader, leader.leader_epoch
        facts = {"leader_id": str(leader.leader), "leader_epoch": str(leader.leader_epoch)}
        if leader.client is not None:
            told.client.CopyFrom(leader.client)
            facts["leader_address"] = str(Address(host=leader.client.host, port=leader.client.port))
    message.status.CopyFrom(item_status(message.error_code, message.error_message, facts=facts))


def _ordered(replica: Partition) -> LeaderAndIsr | None:
    """The state under which a replica has its role; None: it has none."""
    role = replica.role
    if role is None:
        return None
    return role.state if isinstance(role, Leadership) else replica.ordered


def _overlaid(known: types_pb2.PartitionState, ordered: LeaderAndIsr, version: int) -> types_pb2.PartitionState:
    state = types_pb2.PartitionState()
    state.CopyFrom(known)
    state.ClearField("isr")
    state.ClearField("elr")
    state.ClearField("offline_reason")
    state.leader, state.leader_epoch, state.version = ordered.leader, ordered.leader_epoch, version
    state.isr.extend(ordered.isr)
    state.elr.extend(ordered.elr)
    return state
