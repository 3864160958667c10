"""What the store holds of a partition that may have to be recovered, and whether it may be (safety rule S14). Pure.

A partition is recoverable when it gets no leader by itself: its state cannot be read or is gone, the topic's guard is
gone, or no member that the state records may be elected (safety rule S10). Everything else is left to the rules.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Absent, Check, Create, Node, Operation, Set
from regnum_model import paths
from regnum_model.ids import NO_LEADER, BrokerId, ControllerEpoch, LeaderEpoch, LogId, PartitionKey
from regnum_model.nodes import LeaderAndIsr, MalformedNodeError, TopicIdNode, TopicNode

from regnum_election.decisions.cluster import Broker, HeldState, Partition, Topic
from regnum_election.decisions.leadership import Change, ChangeKind, Decision, Refusal
from regnum_election.decisions.rejection import Rejection
from regnum_election.decisions.topic_nodes import (
    REMOVED,
    FoundNode,
    is_contradicted,
    is_restored,
    judge_state,
    restored_state,
)

WITHOUT_RECORD: Final = "no member that ISR or ELR record may be elected"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Versions of what the store holds; None: there is no such node."""

    topic: int
    """Of the topic node."""
    guard: int | None
    """Of the topic's guard."""
    folder: int | None
    """Of the partition's folder."""
    state: int | None
    """Of leaderAndISR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recoverable:
    """A partition that gets no leader by itself."""

    key: PartitionKey
    partition: Partition
    """As the picture has it."""
    nodes: Nodes
    """As the store has it."""
    state: LeaderAndIsr | None
    """What is recorded of it: by the store, or else as the controller knew it last; None: nothing."""
    reason: str
    """Why it has no leader."""
    known_epoch: LeaderEpoch
    """Highest leader epoch that the store or the controller knows; NO_EPOCH: none."""
    is_certain: bool
    """Whether it is the highest that there has been."""
    holders: Mapping[BrokerId, LogId] = field(default_factory=dict)
    """Logs of the members of ISR and ELR in the backup that it was restored from."""

    @property
    def is_recorded(self) -> bool:
        """Whether its state and its guard are whole, and only members that may lead are missing."""
        return self.reason == WITHOUT_RECORD


def paths_of(topic: Topic, number: int) -> tuple[str, str]:
    """The nodes of a partition: folder and state."""
    return paths.partition(topic.name, number), paths.leader_and_isr(topic.name, number)


def judge_topic_node(topic: Topic, found: Mapping[str, Node]) -> Rejection | None:
    """Whether the topic still stands as the picture has it."""
    node = found.get(paths.topic(topic.name))
    try:
        content = None if node is None else TopicNode.decode(node.data)
    except MalformedNodeError as error:
        return _unavailable(f"the topic node cannot be read ({error}); correct it first")
    if content is None:
        return _unavailable("the topic node is gone; restore it, or delete the rest of the topic")
    if content.topic_id != topic.id:
        return _unavailable(f"the topic node names another topic id than {topic.id}; correct it first")
    return _judge_guard(topic, found.get(paths.topic_id(topic.id)))


def _judge_guard(topic: Topic, guard: Node | None) -> Rejection | None:
    if guard is None:
        return None
    path = paths.topic_id(topic.id)
    try:
        owner = TopicIdNode.decode(guard.data).topic
    except MalformedNodeError as error:
        return _unavailable(f"the guard {path} cannot be read ({error}); write the topic's name back")
    return None if owner == topic.name else _unavailable(f"the guard {path} belongs to topic {owner}")


def judge_partition(
    topic: Topic,
    key: PartitionKey,
    partition: Partition,
    found: Mapping[str, Node],
    settle: Callable[[Partition], Decision],
    *,
    reign: ControllerEpoch,
) -> Recoverable | Rejection:
    """Whether a partition may be recovered.

    Args:
        topic: its topic, which stands (``judge_topic_node``).
        key: the partition.
        partition: as the picture has it.
        found: nodes of the store by path, as of now.
        settle: the ordinary decision about it, with the state that it is given.
        reign: controller epoch of the reader.
    """
    folder_path, state_path = paths_of(topic, key.partition)
    guard, folder, node = (found.get(path) for path in (paths.topic_id(topic.id), folder_path, state_path))
    seen = None if node is None else FoundNode(data=node.data, version=node.stat.version)
    judged = judge_state(key.topic_id, seen, creating=partition.creating, reign=reign, began=partition.began)
    if judged is None or (isinstance(judged, HeldState) and judged.state.removed):
        return _not_needed("it is being created, and gets a leader as soon as one of its brokers is live")
    if judged == REMOVED:
        # Its tombstone has the leader epoch that brokers knew last: nothing may begin below it.
        return _unavailable(f"{REMOVED}")
    held = judged if isinstance(judged, HeldState) else None
    if held is not None and guard is not None:
        decision = settle(Partition(replicas=partition.replicas, held=held, reassignment=partition.reassignment))
        if decision is Refusal.NEWER_REIGN:
            return _unavailable("a later controller wrote its state; ask that one")
        if _gets_a_leader(held.state, decision) and not is_contradicted(partition.trouble):
            return _not_needed("it has a leader, or gets one without loss within some seconds")
    if guard is None:
        reason = f"the guard {paths.topic_id(topic.id)} is missing"
    elif held is None:
        reason = str(judged)
    else:
        reason = partition.trouble or WITHOUT_RECORD
    if is_restored(partition.trouble) and is_restored(reason):
        reason = partition.trouble or reason
    known = partition.held
    recorded = held or known
    epochs = [one.state.leader_epoch for one in (held, known) if one is not None]
    # What is written is of this life, even where nothing else of it is known.
    epochs.append(LeaderEpoch(partition.began - 1))
    restored = None if node is None else restored_state(node.data)
    if restored is not None:
        epochs.append(restored.leader_epoch)
    return Recoverable(
        key=key,
        partition=partition,
        nodes=Nodes(
            topic=found[paths.topic(topic.name)].stat.version,
            guard=_version(guard),
            folder=_version(folder),
            state=_version(node),
        ),
        state=None if recorded is None else recorded.state,
        reason=reason,
        known_epoch=max(epochs),
        is_certain=known is not None,
        holders={} if restored is None else restored.holders,
    )


def group_for(
    topic: Topic, recoverable: Recoverable, chosen: Broker, state: LeaderAndIsr, *, make_guard: bool
) -> tuple[Operation, ...]:
    """The write that gives a partition its leader: only if nothing has changed, and the chosen log is really live.

    Its last operation is the one on the state.

    Args:
        topic: its topic.
        recoverable: the partition as it was found.
        chosen: registration of the chosen replica (safety rules S2 and S3).
        state: what is written.
        make_guard: whether the topic's guard is made with it.
    """
    folder_path, state_path = paths_of(topic, recoverable.key.partition)
    nodes, data = recoverable.nodes, state.encode()
    operations: list[Operation] = [
        Check(paths.topic(topic.name), nodes.topic),
        Check(paths.broker_epoch(chosen.id), chosen.registration),
        Check(paths.broker_id(chosen.id), chosen.node_version),
    ]
    if nodes.guard is not None:
        operations.append(Check(paths.topic_id(topic.id), nodes.guard))
    elif make_guard:
        operations.append(Create(paths.topic_id(topic.id), TopicIdNode(topic=topic.name).encode()))
    else:
        operations.append(Absent(paths.topic_id(topic.id)))
    if nodes.state is not None:
        operations.append(Set(state_path, data, nodes.state))
    else:
        if nodes.folder is None:
            operations.append(Create(folder_path, b""))
        operations.append(Create(state_path, data))
    return tuple(operations)


def _gets_a_leader(state: LeaderAndIsr, decision: Decision) -> bool:
    if isinstance(decision, Change):
        return decision.kind is not ChangeKind.OFFLINE
    return state.leader != NO_LEADER


def _version(node: Node | None) -> int | None:
    return None if node is None else node.stat.version


def _not_needed(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED, message=f"nothing is to be recovered: {message}")


def _unavailable(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_ELIGIBLE_LEADERS_NOT_AVAILABLE, message=message)
