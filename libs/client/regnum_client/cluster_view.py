"""The cluster as a client sees it. Pure.

Brokers learn of changes one after another, and one that is cut off from the rest learns of none, so an answer may be
older than one seen before. Two numbers decide. The version of an answer orders everything in it: brokers, the
controller and deletions are never taken from one below the highest version seen. A leader epoch never goes back in
one life of a topic (KIP-320): of two answers about a partition the one with the higher leader epoch counts, whatever
their versions; at equal epochs the higher version does. Both numbers mean nothing in another cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from regnum.metadata.v1.metadata_pb2 import GetMetadataResponse, TopicMetadata
from regnum.types.v1.errors_pb2 import ErrorCode
from regnum.types.v1.types_pb2 import Endpoint
from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch, ElectionId, LeaderEpoch, TopicId
from regnum_model.nodes import Address


class LeaderTerm(NamedTuple):
    """One leadership of one partition: what was true of an earlier term need not be true of this one."""

    topic_id: TopicId
    """Life of the topic."""
    leader: BrokerId
    """The leading broker."""
    epoch: LeaderEpoch
    """Its leader epoch."""

    def is_after(self, other: "LeaderTerm") -> bool:
        """Whether this is a later leadership of the same partition, in the same life of its topic."""
        return self.topic_id == other.topic_id and self.epoch > other.epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    """A live broker."""

    id: BrokerId
    epoch: BrokerEpoch
    rack: str
    """Failure domain; empty means none."""
    address: Address
    """Client listener."""
    internal_address: Address
    """Internal listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerView:
    """The active controller."""

    id: ElectionId
    epoch: ControllerEpoch
    address: Address
    """Client listener."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """State of a partition."""

    number: int
    """Partition number."""
    leader: BrokerId
    """Leader; NO_LEADER when there is none."""
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    """All replicas, the preferred leader first."""
    isr: tuple[BrokerId, ...]
    """In-sync replicas."""
    elr: tuple[BrokerId, ...]
    """Eligible leader replicas."""
    offline_replicas: tuple[BrokerId, ...] = ()
    """Live brokers whose replica cannot be used."""
    offline_reason: str = ""
    """Why there is no leader, and what helps; empty when there is one, or when only brokers are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """State of a topic."""

    name: str
    topic_id: TopicId
    partitions: Mapping[int, PartitionView]
    """Partitions by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """What is known of the cluster."""

    cluster_id: str = ""
    """Id of the cluster; empty when unknown."""
    controller: ControllerView | None = None
    """The active controller, when one is known."""
    brokers: Mapping[BrokerId, BrokerView] = field(default_factory=lambda: MappingProxyType({}))
    """Live brokers by id."""
    topics: Mapping[str, TopicView] = field(default_factory=lambda: MappingProxyType({}))
    """Topics that were asked for and exist, by name."""
    version: int = 0
    """Highest version that an answer carried; 0 when none was taken."""
    leader_addresses: Mapping[BrokerId, Address] = field(default_factory=lambda: MappingProxyType({}))
    """Where refusals said that leaders are which no answer named as live; until the next answer."""
    as_of_s: float = float("-inf")
    """Monotonic time at which the answer was asked for: it knows of nothing later."""

    def leader_term(self, topic: str, partition: int) -> LeaderTerm | None:
        """The leadership of a partition, when it has a leader that is known."""
        view = self.topics.get(topic)
        state = None if view is None else view.partitions.get(partition)
        if view is None or state is None or state.leader == NO_LEADER:
            return None
        return LeaderTerm(view.topic_id, state.leader, state.leader_epoch)

    def address_of(self, broker: BrokerId) -> Address | None:
        """Client listener of a live broker."""
        view = self.brokers.get(broker)
        return self.leader_addresses.get(broker) if view is None else view.address

    def incarnation_of(self, broker: BrokerId) -> BrokerEpoch | None:
        """Broker epoch of a live broker."""
        view = self.brokers.get(broker)
        return None if view is None else view.epoch

    def is_behind(self, answer: GetMetadataResponse) -> bool:
        """Whether an answer is older than what is known, or tells of another cluster."""
        return self.is_of_another_cluster(answer) or answer.version < self.version

    def is_of_another_cluster(self, answer: GetMetadataResponse) -> bool:
        """Whether an answer tells of another cluster than the one that is known."""
        return bool(self.cluster_id) and bool(answer.cluster_id) and answer.cluster_id != self.cluster_id


def merge(
    known: ClusterView, answer: GetMetadataResponse, *, asked: Iterable[str] | None, as_of_s: float
) -> ClusterView:
    """What is known after an answer to a question for the topics ``asked`` (None: for all)."""
    if known.is_of_another_cluster(answer):
        return replace(known, as_of_s=as_of_s)
    if known.is_behind(answer):
        return replace(known, topics=_with_later_terms(known.topics, answer), as_of_s=as_of_s)
    replaced = frozenset(known.topics if asked is None else asked)
    topics = {name: view for name, view in known.topics.items() if name not in replaced}
    for item in answer.topics:
        if _exists(item):
            topics[item.topic.name] = _topic(known.topics.get(item.topic.name), item)
    return ClusterView(
        cluster_id=answer.cluster_id or known.cluster_id,
        controller=_controller(known.controller, answer),
        brokers=MappingProxyType(
            {
                BrokerId(broker.id): BrokerView(
                    id=BrokerId(broker.id),
                    epoch=BrokerEpoch(broker.epoch),
                    rack=broker.rack,
                    address=_address(broker.client),
                    internal_address=_address(broker.internal),
                )
                for broker in answer.brokers
            }
        ),
        topics=MappingProxyType(topics),
        version=answer.version,
        as_of_s=as_of_s,
    )


def with_leader(
    known: ClusterView, topic: str, partition: int, term: LeaderTerm, address: Address | None
) -> ClusterView:
    """What is known after a refusal that named the leader (KIP-951): taken up at a higher leader epoch only."""
    view = known.topics.get(topic)
    state = None if view is None else view.partitions.get(partition)
    if view is None or state is None or view.topic_id != term.topic_id or term.epoch <= state.leader_epoch:
        return known
    state = replace(state, leader=term.leader, leader_epoch=term.epoch)
    view = replace(view, partitions=MappingProxyType({**view.partitions, partition: state}))
    addresses = known.leader_addresses
    if address is not None:
        addresses = MappingProxyType({**addresses, term.leader: address})
    return replace(known, topics=MappingProxyType({**known.topics, topic: view}), leader_addresses=addresses)


def _exists(item: TopicMetadata) -> bool:
    return item.error_code == ErrorCode.ERROR_CODE_NONE and not item.topic.deleted


def _with_later_terms(known: Mapping[str, TopicView], answer: GetMetadataResponse) -> Mapping[str, TopicView]:
    """What an answer from before may add: topics that nobody spoke of, and leaderships above those that are known."""
    topics = dict(known)
    for item in answer.topics:
        present = known.get(item.topic.name)
        if not _exists(item) or (present is not None and present.topic_id != item.topic.topic_id):
            continue
        said = _topic(present, item)
        if present is not None:
            later = {
                number: state
                for number, state in said.partitions.items()
                if number not in present.partitions or state.leader_epoch > present.partitions[number].leader_epoch
            }
            said = replace(present, partitions=MappingProxyType(dict(sorted({**present.partitions, **later}.items()))))
        topics[said.name] = said
    return MappingProxyType(topics)


def _address(endpoint: Endpoint) -> Address:
    return Address(host=endpoint.host, port=endpoint.port)


def _controller(known: ControllerView | None, answer: GetMetadataResponse) -> ControllerView | None:
    said = answer.controller
    if said.id < 0 or not said.client.host:
        return known
    if known is not None and said.epoch < known.epoch:
        return known
    return ControllerView(id=ElectionId(said.id), epoch=ControllerEpoch(said.epoch), address=_address(said.client))


def _topic(known: TopicView | None, item: TopicMetadata) -> TopicView:
    said = item.topic
    same_life = known is not None and known.topic_id == said.topic_id
    partitions: dict[int, PartitionView] = {}
    for state in said.partitions:
        before = known.partitions.get(state.partition) if known is not None and same_life else None
        if before is not None and before.leader_epoch > state.leader_epoch:
            partitions[state.partition] = before
            continue
        partitions[state.partition] = PartitionView(
            number=state.partition,
            leader=BrokerId(state.leader),
            leader_epoch=LeaderEpoch(state.leader_epoch),
            replicas=tuple(BrokerId(broker) for broker in state.replicas),
            isr=tuple(BrokerId(broker) for broker in state.isr),
            elr=tuple(BrokerId(broker) for broker in state.elr),
            offline_replicas=tuple(BrokerId(broker) for broker in state.offline_replicas),
            offline_reason=state.offline_reason,
        )
    return TopicView(
        name=said.name, topic_id=TopicId(said.topic_id), partitions=MappingProxyType(dict(sorted(partitions.items())))
    )
