"""What a topic node means together with the nodes around it: accept, repair, or leave alone (safety rule S14).

Goals: a person may write or damage any node; the controller takes up what is whole, gives an id to what is new,
restores an id that was lost, and never invents a state: epoch 0 is written only for partitions marked ``creating``.

Constraint: the controller writes a topic node and its guard together. So an id that no guard knows was restored by
hand, and records of it may be on the brokers' disks: it is nothing new, even where it is marked ``creating``.

Algorithm: the guard ``/brokers/topic_ids/<id>`` and the id that leaderAndISR nodes repeat are the witnesses.

    topic id in node | leaderAndISR nodes    | guard               | result
    present          | any                   | names this topic    | accepted as it is
    present          | any                   | none                | accepted, all partitions in trouble
    present          | any                   | names another topic | refused
    absent           | none                  | -                   | accepted: id minted, all partitions creating;
                     |                       |                     | refused where partition numbers are missing
    absent           | some, all the same id | names this topic    | accepted: id restored
    absent           | some, anything else   | -                   | refused

A topic that may have records runs whatever numbers its node misses; see ``topics.incomplete``.

Who has the partitions is a controller's decision: the guard records it with every change (``AcceptedAssignment``). A
topic node that says something else of a partition that exists was edited by hand, and the edit is refused: the
partition goes on as it was accepted, also under the next controller, until the node says that again or
``regnum partitions reassign`` writes it.

    the node says             | and                                     | result
    what is recorded          | -                                       | that
    something else            | ISR and ELR fit the node alone          | the node: a controller of 0.1.0 moved it
    how a recorded move ended | ISR and ELR fit the node                | the node: a controller of 0.1.0 ended it
    otherwise                 | -                                       | what is recorded, and the edit is told of
    nothing, one is recorded  | its state is a tombstone                | it is gone: removed by a controller of 0.1.0
                              | otherwise                               | what is recorded, and the edit is told of
    one that is not recorded  | a state, or a mark ``creating``         | the node: added by 0.1.0, or see S14
                              | neither                                 | left out, and told of

Without a record (a topic of 0.1.0 that was not taken down yet) the node is believed as far as it names the members of
ISR and ELR; where it does not, these have the partition, and the edit is told of. A node that cannot be read at all is
refused; where the guard of its topic is known, and has a record, the topic goes on by that (``as_recorded``). So it
does where the node names another id, and the states repeat that of the guard.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice
from types import MappingProxyType
from typing import Final

from regnum_model.backup.nodes import RestoredState
from regnum_model.epochs import is_plausible
from regnum_model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId
from regnum_model.nodes import (
    MAX_EPOCH,
    AcceptedAssignment,
    LaterVersionError,
    LeaderAndIsr,
    MalformedNodeError,
    TopicNode,
)
from regnum_model.reassignment import Reassignment
from regnum_model.topics import InvalidTopicNameError, check_topic_name

from regnum_election.decisions.cluster import FROM_ZERO, HeldState, Partition

REMOVED: Final = (
    "leaderAndISR says that this partition was removed; take it out of the topic node, and add it with "
    "`regnum topics add-partitions` if it is wanted"
)
"""Trouble of a partition that a person put back into its topic node."""

STATE_MISSING: Final = "leaderAndISR is missing; restore it, or see regnum partitions recover"
"""Trouble of a partition that is past its creation and has no state."""

HELP: Final = "; correct it, or see regnum partitions recover"
"""What helps where a state that stands cannot be used; of a partition that is removed nothing is recovered."""

ENOUGH_MISSING: Final = 5
"""Missing partition numbers that a reason names."""

EDITS_NAMED: Final = 5
"""Partitions that the words about an edited topic node name."""

RESTORED: Final = "restored from a backup: it gets a leader when every broker has said what its log holds"
"""Trouble of a partition that a restore wrote, until one of its logs is known to be the newest."""


def is_restored(trouble: str | None) -> bool:
    """Whether a partition in trouble is one that a restore wrote; what follows says why it still has no leader."""
    return trouble is not None and trouble.startswith(RESTORED)


CONTRADICTED: Final = "the log of its leader knows the leader epoch already"
"""Trouble of a partition whose state a broker's log contradicts: the store may have gone back (trace T9)."""


def is_contradicted(trouble: str | None) -> bool:
    """Whether a partition in trouble is one whose state a log contradicts."""
    return trouble is not None and trouble.startswith(CONTRADICTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundNode:
    """A node as read."""

    data: bytes
    """Content."""
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The topic can be taken into the picture."""

    topic_id: TopicId
    """Its id."""
    node: TopicNode
    """What the topic node says, after the repair."""
    partitions: Mapping[int, Partition]
    """Its partitions."""
    rewrite: bool
    """Whether the topic node must be written first."""
    make_guard: bool
    """Whether the guard must be created with it."""
    edited: str = ""
    """How the node differs from what was accepted, for people; empty: it does not."""
    recorded: bool = True
    """Whether the guard records the assignment, or has no place for it."""
    unreadable: str = ""
    """Why the node says nothing of the topic, where that goes on by what its guard records; empty: it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The topic is left alone; a person has to look at it."""

    reason: str
    """What is wrong and what would help."""


def readable(data: bytes) -> TopicNode | None:
    """What a topic node says, and so which leaderAndISR nodes are read to judge it; None if it is unreadable."""
    try:
        return TopicNode.decode(data)
    except MalformedNodeError:
        return None


def missing_numbers(partitions: Collection[int]) -> tuple[int, ...]:
    """The first few numbers that are missing below the highest."""
    missing = max(partitions, default=-1) + 1 - len(partitions)
    absent = (number for number in count() if number not in partitions)
    return tuple(islice(absent, min(missing, ENOUGH_MISSING)))


def judge_topic(  # noqa: PLR0911 - each row of the table has its own line
    name: str,
    found: FoundNode,
    states: Mapping[int, FoundNode],
    guards: Mapping[TopicId, str],
    *,
    minted: TopicId,
    reign: ControllerEpoch,
    content: TopicNode | None = None,
    records: Mapping[TopicId, AcceptedAssignment] = MappingProxyType({}),
) -> Accepted | Refused:
    """Apply the table above.

    Args:
        name: topic name, from the path.
        found: the topic node.
        states: leaderAndISR nodes by partition; those that exist.
        guards: topic name by topic id, of all guards.
        minted: a fresh id, used when the topic needs one.
        reign: controller epoch of the reader.
        content: what the topic node says, where the caller has decoded it.
        records: accepted assignments by topic id, of guards that have one.
    """
    try:
        check_topic_name(name)
        node = TopicNode.decode(found.data) if content is None else content
    except (InvalidTopicNameError, MalformedNodeError) as error:
        return Refused(reason=f"{error}; correct the node or delete it")
    topic_id = node.topic_id
    if topic_id is None:
        if not states:
            return _new(minted, node)
        witnesses, unreadable = _witnesses(states)
        if len(witnesses) != 1 or unreadable:
            return Refused(
                reason="the topic id is missing and the leaderAndISR nodes do not agree on one; write it back"
            )
        topic_id = next(iter(witnesses))
        if guards.get(topic_id) != name:
            return Refused(reason=f"the topic id is missing and no guard says that {topic_id} is this topic's")
        repaired = replace(node, topic_id=topic_id)
        return _known(topic_id, repaired, states, records.get(topic_id), rewrite=True, reign=reign)
    owner = guards.get(topic_id)
    if owner == name:
        return _known(topic_id, node, states, records.get(topic_id), rewrite=False, reign=reign)
    if owner is not None:
        return Refused(reason=f"topic id {topic_id} belongs to topic {owner}; remove the id, and a new one is given")
    guard = f"guard /brokers/topic_ids/{topic_id}"
    reason = f"{guard} is missing though the topic has state; restore it, or see regnum partitions recover"
    if not states:
        reason = (
            f"{guard} and all states are missing though the topic has an id, so it was restored by hand; see regnum "
            "partitions recover, or take the id out of the node if the topic is new"
        )
    partitions = {
        number: Partition(
            replicas=replicas,
            trouble=reason,
            reassignment=node.reassigning.get(number),
            began=node.began.get(number, FROM_ZERO),
        )
        for number, replicas in node.partitions.items()
    }
    return Accepted(topic_id=topic_id, node=node, partitions=partitions, rewrite=False, make_guard=False)


def beginning_after(tombstone: HeldState, known: LeaderEpoch = FROM_ZERO) -> LeaderEpoch:
    """Leader epoch at which a partition's life begins that goes on from a tombstone; ``known``: what is said of it."""
    return LeaderEpoch(max(known, min(tombstone.state.leader_epoch + 1, MAX_EPOCH)))


def judge_state(  # noqa: PLR0911 - each outcome has its own line
    topic_id: TopicId,
    found: FoundNode | None,
    *,
    creating: bool,
    reign: ControllerEpoch,
    began: LeaderEpoch = FROM_ZERO,
) -> HeldState | str | None:
    """What a leaderAndISR node holds; the reason when it cannot be used; None when it may still be created.

    Args:
        topic_id: whose it should be.
        found: the node as read.
        creating: whether the partition may get a first leader. Only then is a tombstone a state to go on from.
        reign: controller epoch of the reader. A state from a later reign is for the caller to give way to (safety rule
            S7); one from a reign that cannot have been is an error in that state, and concerns no other partition.
        began: leader epoch at which the topic node says that its life began: no state of it has a lower one.
    """
    if found is None:
        return None if creating else STATE_MISSING
    try:
        state = LeaderAndIsr.decode(found.data)
    except MalformedNodeError as error:
        if (restored := restored_state(found.data)) is not None and restored.topic_id == topic_id:
            return RESTORED
        return f"leaderAndISR: {error}{HELP}"
    if state.topic_id != topic_id:
        return f"leaderAndISR belongs to topic id {state.topic_id}, not {topic_id}"
    if not is_plausible(state.controller_epoch, reign):
        return f"leaderAndISR names controller epoch {state.controller_epoch} and the present one is {reign}{HELP}"
    if state.removed and not creating:
        return REMOVED
    if not state.removed and state.leader_epoch < began:
        return f"leaderAndISR has leader epoch {state.leader_epoch}, and the topic node says it began at {began}{HELP}"
    return HeldState(state=state, version=found.version)


def restored_state(data: bytes) -> RestoredState | None:
    """What a restore wrote of a partition; None where it did not write this node."""
    try:
        return RestoredState.decode(data)
    except MalformedNodeError:
        return None


def other_id(named: TopicId | None, known: TopicId) -> str:
    """What is wrong with the node of a known topic that names another life of it."""
    return f"the topic node names id {named} where {known} was; write that one back, or remove the topic node"


def _witnesses(states: Mapping[int, FoundNode]) -> tuple[frozenset[TopicId], int]:
    ids: set[TopicId] = set()
    unreadable = 0
    for found in states.values():
        try:
            ids.add(LeaderAndIsr.decode(found.data).topic_id)
        except MalformedNodeError:
            unreadable += 1
    return frozenset(ids), unreadable


def _new(topic_id: TopicId, node: TopicNode) -> Accepted | Refused:
    if missing := missing_numbers(node.partitions):
        return Refused(
            reason=f"it names partitions up to {max(node.partitions)} and misses {list(missing)}; number them from 0 "
            "without a gap, or delete the node"
        )
    accepted = replace(node, topic_id=topic_id, creating=frozenset(node.partitions))
    partitions = {
        number: Partition(replicas=replicas, creating=True, reassignment=node.reassigning.get(number))
        for number, replicas in node.partitions.items()
    }
    return Accepted(topic_id=topic_id, node=accepted, partitions=partitions, rewrite=True, make_guard=True)


def _known(
    topic_id: TopicId,
    node: TopicNode,
    states: Mapping[int, FoundNode],
    record: AcceptedAssignment | None,
    *,
    rewrite: bool,
    reign: ControllerEpoch,
) -> Accepted:
    partitions: dict[int, Partition] = {}
    began, recorded = dict(node.began), {} if record is None else record.began
    # Marks that a controller left behind when it died: a state that is lost later is no reason for a new epoch 0.
    created = set(states)
    for number in node.partitions if record is None else sorted(node.partitions.keys() | record.partitions.keys()):
        creating = number in node.creating
        # An edit may have taken it out: what a broker has of a former life is known by it (trace T10).
        first = max(began.get(number, FROM_ZERO), recorded.get(number, FROM_ZERO))
        judged = judge_state(topic_id, states.get(number), creating=creating, reign=reign, began=first)
        assigned = _assigned(number, node, record, judged)
        if assigned is None:
            continue
        replicas, move = assigned
        match judged:
            case HeldState() as held if held.state.removed:
                created.discard(number)
                # An addition by release 0.1.0, or by hand, does not say it.
                first = began[number] = beginning_after(held, first)
                partitions[number] = Partition(replicas=replicas, creating=True, tombstone=held, began=first)
            case HeldState() as held:
                partitions[number] = Partition(replicas=replicas, held=held, reassignment=move, began=first)
            case None:
                partitions[number] = Partition(replicas=replicas, creating=True, reassignment=move, began=first)
            case str(trouble):
                partitions[number] = Partition(replicas=replicas, trouble=trouble, reassignment=move, began=first)
    unmarked = replace(node, creating=node.creating - created, began=began)
    return Accepted(
        topic_id=topic_id,
        node=unmarked,
        partitions=partitions,
        rewrite=rewrite or unmarked != node,
        make_guard=False,
        edited=edits(node, partitions),
        recorded=record is not None and is_recorded(record, partitions),
    )


def _assigned(
    number: int, node: TopicNode, record: AcceptedAssignment | None, judged: HeldState | str | None
) -> tuple[tuple[BrokerId, ...], Reassignment | None] | None:
    """Replicas and reassignment of a partition by the table above; None: it is none of the topic's."""
    said, move = node.partitions.get(number, ()), node.reassigning.get(number)
    held = judged if isinstance(judged, HeldState) else None
    known = () if record is None else record.partitions.get(number, ())
    if record is None:
        members = _members(held)
        if members <= set(said):
            return said, move
        return tuple(id for id in (*said, *(_in_order(held, said))) if id in members), None
    if not known:
        added = number in node.creating or judged != STATE_MISSING
        return (said, move) if added else None
    if not said and judged == REMOVED:
        return None
    begun = record.reassigning.get(number)
    accepted = known, begun
    if (said, move) == accepted or not said:
        return accepted
    members = _members(held)
    # A move to brokers that the record lacks; or how the move that it has open ended, by a release that left it behind.
    moved = not members <= set(known)
    ended = begun is not None and move is None and said in (begun.target, begun.origin)
    return (said, move) if (moved or ended) and members <= set(said) else accepted


def _members(held: HeldState | None) -> frozenset[BrokerId]:
    """Who certainly has a part in a partition."""
    return frozenset() if held is None else frozenset((*held.state.isr, *held.state.elr))


def _in_order(held: HeldState | None, said: Collection[BrokerId]) -> Iterator[BrokerId]:
    """Members that a topic node does not name, the leader first."""
    if held is not None:
        for id in dict.fromkeys((held.state.leader, *held.state.isr, *held.state.elr)):
            if id not in said:
                yield id


def is_recorded(record: AcceptedAssignment, partitions: Mapping[int, Partition]) -> bool:
    """Whether a record says of a topic's partitions what the picture does."""
    return record.partitions.keys() == partitions.keys() and all(
        (record.partitions[number], record.reassigning.get(number), record.began.get(number, FROM_ZERO))
        == (one.replicas, one.reassignment, one.began)
        for number, one in partitions.items()
    )


def as_recorded(
    topic_id: TopicId,
    found: FoundNode,
    states: Mapping[int, FoundNode],
    record: AcceptedAssignment,
    *,
    reign: ControllerEpoch,
) -> Accepted | None:
    """A topic whose node says nothing of it, by what its guard records. None: it does, or a later release can read it.

    Marks of partitions that are being created are lost with the node: those that have no state yet are Offline until a
    person has put it right.
    """
    try:
        named = TopicNode.decode(found.data).topic_id
    except LaterVersionError:
        return None
    except MalformedNodeError as error:
        damage = str(error)
    else:
        # Only a slip of the pen: the states are this topic's.
        if named in {None, topic_id} or _witnesses(states) != (frozenset({topic_id}), 0):
            return None
        damage = other_id(named, topic_id)
    node = TopicNode(
        topic_id=topic_id, partitions=record.partitions, reassigning=record.reassigning, began=record.began
    )
    accepted = _known(topic_id, node, states, record, rewrite=False, reign=reign)
    return replace(accepted, rewrite=False, unreadable=damage)


def edits(node: TopicNode, partitions: Mapping[int, Partition]) -> str:
    """How a topic node differs from the partitions as they were accepted, for people; empty: it does not."""
    differing = [
        number
        for number, one in partitions.items()
        if (node.partitions.get(number), node.reassigning.get(number)) != (one.replicas, one.reassignment)
    ]
    added = [number for number in node.partitions if number not in partitions]
    numbers = sorted((*differing, *added))
    words = [_edit(number, node, partitions.get(number)) for number in numbers[:EDITS_NAMED]]
    if further := len(numbers) - len(words):
        words.append(f"and {further} more")
    return "; ".join(words)


def _edit(number: int, node: TopicNode, known: Partition | None) -> str:
    said, move = node.partitions.get(number), node.reassigning.get(number)
    if known is None:
        return f"partition {number}: {list(said or ())} in the node, and no controller added it"
    accepted = _assignment(known.replicas, known.reassignment)
    if said is None:
        return f"partition {number}: not in the node, accepted are {accepted}"
    return f"partition {number}: {_assignment(said, move)} in the node, accepted are {accepted}"


def _assignment(replicas: Collection[BrokerId], move: Reassignment | None) -> str:
    way = "" if move is None else f" on the way from {list(move.origin)} to {list(move.target)}"
    return f"{list(replicas)}{way}"
