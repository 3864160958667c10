"""JoinGroup. Pure.

Goals: whoever is let in has an id that it knows (KIP-394), so that a lost answer leaves no ghost behind; a static
member that restarts takes its own place, and whoever holds that place is fenced (KIP-345); a member of a stable group
that asks again with what it asked before disturbs nobody.

Cooperative assignment (KIP-429) needs nothing more: what a member owns stands in its subscription, which the leader is
given, and a member that has given partitions up joins again. The coordinator must only answer a leader's JoinGroup in a
stable group with a rebalance, whether or not its subscription changed: that is how the second round begins.
"""

from dataclasses import replace

from regnum_broker.groups.decisions.rebalance import (
    REBALANCING,
    complete,
    joined_answer,
    offered_by_all,
    prepare,
    put,
    unknown_member,
    without,
)
from regnum_broker.groups.decisions.state import (
    Again,
    Effect,
    Group,
    GroupError,
    GroupLimits,
    GroupState,
    JoinRequest,
    Member,
    Persist,
    Refusal,
    Reply,
    Step,
)


def join(group: Group, request: JoinRequest, *, call: int, now_s: float, now_ms: int, limits: GroupLimits) -> Step:
    """Take a JoinGroup up; it is answered now or when the rebalance is done."""
    refused = _refusal(group, request, limits)
    if refused is not None:
        return Step(group, (Reply(call, refused),))
    step = _join(group, request, call=call, now_s=now_s, limits=limits)
    return _then_complete(step, now_s=now_s, now_ms=now_ms)


def _then_complete(step: Step, *, now_s: float, now_ms: int) -> Step:
    group, effects = complete(step.group, now_s=now_s, now_ms=now_ms)
    return Step(group, (*step.effects, *effects))


def _join(group: Group, request: JoinRequest, *, call: int, now_s: float, limits: GroupLimits) -> Step:
    holder = group.members.get(group.instances.get(request.instance_id, "")) if request.instance_id else None
    if holder is not None and not request.member_id:
        return _replace_static(group, holder, request, call=call, now_s=now_s)
    if not request.member_id and not request.instance_id:
        until_s = now_s + min(request.session_timeout_s, limits.pending_s_max)
        pending = group.pending.set(request.new_member_id, until_s)
        return Step(replace(group, pending=pending), (Reply(call, Again(request.new_member_id)),))
    if not request.member_id or request.member_id in group.pending:
        member_id = request.member_id or request.new_member_id
        return _admit(group, request, member_id, call=call, now_s=now_s, limits=limits)
    member = group.members[request.member_id]
    unchanged = member.protocols == request.protocols
    if unchanged and (
        group.state is GroupState.COMPLETING_REBALANCE
        or (group.state is GroupState.STABLE and member.member_id != group.leader)
    ):
        # A repeat, whose first answer was lost.
        heard = replace(member, call=None, deadline_s=now_s + member.session_timeout_s)
        displaced = _displaced(member)
        return Step(put(group, heard), (*displaced, Reply(call, joined_answer(group, member.member_id))))
    return _rejoin(group, member, request, call=call, now_s=now_s)


def _displaced(member: Member) -> tuple[Effect, ...]:
    """The answer to a held call that a later one of the same member takes the place of."""
    return () if member.call is None else (Reply(member.call, REBALANCING),)


def _admit(group: Group, request: JoinRequest, member_id: str, *, call: int, now_s: float, limits: GroupLimits) -> Step:
    member = Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_s=request.session_timeout_s,
        rebalance_timeout_s=request.rebalance_timeout_s,
        protocols=request.protocols,
        joined=True,
        call=call,
        deadline_s=now_s + request.session_timeout_s,
    )
    pending = group.pending.delete(member_id) if member_id in group.pending else group.pending
    group = put(replace(group, pending=pending, protocol_type=request.protocol_type), member)
    if group.state is GroupState.PREPARING_REBALANCE and group.settled_s > group.began_s:
        # The first rebalance of an empty group waits for more as long as more come, within what they bear.
        latest_s = group.began_s + member.rebalance_timeout_s
        return Step(replace(group, settled_s=min(now_s + limits.initial_rebalance_delay_s, latest_s)), ())
    return prepare(group, now_s=now_s, initial_delay_s=limits.initial_rebalance_delay_s)


def _rejoin(group: Group, member: Member, request: JoinRequest, *, call: int, now_s: float) -> Step:
    displaced = _displaced(member)
    again = replace(
        member,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_s=request.session_timeout_s,
        rebalance_timeout_s=request.rebalance_timeout_s,
        protocols=request.protocols,
        joined=True,
        call=call,
        deadline_s=now_s + request.session_timeout_s,
    )
    group, effects = prepare(put(group, again), now_s=now_s)
    return Step(group, (*displaced, *effects))


def _replace_static(group: Group, holder: Member, request: JoinRequest, *, call: int, now_s: float) -> Step:
    """A static member came back under its name: it gets a new id and its place, and the old id is fenced."""
    effects: list[Effect] = []
    if holder.call is not None:
        effects.append(Reply(holder.call, fenced(holder.instance_id)))
    again = replace(
        holder,
        member_id=request.new_member_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_s=request.session_timeout_s,
        rebalance_timeout_s=request.rebalance_timeout_s,
        protocols=request.protocols,
        call=None,
        deadline_s=now_s + request.session_timeout_s,
    )
    leads = group.leader == holder.member_id
    group = replace(without(group, [holder]), leader=again.member_id if leads else group.leader)
    if group.state is GroupState.STABLE and holder.protocols == request.protocols:
        # Nobody waits for it: its assignment stands, and its session runs. Only a generation's first members have to
        # ask for theirs before a deadline, which may be very near by now.
        group = put(group, replace(again, synced=True))
        answer = joined_answer(group, again.member_id, skip_assignment=True)
        return Step(group, (*effects, Persist(), Reply(call, answer)))
    group, more = prepare(put(group, replace(again, joined=True, call=call)), now_s=now_s)
    return Step(group, (*effects, *more))


def fenced(instance_id: str) -> Refusal:
    """Another process took the place of this static member."""
    return Refusal(
        error=GroupError.FENCED_INSTANCE_ID,
        message=f"another member has the instance id {instance_id!r}: give each process its own",
    )


def _refusal(group: Group, request: JoinRequest, limits: GroupLimits) -> Refusal | None:
    return _wrong_request(request, limits) or _wrong_member(group, request) or _no_room(group, request, limits)


def _wrong_request(request: JoinRequest, limits: GroupLimits) -> Refusal | None:
    least, most = limits.session_timeout_s_min, limits.session_timeout_s_max
    if not least <= request.session_timeout_s <= most:
        return Refusal(
            error=GroupError.INVALID_SESSION_TIMEOUT,
            message=f"the session time-out is {request.session_timeout_s:g} s; give one from {least:g} to {most:g} s",
        )
    if not 0 < request.rebalance_timeout_s <= limits.rebalance_timeout_s_max:
        return Refusal(
            error=GroupError.INVALID_REQUEST,
            message=f"the rebalance time-out is {request.rebalance_timeout_s:g} s; give a positive one of at most"
            f" {limits.rebalance_timeout_s_max:g} s",
        )
    return _wrong_protocols(request, limits)


def _wrong_protocols(request: JoinRequest, limits: GroupLimits) -> Refusal | None:
    if not request.protocol_type or not request.protocols or not all(name for name, _ in request.protocols):
        return Refusal(
            error=GroupError.INCONSISTENT_GROUP_PROTOCOL,
            message="a member offers a protocol type and at least one assignment protocol, each with a name",
        )
    if len({name for name, _ in request.protocols}) < len(request.protocols):
        return Refusal(error=GroupError.INVALID_REQUEST, message="an assignment protocol is offered twice")
    names = (request.protocol_type, *(name for name, _ in request.protocols[: limits.protocols_max]))
    if max(len(name.encode()) for name in names) > limits.name_bytes_max:
        return Refusal(
            error=GroupError.INVALID_REQUEST,
            message=f"a protocol type, and the name of a protocol, has at most {limits.name_bytes_max} bytes",
        )
    if len(request.protocols) > limits.protocols_max:
        return Refusal(
            error=GroupError.INVALID_REQUEST,
            message=f"{len(request.protocols)} assignment protocols; offer at most {limits.protocols_max}",
        )
    return None


def _wrong_member(group: Group, request: JoinRequest) -> Refusal | None:
    if request.member_id:
        member = group.members.get(request.member_id)
        if request.instance_id:
            held = group.instances.get(request.instance_id)
            if held is not None and held != request.member_id:
                return fenced(request.instance_id)
        if request.member_id not in group.pending and (member is None or member.instance_id != request.instance_id):
            return unknown_member(request.member_id)
        if request.member_id in group.pending and request.instance_id:
            return unknown_member(request.member_id)
    own = own_place(group, request)
    others = len(group.members) - (own is not None)
    if not others:
        return None
    # A repeat of what it is in the group with already cannot contradict the others.
    own_names = set() if own is None else {name for name, _ in own.protocols}
    agrees = any(group.offered.get(name, 0) - (name in own_names) == others for name, _ in request.protocols)
    if group.protocol_type != request.protocol_type or not agrees:
        return Refusal(
            error=GroupError.INCONSISTENT_GROUP_PROTOCOL,
            message=f"the group's members are of type {group.protocol_type!r} and all offer"
            f" {sorted(offered_by_all(group, but=own))}: give all members the same assignors",
        )
    return None


def own_place(group: Group, request: JoinRequest) -> Member | None:
    """The place that the caller has in the group, or takes over."""
    id = group.instances.get(request.instance_id, "") if request.instance_id else request.member_id
    return group.members.get(id)


def _no_room(group: Group, request: JoinRequest, limits: GroupLimits) -> Refusal | None:
    own = own_place(group, request)
    is_new = own is None and request.member_id not in group.pending
    if is_new and len(group.members) + len(group.pending) >= limits.members_max:
        return Refusal(
            error=GroupError.GROUP_MAX_SIZE_REACHED,
            message=f"the group has {limits.members_max} members, as many as one may have; those are counted that were"
            " only given an id",
        )
    size, most = request.brought_bytes, limits.new_member_bytes_max if own is None else limits.member_bytes_max
    if size > most:
        return Refusal(
            error=GroupError.INVALID_REQUEST,
            message=f"names and subscriptions have {size} bytes; {_who(own)} may bring {most}",
        )
    size += group.brought_bytes - (0 if own is None else own.brought_bytes)
    most = limits.new_group_bytes_max if own is None else limits.group_bytes_max
    if size > most:
        return Refusal(
            error=GroupError.GROUP_MAX_SIZE_REACHED,
            message=f"names and subscriptions of the members would have {size} bytes; with {_who(own)} a group may have"
            f" {most}: subscribe to fewer topics, or by fewer members",
        )
    return None


def _who(own: Member | None) -> str:
    return "a new member" if own is None else "a member"
