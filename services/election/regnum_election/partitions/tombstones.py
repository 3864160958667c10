"""Tombstones of removed partitions that cannot be read: found, and written anew when a person gives them up.

Goals
    A number whose tombstone is damaged is named to people, and can be given again: in a leader epoch above every one
    that the former partition had (safety rule S2), and when no broker has files of it any more (safety rule S13).

Constraints
    - The node is written over and never removed, so its version goes on.
    - Nobody may know how high the leader epoch was: brokers forget it with the files. But each write of a state raises
      it by UNKNOWN_EPOCHS + 2 at most, and the version says how many writes there were.
    - What is damaged may have been no tombstone: a person may have taken a partition out of its topic node. So every
      broker there ever was is named in a removal record, and has to confirm that it has no files.

Example: the node has version 7, no broker that answers knows the partition. No epoch of it can have been above 7,014,
and the new tombstone has 7,015.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Check, Create, Group, Node, Operation, Set, Written
from regnum_model import paths
from regnum_model.ids import NO_EPOCH, LeaderEpoch, PartitionKey
from regnum_model.nodes import MAX_PARTITIONS, MalformedNodeError, PartitionDeletionNode
from regnum_service.slices import Turns

from regnum_election.decisions.cluster import HeldState, Topic
from regnum_election.decisions.deletion import Removal
from regnum_election.decisions.leadership import removed_state
from regnum_election.decisions.rejection import Rejection
from regnum_election.decisions.topic_nodes import HELP, FoundNode, is_restored, judge_state
from regnum_election.recovery.decisions import EPOCH_MAX, highest_written
from regnum_election.state.context import ControllerContext
from regnum_election.state.open_removals import Part
from regnum_election.topics.adoption import known_brokers

PROBED_MAX: Final = 250
"""Tombstones that are read together at most."""

JUDGED_PER_TURN: Final = 100
"""Tombstones that are judged between two turns of the event loop (safety rule S22)."""


def note_tombstone(context: ControllerContext, key: PartitionKey, seen: FoundNode | None) -> None:
    """Note whether the state of a partition that its topic does not have can be read.

    Whatever is on its way out, or damaged in another part, is none of this.
    """
    removals = context.removals
    known = removals.damage_of(key)
    if key.partition in removals.begun.get(key.topic_id, ()) or (
        known is not None and known.part is not Part.TOMBSTONE
    ):
        return
    judged = judge_state(key.topic_id, seen, creating=True, reign=context.reign.epoch)
    if isinstance(judged, str) and not is_restored(judged):
        note_damage(context, key, judged)
    elif known is not None:
        removals.mended(key)


def note_damage(context: ControllerContext, key: PartitionKey, reason: str) -> None:
    """Note that a tombstone cannot be read, for the reason that ``judge_state`` gives."""
    reason, known = reason.removesuffix(HELP), context.removals.damage_of(key)
    if known is None or known.reason != reason:
        context.removals.unreadable(key, reason, Part.TOMBSTONE)
        context.log.error("tombstone cannot be read", key=key, reason=reason)


async def look_behind(context: ControllerContext, topic: Topic, named: Iterable[int] = ()) -> None:
    """Note what is damaged of removed partitions of a topic: of those that are named, or of all behind its last."""
    numbers = [number for number in named if 0 <= number < MAX_PARTITIONS]
    if numbers:
        await _look(context, topic, numbers)
        return
    first, count = topic.partitions[-1] + 1, 1
    while first < MAX_PARTITIONS:
        found = await _look(context, topic, range(first, min(first + count, MAX_PARTITIONS)))
        if len(found) < count:
            return
        first, count = first + count, min(2 * count, PROBED_MAX)


async def _look(context: ControllerContext, topic: Topic, numbers: Iterable[int]) -> Mapping[str, Node]:
    by_path = {paths.leader_and_isr(topic.name, number): PartitionKey(topic.id, number) for number in numbers}
    found = await context.store.read_many(tuple(by_path))
    turns = Turns(JUDGED_PER_TURN)
    for path, key in by_path.items():
        await turns.took()
        if topic.id in context.picture.topics and key not in context.picture.partitions:
            note_tombstone(context, key, found_node(found.get(path)))
    return found


async def write_anew(
    context: ControllerContext, topic: Topic, number: int, floor: LeaderEpoch | None
) -> Rejection | None:
    """Write tombstone and removal record of a removed partition anew, each where it cannot be read.

    In the controller's task. What can be read by now is taken up as it is.

    Args:
        context: the reign.
        topic: a topic of the picture, without the partition.
        number: the partition.
        floor: a leader epoch above all that the controller and brokers know; None: there is none left.
    """
    key = PartitionKey(topic.id, number)
    record_path, state_path = paths.partition_deletion(topic.id, number), paths.leader_and_isr(topic.name, number)
    found = await context.store.read_many((record_path, state_path))
    record, seen = found.get(record_path), found_node(found.get(state_path))
    content = None if record is None else _readable(record)
    judged = judge_state(topic.id, seen, creating=True, reign=context.reign.epoch)
    if isinstance(judged, HeldState) and judged.state.removed:
        if record is None or content is not None:
            # Whoever deleted a record by hand answers for what brokers have.
            _take_up(context, key, record, content)
            return None
        operation: Operation = Check(state_path, judged.version)
        epoch = judged.state.leader_epoch
    elif isinstance(judged, str) and seen is not None and not is_restored(judged):
        known = NO_EPOCH if content is None else content.leader_epoch
        last = LeaderEpoch(max(known, highest_written(seen.version), EPOCH_MAX if floor is None else floor))
        if last + 1 >= EPOCH_MAX:
            return _refused("no leader epoch is left above those known; delete the topic")
        tombstone = removed_state(topic.id, None, context.reign.epoch, at_least=last)
        operation, epoch = Set(state_path, tombstone.encode(), seen.version), tombstone.leader_epoch
    else:
        return _refused(f"{state_path} is no tombstone, or there is none; delete the topic to be rid of the record")
    brokers = {*await known_brokers(context), *context.picture.assigned}
    anew = PartitionDeletionNode(topic=topic.name, brokers=frozenset(brokers), leader_epoch=epoch)
    groups: list[Group] = [
        # It may stand already: then this is refused, and nothing depends on it.
        (Check(paths.topic_id(topic.id)), Create(paths.partition_deletions(topic.id), b"")),
        (
            Check(paths.topic_id(topic.id)),
            operation,
            Create(record_path, anew.encode())
            if record is None
            else Set(record_path, anew.encode(), record.stat.version),
        ),
    ]
    outcome = (await context.store.write_batch(groups))[-1]
    stat = outcome.results[-1].stat if isinstance(outcome, Written) else None
    if stat is None:
        return _refused("its nodes changed meanwhile; look again")
    context.removals.mended(key)
    context.removals.add(Removal.recorded_as(key, anew, version=stat.version))
    return None


def found_node(node: Node | None) -> FoundNode | None:
    """What is judged of a node."""
    return None if node is None else FoundNode(data=node.data, version=node.stat.version)


def _readable(record: Node) -> PartitionDeletionNode | None:
    try:
        return PartitionDeletionNode.decode(record.data)
    except MalformedNodeError:
        return None


def _take_up(
    context: ControllerContext, key: PartitionKey, record: Node | None, content: PartitionDeletionNode | None
) -> None:
    context.removals.mended(key)
    if record is not None and content is not None:
        context.removals.add(Removal.recorded_as(key, content, version=record.stat.version))


def _refused(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message=message)
