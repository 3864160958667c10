"""From one generation to the next: what every way into a rebalance and out of it shares. Pure.

Goals: a generation has one leader and one protocol that all its members offer; a generation never goes back, and is
told to nobody before it is on record; no member waits for ever.

Algorithm: a rebalance is prepared (held SyncGroups are answered REBALANCE_IN_PROGRESS; heartbeats are, from then on)
until every member has joined, or until the longest rebalance time-out of its members is over; those that have not
joined then are left behind, except static members, who keep their place until their session ends. Then the next
generation begins: number plus one, the old leader if it is there, the protocol most members put first among those that
all offer. Its members have the same time again to ask for their assignment.

Example: a, b and c are Stable in generation 5, rebalance time-out 60 s. d joins: a and b hear of it by their heartbeats
and join; c is dead. After 60 s generation 6 begins with a, b and d.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from immutables import Map

from regnum_broker.groups.decisions.state import (
    Answer,
    Effect,
    Group,
    GroupError,
    GroupState,
    Joined,
    JoinedMember,
    Member,
    Persist,
    Refusal,
    Reply,
    Step,
)

REBALANCING: Final = Refusal(
    error=GroupError.REBALANCE_IN_PROGRESS, message="the group rebalances: join again, with the same member id"
)


def unknown_member(member_id: str) -> Refusal:
    """The member is not, or no more, in the group."""
    return Refusal(
        error=GroupError.UNKNOWN_MEMBER_ID,
        message=f"member {member_id!r} is not in the group (any more): join again without a member id",
    )


def put(group: Group, member: Member) -> Group:
    """The group with that member as it is now."""
    present = group.members.get(member.member_id)
    joined = group.joined + member.joined - (present.joined if present is not None else False)
    instances = group.instances
    if member.instance_id and instances.get(member.instance_id) != member.member_id:
        instances = instances.set(member.instance_id, member.member_id)
    members = group.members.set(member.member_id, member)
    if present is not None and _brought_the_same(present, member):
        return replace(group, members=members, joined=joined, instances=instances)
    before = () if present is None else (present,)
    return replace(_weighed(group, gone=before, come=(member,)), members=members, joined=joined, instances=instances)


def _brought_the_same(one: Member, other: Member) -> bool:
    """Whether a change of the member is one of its state only."""
    return (
        one.protocols == other.protocols
        and one.client_id == other.client_id
        and one.client_host == other.client_host
        and len(one.assignment) == len(other.assignment)
    )


def _weighed(group: Group, *, gone: Iterable[Member] = (), come: Iterable[Member] = ()) -> Group:
    """What is counted over all members, after some have gone and some have come; costs what these are."""
    offered, brought, assigned = group.offered.mutate(), group.brought_bytes, group.assigned_bytes
    for member in gone:
        brought -= member.brought_bytes
        assigned -= len(member.assignment)
        for name, _ in member.protocols:
            if offered[name] > 1:
                offered[name] -= 1
            else:
                del offered[name]
    for member in come:
        brought += member.brought_bytes
        assigned += len(member.assignment)
        for name, _ in member.protocols:
            offered[name] = offered.get(name, 0) + 1
    return replace(group, offered=offered.finish(), brought_bytes=brought, assigned_bytes=assigned)


def with_members(group: Group, members: Iterable[Member]) -> Group:
    """A group that has no members yet with those."""
    present = tuple(members)
    return replace(
        _weighed(group, come=present),
        members=_by_id(present),
        instances=Map({one.instance_id: one.member_id for one in present if one.instance_id}),
    )


def without(group: Group, members: Iterable[Member]) -> Group:
    """The group without those members."""
    gone = tuple(members)
    if not gone:
        return group
    left, instances, joined = group.members.mutate(), group.instances, group.joined
    for member in gone:
        del left[member.member_id]
        joined -= member.joined
        if member.instance_id and instances.get(member.instance_id) == member.member_id:
            instances = instances.delete(member.instance_id)
    return replace(_weighed(group, gone=gone), members=left.finish(), instances=instances, joined=joined)


def dismissals(members: Iterable[Member]) -> list[Effect]:
    """Answers to the held calls of members that are removed."""
    return [Reply(member.call, unknown_member(member.member_id)) for member in members if member.call is not None]


def rebalance_timeout_s(group: Group) -> float:
    """How long a rebalance waits: as long as the slowest member wants."""
    return max((member.rebalance_timeout_s for member in group.members.values()), default=0.0)


def prepare(group: Group, *, now_s: float, initial_delay_s: float = 0.0) -> Step:
    """Ask all members to join again; nothing if they have been asked."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return Step(group, ())
    effects: list[Effect] = []
    members = group.members
    if group.state is GroupState.COMPLETING_REBALANCE:
        changed = members.mutate()
        for member in members.values():
            if member.call is not None and not member.joined:
                effects.append(Reply(member.call, REBALANCING))
                changed[member.member_id] = replace(member, call=None, deadline_s=now_s + member.session_timeout_s)
        members = changed.finish()
    initial = group.state is GroupState.EMPTY
    return Step(
        replace(
            group,
            state=GroupState.PREPARING_REBALANCE,
            members=members,
            began_s=now_s,
            settled_s=now_s + initial_delay_s if initial else now_s,
            rebalance_deadline_s=now_s + rebalance_timeout_s(group),
        ),
        tuple(effects),
    )


def complete(group: Group, *, now_s: float, now_ms: int) -> Step:
    """Begin the next generation if everybody has joined, or the time is over."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return Step(group, ())
    overdue = group.rebalance_deadline_s is not None and now_s >= group.rebalance_deadline_s
    if not overdue and (group.joined < len(group.members) or group.pending or now_s < group.settled_s):
        return Step(group, ())
    # Only static members keep a place that they do not claim: until their session is over.
    behind = [one for one in group.members.values() if not one.joined and not one.instance_id]
    effects = dismissals(behind)
    group = without(group, behind)
    if not group.members:
        emptied = replace(
            group,
            state=GroupState.EMPTY,
            generation=group.generation + 1,
            protocol="",
            leader="",
            rebalance_deadline_s=None,
            emptied_ms=now_ms,
        )
        return Step(emptied, (*effects, Persist()))
    if not group.joined:
        again = replace(group, rebalance_deadline_s=now_s + rebalance_timeout_s(group))
        return Step(again, tuple(effects))
    return _begin(group, effects, now_s=now_s)


def _begin(group: Group, effects: list[Effect], *, now_s: float) -> Step:
    """The next generation, of those that are in the group now."""
    present = group.members.get(group.leader)
    leader = group.leader
    if present is None or not present.joined:
        leader = min(one.member_id for one in group.members.values() if one.joined)
    protocol = chosen_protocol(group)
    calls = [(one, one.call) for one in group.members.values() if one.call is not None]
    begun = replace(
        group,
        state=GroupState.COMPLETING_REBALANCE,
        generation=group.generation + 1,
        protocol=protocol,
        leader=leader,
        joined=0,
        assigned_bytes=0,
        members=_by_id(
            replace(
                one,
                joined=False,
                synced=False,
                call=None,
                assignment=b"",
                # One that did not come keeps the end of its session.
                deadline_s=now_s + one.session_timeout_s if one.joined else one.deadline_s,
            )
            for one in group.members.values()
        ),
        rebalance_deadline_s=now_s + rebalance_timeout_s(group),
    )
    answers = [Reply(call, joined_answer(begun, one.member_id)) for one, call in calls]
    return Step(begun, (*effects, Persist(), *answers))


def _by_id(members: Iterable[Member]) -> Map[str, Member]:
    return Map({member.member_id: member for member in members})


def joined_answer(group: Group, member_id: str, *, skip_assignment: bool = False) -> Answer:
    """What a member of the present generation is told of it."""
    leads = member_id == group.leader
    return Joined(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        leader=group.leader,
        member_id=member_id,
        members=tuple(
            JoinedMember(one.member_id, one.instance_id, one.metadata_of(group.protocol))
            for one in group.members.values()
        )
        if leads
        else (),
        skip_assignment=leads and skip_assignment,
    )


def offered_by_all(group: Group, *, but: Member | None = None) -> set[str]:
    """Protocols that every member offers, or every other one."""
    own = set() if but is None else {name for name, _ in but.protocols}
    count = len(group.members) - (but is not None)
    return {name for name, offers in group.offered.items() if offers - (name in own) == count}


def chosen_protocol(group: Group) -> str:
    """The protocol that most members prefer among those that all offer; of several, the first by name."""
    candidates = offered_by_all(group)
    votes = Counter(
        next(name for name, _ in member.protocols if name in candidates)
        for member in group.members.values()
        if candidates
    )
    return min(votes, key=lambda name: (-votes[name], name), default="")
