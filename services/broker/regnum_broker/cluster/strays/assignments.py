"""What the store says, as of now, of who has a partition's replicas (safety rule S13).

Goals: a replica is deleted only if it is certain that it belongs to other brokers: the topic lives under the same id,
its node names the partition, with other brokers, and does not bring it back here, nor does the assignment that the
guard records as accepted (a person may have edited the node); and the partition is led, by others,
with an ISR and eligible replicas to which this broker does not belong. Whatever is missing, unreadable, of another
topic, or not to be had at present, is no reason to delete anything.

Every read is linearizable. They are not one read: what changes in between is that the partition comes back here, which
the controller orders, and that order comes after the deletion or makes the replica busy before it.
"""

import asyncio
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Node, Store
from regnum_model import paths
from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey, TopicId
from regnum_model.nodes import AcceptedAssignment, LeaderAndIsr, MalformedNodeError, TopicIdNode, TopicNode
from regnum_service.slices import Turns, slices

T = TypeVar("T")

DECODED_BYTES_PER_TURN: Final = 64 * 1024
"""Bytes of nodes decoded between two turns of the loop; larger nodes are decoded on a thread (safety rule S22)."""

TOPICS_PER_READ: Final = 8
"""Topic nodes that are read together: each may have a megabyte."""

STATES_PER_TURN: Final = 200
"""States decoded between two turns of the event loop."""

READ_TIMEOUT_S: Final = 2.0
"""How long all of it may take: orders wait meanwhile, and those of a failover must not wait for this broker's store."""


class Assignment(enum.Enum):
    """Whose a partition is, as the store says."""

    HERE = "here"
    """This broker is among its replicas, or is to be, or was before a reassignment that is open."""
    ELSEWHERE = "elsewhere"
    """Other brokers have it, and lead it."""
    TOPIC_GONE = "topic gone"
    """No topic has that id, or the topic has no such partition: a matter of deletion records."""
    UNKNOWN = "unknown"
    """Nobody can say."""


async def assignments_of(
    store: Store | None, keys: Sequence[PartitionKey], *, broker: BrokerId
) -> dict[PartitionKey, Assignment]:
    """Whose these partitions are.

    Args:
        store: the store; None while there is no session.
        keys: partitions.
        broker: this broker.
    """
    unknown = dict.fromkeys(keys, Assignment.UNKNOWN)
    if store is None or not keys:
        return unknown
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await _found(store, keys, broker)
    except (ConnectionLoss, SessionExpired, TimeoutError):
        return unknown


async def _found(store: Store, keys: Sequence[PartitionKey], broker: BrokerId) -> dict[PartitionKey, Assignment]:
    topics = await _topics(store, dict.fromkeys(key.topic_id for key in keys))
    found: dict[PartitionKey, Assignment] = {}
    elsewhere: list[tuple[PartitionKey, str]] = []
    for key in keys:
        topic = topics[key.topic_id]
        if isinstance(topic, Assignment):
            found[key] = topic
            continue
        name, said, accepted = topic
        found[key] = _by_assignments(said, accepted, key.partition, broker)
        if found[key] is Assignment.ELSEWHERE:
            elsewhere.append((key, name))
    states = await _read(store, [paths.leader_and_isr(name, key.partition) for key, name in elsewhere])
    turns = Turns(STATES_PER_TURN)
    for key, name in elsewhere:
        await turns.took()
        if not _is_led_by_others(states.get(paths.leader_and_isr(name, key.partition)), key, broker):
            found[key] = Assignment.UNKNOWN
    return found


_Known = tuple[str, AcceptedAssignment, AcceptedAssignment | None]
"""Name of a topic, its assignment as the node says, and as the guard records it."""


async def _topics(store: Store, ids: Mapping[TopicId, None]) -> dict[TopicId, _Known | Assignment]:
    """What is known of each topic, or what can be said without it."""
    topics: dict[TopicId, _Known | Assignment] = dict.fromkeys(ids, Assignment.UNKNOWN)
    owners: dict[TopicId, TopicIdNode] = {}
    turns = Turns(DECODED_BYTES_PER_TURN)
    guards = await _read(store, [paths.topic_id(id) for id in ids])
    for id in ids:
        guard = guards.get(paths.topic_id(id))
        if guard is None:
            topics[id] = Assignment.TOPIC_GONE
            continue
        if (owner := await _decoded(TopicIdNode.decode, guard.data, turns)) is not None:
            owners[id] = owner
    async for some in slices(owners.items(), TOPICS_PER_READ):
        nodes = await _read(store, [paths.topic(owner.topic) for _, owner in some])
        for id, owner in some:
            node = nodes.get(paths.topic(owner.topic))
            content = None if node is None else await _decoded(TopicNode.decode, node.data, turns)
            if content is not None and content.topic_id == id:
                topics[id] = (owner.topic, AcceptedAssignment.of(content), owner.accepted)
    return topics


async def _decoded(decode: Callable[[bytes], T], data: bytes, turns: Turns) -> T | None:
    """A node; None: nobody can read it."""
    try:
        if len(data) >= DECODED_BYTES_PER_TURN:
            return await asyncio.to_thread(decode, data)
        await turns.took(len(data))
        return decode(data)
    except MalformedNodeError:
        return None


async def _read(store: Store, wanted: Sequence[str]) -> dict[str, Node]:
    """Nodes that exist, by path. Raises ConnectionLoss, SessionExpired."""
    if not wanted:
        return {}
    nodes = await store.get_many(list(wanted), current=True)
    return {path: node for path, node in zip(wanted, nodes, strict=True) if node is not None}


def _by_assignments(
    said: AcceptedAssignment, accepted: AcceptedAssignment | None, partition: int, broker: BrokerId
) -> Assignment:
    if _is_named(said, partition, broker) or (accepted is not None and _is_named(accepted, partition, broker)):
        return Assignment.HERE
    return Assignment.ELSEWHERE if partition in said.partitions else Assignment.TOPIC_GONE


def _is_named(assignment: AcceptedAssignment, partition: int, broker: BrokerId) -> bool:
    move = assignment.reassigning.get(partition)
    return broker in assignment.partitions.get(partition, ()) or (move is not None and broker in move.kept)


def _is_led_by_others(node: Node | None, key: PartitionKey, broker: BrokerId) -> bool:
    if node is None:
        return False
    try:
        state = LeaderAndIsr.decode(node.data)
    except MalformedNodeError:
        return False
    members = {state.leader, *state.isr, *state.elr}
    return state.topic_id == key.topic_id and state.leader != NO_LEADER and broker not in members
