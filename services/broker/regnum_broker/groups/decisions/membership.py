"""SyncGroup, Heartbeat, LeaveGroup, and what happens when somebody is not heard of. Pure.

Goals: an assignment goes to members of its generation only; a dead member is noticed by its silence, a living one that
waits for an answer is not taken for dead; whoever speaks for a generation that is over hears so.
"""

from collections.abc import Sequence
from dataclasses import replace

from immutables import Map

from regnum_broker.groups.decisions.joining import fenced
from regnum_broker.groups.decisions.rebalance import (
    REBALANCING,
    complete,
    dismissals,
    prepare,
    put,
    rebalance_timeout_s,
    unknown_member,
    without,
)
from regnum_broker.groups.decisions.state import (
    Again,
    Done,
    Effect,
    Group,
    GroupError,
    GroupLimits,
    GroupState,
    Identity,
    Left,
    Member,
    Persist,
    Refusal,
    Reply,
    Step,
    Synced,
    SyncRequest,
)


def spoken_for(group: Group, identity: Identity) -> Member | Refusal:
    """The member that a call speaks for, in the present generation; else why it may not."""
    if identity.instance_id:
        held = group.instances.get(identity.instance_id)
        if held is None:
            return unknown_member(identity.member_id)
        if held != identity.member_id:
            return fenced(identity.instance_id)
    member = group.members.get(identity.member_id)
    if member is None:
        return unknown_member(identity.member_id)
    if identity.generation != group.generation:
        return Refusal(
            error=GroupError.ILLEGAL_GENERATION,
            message=f"generation {identity.generation} is not the present one, {group.generation}: join again",
        )
    return member


def sync(group: Group, request: SyncRequest, *, call: int, now_s: float, limits: GroupLimits) -> Step:
    """Take a SyncGroup up; it is answered now or when the leader has assigned."""
    member = spoken_for(group, request.identity)
    refused = member if isinstance(member, Refusal) else _wrong_sync(group, request, limits)
    if refused is not None or isinstance(member, Refusal):
        return Step(group, (Reply(call, refused or REBALANCING),))
    displaced: tuple[Effect, ...] = () if member.call is None else (Reply(member.call, REBALANCING),)
    heard = replace(member, synced=True, call=None, deadline_s=now_s + member.session_timeout_s)
    if group.state is GroupState.STABLE:
        return Step(put(group, heard), (*displaced, Reply(call, _synced(group, heard))))
    group = put(group, replace(heard, call=call))
    if member.member_id != group.leader:
        return Step(group, displaced)
    assigned, answers = _assign(group, dict(request.assignments), now_s=now_s)
    return Step(assigned, (*displaced, Persist(), *answers))


def _assign(group: Group, assignments: dict[str, bytes], *, now_s: float) -> Step:
    members: dict[str, Member] = {}
    answers: list[Effect] = []
    for one in group.members.values():
        member = replace(one, assignment=assignments.get(one.member_id, b""))
        if one.call is not None:
            answers.append(Reply(one.call, _synced(group, member)))
            member = replace(member, call=None, deadline_s=now_s + one.session_timeout_s)
        members[one.member_id] = member
    assigned = sum(len(member.assignment) for member in members.values())
    stable = replace(group, state=GroupState.STABLE, members=Map(members), assigned_bytes=assigned)
    return Step(stable, tuple(answers))


def _synced(group: Group, member: Member) -> Synced:
    return Synced(protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment)


def _wrong_sync(group: Group, request: SyncRequest, limits: GroupLimits) -> Refusal | None:
    if group.state is GroupState.PREPARING_REBALANCE:
        return REBALANCING
    if (request.protocol_type and request.protocol_type != group.protocol_type) or (
        request.protocol and request.protocol != group.protocol
    ):
        return Refusal(
            error=GroupError.INCONSISTENT_GROUP_PROTOCOL,
            message=f"the generation's protocol is {group.protocol!r} of type {group.protocol_type!r}: join again",
        )
    if len({member_id for member_id, _ in request.assignments}) < len(request.assignments):
        return Refusal(error=GroupError.INVALID_REQUEST, message="a member is assigned to twice")
    largest = max((len(assignment) for _, assignment in request.assignments), default=0)
    if largest > limits.assignment_bytes_max:
        return Refusal(
            error=GroupError.INVALID_REQUEST,
            message=f"an assignment has {largest} bytes; it may have {limits.assignment_bytes_max}",
        )
    total = sum(len(assignment) for _, assignment in request.assignments)
    if total > limits.assigned_bytes_max:
        return Refusal(
            error=GroupError.INVALID_REQUEST,
            message=f"the assignments have {total} bytes; those of a group may have {limits.assigned_bytes_max}",
        )
    return None


def heartbeat(group: Group, identity: Identity, *, call: int, now_s: float) -> Step:
    """A member says that it lives, and hears whether it has to join again."""
    member = spoken_for(group, identity)
    if isinstance(member, Refusal):
        return Step(group, (Reply(call, member),))
    answer = REBALANCING if group.state is GroupState.PREPARING_REBALANCE else Done()
    return Step(heard(group, member, now_s=now_s), (Reply(call, answer),))


def heard(group: Group, member: Member, *, now_s: float) -> Group:
    """The member was heard of."""
    return put(group, replace(member, deadline_s=now_s + member.session_timeout_s))


def leave(group: Group, members: Sequence[Identity], *, call: int, now_s: float, now_ms: int) -> Step:
    """Members leave; a static one may be named by its instance id alone."""
    outcomes: list[Refusal | None] = []
    leaving: dict[str, Member] = {}
    pending = group.pending
    for identity in members:
        held = group.instances.get(identity.instance_id) if identity.instance_id else identity.member_id
        if identity.instance_id and held is not None and identity.member_id and held != identity.member_id:
            outcomes.append(fenced(identity.instance_id))
            continue
        member = group.members.get(held or "")
        if member is not None:
            leaving[member.member_id] = member
            outcomes.append(None)
        elif held and held in pending:
            pending = pending.delete(held)
            outcomes.append(None)
        else:
            outcomes.append(unknown_member(identity.member_id))
    group, effects = _removed(replace(group, pending=pending), list(leaving.values()), now_s=now_s, now_ms=now_ms)
    return Step(group, (*effects, Reply(call, Left(tuple(outcomes)))))


def _removed(group: Group, members: Sequence[Member], *, now_s: float, now_ms: int) -> Step:
    effects = dismissals(members)
    group = without(group, members)
    if members:
        group, more = prepare(group, now_s=now_s)
        effects.extend(more)
    # Without a change the rebalance may still have waited for a pending member that is gone.
    group, more = complete(group, now_s=now_s, now_ms=now_ms)
    return Step(group, (*effects, *more))


def give_up(group: Group, member_id: str, call: int, *, now_s: float) -> Step:
    """The caller of a held call has no more time: it is told to ask again, and its session begins to run."""
    member = group.members.get(member_id)
    if member is None or member.call != call:
        return Step(group, ())
    return Step(
        put(group, replace(member, call=None, deadline_s=now_s + member.session_timeout_s)),
        (Reply(call, Again(member_id)),),
    )


def resumed(group: Group, *, now_s: float) -> Group:
    """A group with which a coordinator begins: every member's session begins anew, and so does what it waits for."""
    members = Map({id: replace(one, deadline_s=now_s + one.session_timeout_s) for id, one in group.members.items()})
    group = replace(group, members=members)
    if group.state is not GroupState.COMPLETING_REBALANCE:
        return group
    # The generation had begun when the coordinator changed: its members may still ask for their assignment.
    return replace(group, rebalance_deadline_s=now_s + rebalance_timeout_s(group))


def next_deadline_s(group: Group) -> float | None:
    """When ``expire`` has something to do at the earliest; None: never, as things are."""
    times = [member.deadline_s for member in group.members.values() if member.call is None]
    times.extend(group.pending.values())
    if group.rebalance_deadline_s is not None:
        times.append(group.rebalance_deadline_s)
    if group.state is GroupState.PREPARING_REBALANCE and group.settled_s > group.began_s:
        times.append(group.settled_s)
    return min(times, default=None)


def soonest_s(group: Group, *, now_s: float, session_s_min: float) -> float | None:
    """Until when a change of the group at ``now_s`` can give ``expire`` nothing new to do; None: never.

    Costs nothing for members: a session that began with the change ends no earlier than the shortest one would.
    """
    times: list[float] = []
    if group.members or group.pending:
        times.append(now_s + session_s_min)
    if group.rebalance_deadline_s is not None:
        times.append(group.rebalance_deadline_s)
    if group.state is GroupState.PREPARING_REBALANCE and group.settled_s > group.began_s:
        times.append(group.settled_s)
    return min(times, default=None)


def expire(group: Group, *, now_s: float, now_ms: int) -> Step:
    """Remove who has been silent for too long, and end waits that are over."""
    if any(deadline_s <= now_s for deadline_s in group.pending.values()):
        pending = Map({id: deadline_s for id, deadline_s in group.pending.items() if deadline_s > now_s})
        group = replace(group, pending=pending)
    if group.began_s < group.settled_s <= now_s:
        # Nobody is waited for any more who may yet come; it may still be for those that were given an id.
        group = replace(group, settled_s=group.began_s)
    gone = [one for one in group.members.values() if one.call is None and one.deadline_s <= now_s]
    waited_for = group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
    if waited_for and group.rebalance_deadline_s is not None and group.rebalance_deadline_s <= now_s:
        named = {one.member_id for one in gone}
        gone.extend(one for one in group.members.values() if not one.synced and one.member_id not in named)
        group = replace(group, rebalance_deadline_s=None)
    return _removed(group, gone, now_s=now_s, now_ms=now_ms)
