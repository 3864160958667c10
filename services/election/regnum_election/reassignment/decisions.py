"""How a partition gets from some brokers to others: every decision about a reassignment. Pure.

Goals (seed 001 F, KIP-455)
    A partition moves while it is led, written and read; whatever dies meanwhile, no acknowledged record is lost, and
    whoever is controller next finds in the store all that it needs to go on. It may be called back, or sent elsewhere,
    until it has arrived.

Constraints (safety rules S3, S10, S13, S15)
    - The topic node says who is assigned; leaderAndISR says who is in sync. Whatever takes a broker out of the
      assignment changes both in one multi, or an ISR could name a broker that is not assigned.
    - A leader that has not heard of the new assignment would let an old replica join again. So whatever takes a broker
      out begins a leader epoch: the leader of the epoch before finds its writes refused, and steps down.
    - Until the switch min.insync.replicas is counted by the old replicas: it is never weaker than it was, and a
      partition that grows need not wait for replicas that it does not have yet.
    - It is complete when *all* target replicas are in sync (KAFKA-15665), intact, and nothing eligible is left behind.
    - Who goes leaves the ISR under a leader that stays, in a write that checks the registrations of all who stay; files
      are deleted only afterwards.

Algorithm
    A partition has replicas, and while it moves also an origin and a target. What is due follows from these alone:

    target not among the replicas       it waits for a place; then it *grows*: replicas = origin + target
    every target replica in sync        it *shrinks* to the target: the switch; the reassignment is over
    origin = target (cancelled)         it shrinks to the origin as soon as enough of it is in sync
    replicas of an earlier target       it shrinks to origin + target in the same way, and goes on

    To shrink: the members that stay lead on, or lead from now on (the present leader if it stays, else the first of
    those that stay), in the next leader epoch. If members go that count, those that stay must be as many as
    min.insync.replicas needs, and nobody eligible may go. Where nobody goes, the assignment is all that changes.

Example: [1, 2, 3] led by 1 goes to [3, 4, 5]: grown to [1, 2, 3, 4, 5]; 4 and 5 catch up, ISR [1, 2, 3, 4, 5]; switch:
replicas [3, 4, 5], ISR [3, 4, 5], leader 3, leader epoch + 1; 1 and 2 delete their files. Cancelled before that:
replicas [1, 2, 3], the ISR without 4 and 5. Cancelled while 2 and 3 are dead and the ISR is [1, 4]: 4 holds what 1
alone has besides, so it stays until 2 or 3 is back.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_LEADER, BrokerId, LeaderEpoch
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_model.reassignment import Reassignment

from regnum_election.decisions.cluster import Broker, Partition
from regnum_election.decisions.leadership import Surroundings
from regnum_election.decisions.placement import refused_by_name
from regnum_election.decisions.rejection import Rejection
from regnum_election.decisions.topic_nodes import is_restored

REPLICAS_MAX: Final = 32
"""Replicas that a reassignment may ask for: the registrations of all of them are checked in one multi."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """What the topic node is to say of a partition."""

    replicas: tuple[BrokerId, ...]
    """Its replicas."""
    reassignment: Reassignment | None
    """Its open reassignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grow:
    """New replicas are assigned beside the old ones."""

    assigned: Assigned
    """What the topic node is to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrink:
    """Replicas are dropped, or the reassignment is over without that."""

    assigned: Assigned
    """What the topic node is to say."""
    state: LeaderAndIsr | None
    """What leaderAndISR is to say in the same multi; None: it stays, at the version that was looked at."""
    leaving: tuple[BrokerId, ...]
    """Brokers whose replicas are deleted afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Nothing can be done at present."""

    reason: str
    """What it waits for, for people."""


Step = Grow | Shrink | Wait


def requested(  # noqa: PLR0911 - each answer has its own line
    partition: Partition,
    target: Sequence[BrokerId] | None,
    *,
    brokers: Mapping[BrokerId, Broker],
    now_ms: int,
    draining: Collection[BrokerId] = (),
    damaged: Collection[BrokerId] = (),
) -> Assigned | Rejection | None:
    """What the topic node is to say when somebody asks for a reassignment; None: what it says already.

    Args:
        partition: as it is.
        target: wanted replicas, the preferred leader first; None: call an open reassignment back.
        brokers: live brokers.
        now_ms: wall time, milliseconds since 1970.
        draining: brokers that are given no new replicas.
        damaged: brokers that have still to delete a replica of it that they cannot use.
    """
    move = partition.reassignment
    if target is None:
        if move is None:
            return Rejection(
                code=errors_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS,
                message="it is not being reassigned: the reassignment is complete, or there was none; describe the "
                "topic to see its replicas",
            )
        return _called_back(partition, move)
    wanted = tuple(target)
    refused = _refused(partition, wanted, brokers, draining) or _not_deleted_yet(partition, wanted, damaged)
    if refused is not None:
        return refused
    if is_restored(partition.trouble):
        # It moved there after the backup: assigned at once, the broker that has its newest log may lead it.
        origin = partition.replicas if move is None else move.origin
        grown = tuple(dict.fromkeys((*partition.replicas, *wanted)))
        return Assigned(replicas=grown, reassignment=Reassignment(origin=origin, target=wanted, since_ms=now_ms))
    if move is None:
        if wanted == partition.replicas:
            return None
        begun = Reassignment(origin=partition.replicas, target=wanted, since_ms=now_ms)
        return Assigned(replicas=partition.replicas, reassignment=begun)
    if wanted == move.target:
        return None
    if wanted == move.origin:
        return _called_back(partition, move)
    return Assigned(replicas=partition.replicas, reassignment=replace(move, target=wanted))


def _called_back(partition: Partition, move: Reassignment) -> Assigned | None:
    if set(partition.replicas) == set(move.origin):
        # It has not begun.
        return Assigned(replicas=move.origin, reassignment=None)
    return (
        None
        if move.cancelling
        else Assigned(replicas=partition.replicas, reassignment=replace(move, target=move.origin))
    )


def _refused(
    partition: Partition,
    wanted: tuple[BrokerId, ...],
    brokers: Mapping[BrokerId, Broker],
    draining: Collection[BrokerId],
) -> Rejection | None:
    if not is_restored(partition.trouble) and (partition.trouble is not None or partition.held is None):
        return Rejection(
            code=errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE,
            message=f"nobody can lead it at present ({partition.trouble or 'it is being created'}); reassign it when "
            "it is led again",
        )
    if not 1 <= len(wanted) <= REPLICAS_MAX:
        return _bad(f"give 1 to {REPLICAS_MAX} broker ids")
    if min(wanted) < 0:
        return _bad("give each broker once, by its id")
    # Back to where it comes from it may go: nothing new is placed by that.
    mine = partition.wanted_replicas if partition.reassignment is None else partition.reassignment.kept
    reason = refused_by_name(wanted, brokers, draining=draining, held=partition.replicas, kept=mine)
    return None if reason is None else _bad(reason)


def _not_deleted_yet(
    partition: Partition, wanted: tuple[BrokerId, ...], damaged: Collection[BrokerId]
) -> Rejection | None:
    """No broker deletes what a reassignment brings back to it, so the wish cannot wait for that in the topic node."""
    held = partition.held
    theirs = [id for id in wanted if id in damaged and id not in partition.wanted_replicas]
    # Where nobody leads nothing is deleted, and what a broker has may be the last there is.
    if not theirs or held is None or held.state.leader == NO_LEADER:
        return None
    return _bad(
        f"brokers {theirs} have still to delete replicas of it that cannot be used; ask again in some seconds, or "
        "start these brokers anew if it stays so"
    )


def _bad(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT, message=message)


def is_grown(partition: Partition) -> bool:
    """Whether every replica of the target is assigned: the partition has its place among those that move."""
    move = partition.reassignment
    return move is not None and set(move.target) <= set(partition.replicas)


def may_begin(partition: Partition, brokers: Mapping[BrokerId, Broker], refusing: Collection[BrokerId] = ()) -> bool:
    """Whether some new replica of a partition that waits for its place could be filled at present.

    ``refusing``: brokers that append no records.
    """
    move = partition.reassignment
    return move is not None and any(
        id in brokers and id not in refusing for id in move.target if id not in partition.replicas
    )


def next_step(  # noqa: PLR0911 - each step has its own line
    partition: Partition, surroundings: Surroundings, *, min_insync: int, may_grow: bool
) -> Step:
    """What is due for a partition with an open reassignment.

    Args:
        partition: as it is.
        surroundings: live brokers and the reign.
        min_insync: effective min.insync.replicas, by the old replicas.
        may_grow: whether there is a place for one more that moves.
    """
    move, held = partition.reassignment, partition.held
    if move is None:
        raise ValueError("the partition is not being reassigned")
    if held is None or partition.trouble is not None:
        return Wait(reason=partition.trouble or "it has no state yet")
    state = held.state
    if state.controller_epoch > surroundings.controller_epoch:
        return Wait(reason="a later controller wrote its state")
    if not is_grown(partition):
        # Replicas of an earlier target go first: what is given up makes room.
        trimmed = _trimmed(partition, move, state, surroundings, min_insync)
        if trimmed is not None:
            return trimmed
        if not may_begin(partition, surroundings.brokers):
            return Wait(reason=_what_lacks([id for id in move.target if id not in partition.replicas], surroundings))
        if not may_grow:
            return Wait(reason="others move at present; it begins when one of them has arrived")
        grown = tuple(dict.fromkeys((*partition.replicas, *move.target)))
        return Grow(assigned=Assigned(replicas=grown, reassignment=move))
    if move.cancelling:
        return _shrink(partition, move.origin, None, state, surroundings, needed=min_insync)
    missing = [id for id in move.target if id not in state.isr]
    if not missing:
        return _shrink(partition, move.target, None, state, surroundings, needed=len(move.target))
    trimmed = _trimmed(partition, move, state, surroundings, min_insync)
    return trimmed or Wait(reason=_what_lacks(missing, surroundings))


def _trimmed(
    partition: Partition, move: Reassignment, state: LeaderAndIsr, surroundings: Surroundings, min_insync: int
) -> Shrink | None:
    """Without the replicas of an earlier target; None: there are none, or they cannot go yet."""
    members = move.kept
    kept = tuple(id for id in partition.replicas if id in members)
    if len(kept) == len(partition.replicas):
        return None
    step = _shrink(partition, kept, move, state, surroundings, needed=min_insync)
    return step if isinstance(step, Shrink) else None


def _what_lacks(missing: Sequence[BrokerId], surroundings: Surroundings) -> str:
    dead = [id for id in missing if id not in surroundings.brokers]
    if dead:
        return f"brokers {dead} are not live; start them, or cancel it"
    broken = [id for id in missing if id in surroundings.offline]
    if broken:
        return f"brokers {broken} cannot use their replicas; mend their files or disks and start them again"
    return f"brokers {list(missing)} are not in sync yet"


def _shrink(  # noqa: PLR0911 - each reason to wait has its own line
    partition: Partition,
    kept: tuple[BrokerId, ...],
    reassignment: Reassignment | None,
    state: LeaderAndIsr,
    surroundings: Surroundings,
    *,
    needed: int,
) -> Shrink | Wait:
    """Drop every replica but some.

    Args:
        partition: as it is.
        kept: replicas that stay, the preferred leader first.
        reassignment: what is open afterwards.
        state: its leaderAndISR.
        surroundings: live brokers and the reign.
        needed: how many members of the ISR have to stay if one of them goes.
    """
    assigned = Assigned(replicas=kept, reassignment=reassignment)
    leaving = tuple(id for id in partition.replicas if id not in kept)
    if not leaving:
        return Shrink(assigned=assigned, state=None, leaving=())
    if any(id not in kept for id in state.elr):
        return Wait(reason=f"replicas {list(state.elr)} may have records that the ISR lacks")
    staying = tuple(id for id in state.isr if id in kept)
    goes = len(staying) < len(state.isr)
    if state.leader == NO_LEADER:
        if goes:
            return Wait(reason="it has no leader")
        # Nobody leads who could let one of those that go join again.
        return Shrink(assigned=assigned, state=None, leaving=leaving)
    if not all(surroundings.is_intact(id, state.members) for id in state.isr):
        return Wait(reason="a member of its ISR has failed")
    if goes and (not staying or len(staying) < needed):
        lacking = [id for id in kept if id not in staying]
        return Wait(reason=f"{len(staying)} of {needed} needed replicas that stay are in sync; {lacking} are not")
    if goes and state.elr:
        return Wait(reason=f"replicas {list(state.elr)} may have records that the ISR lacks")
    leader = state.leader if state.leader in staying else surroundings.first(kept, staying)
    if leader is None:
        return Wait(reason="none of the replicas that stay is in sync")
    return Shrink(assigned=assigned, state=_without(state, kept, staying, leader, surroundings), leaving=leaving)


def _without(
    state: LeaderAndIsr,
    kept: Sequence[BrokerId],
    staying: Collection[BrokerId],
    leader: BrokerId,
    surroundings: Surroundings,
) -> LeaderAndIsr:
    isr = tuple(id for id in kept if id in staying)
    members: dict[BrokerId, Membership] = {id: state.members[id] for id in (*isr, *state.elr)}
    return replace(
        state,
        leader=leader,
        leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        isr=isr,
        members=members,
        controller_epoch=surroundings.controller_epoch,
    )
