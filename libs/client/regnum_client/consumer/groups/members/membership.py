"""A member of a group, from its first join until it leaves. Pure.

Goals: a partition is read by its owner only: what moves to another member has been given up by this one, and what was
lost is not read on; the application is told of both, before the member joins again; nothing is given up that stays.

Constraints: events come in any order, those about an earlier generation too. What is given up has to be committed
first, and records of it may be with the application, so giving up waits for it; whoever was thrown out has no time to.

Algorithm: ``after`` takes a member and an event to the member that it is then, ``action_of`` says what has to be going
on in each state: at most one thing. Assignors that are not cooperative have everything given up before a member joins
(Kafka's eager protocol). With cooperative ones (KIP-429) a member joins with what it has, gives up what its new
assignment leaves out, and joins again, so that others get that.

unjoined -> joining -> syncing -> (revoking ->) assigning -> stable -> (revoking ->) joining ...
Thrown out: revoking what was lost -> joining. The application away for too long: leaving -> revoking -> joining.
The end: revoking -> leaving -> ended.
"""

from dataclasses import replace

from regnum.types.v1 import errors_pb2

from regnum_client.consumer.groups.consumer_protocol import NO_GENERATION, Subscription
from regnum_client.consumer.groups.members.member import Failure, Member, Phase, Then
from regnum_client.consumer.groups.members.member_events import (
    NONE,
    Action,
    Closed,
    Event,
    GivenUp,
    GiveUp,
    Join,
    JoinAgain,
    Joined,
    Leave,
    Left,
    Partitions,
    PartitionsChanged,
    PollExpired,
    Refused,
    Subscribed,
    Sync,
    SyncAgain,
    Synced,
    TakenUp,
    TakeUp,
)


def action_of(member: Member) -> Action | None:
    """What has to be going on; None: nothing but heartbeats."""
    match member.phase:
        case Phase.JOINING:
            owned = member.owned if member.cooperative else NONE
            generation = member.generation if owned else NO_GENERATION
            subscription = Subscription(topics=member.topics, owned=owned, generation=generation)
            return Join(member_id=member.member_id, subscription=subscription)
        case Phase.SYNCING:
            return Sync(
                member_id=member.member_id,
                generation=member.generation,
                protocol=member.protocol,
                roll=member.roll,
            )
        case Phase.REVOKING:
            return GiveUp(partitions=member.giving_up, lost=member.lost)
        case Phase.ASSIGNING | Phase.STABLE if member.phase is Phase.ASSIGNING or member.assigned - member.owned:
            late = member.phase is Phase.STABLE
            return TakeUp(partitions=member.assigned - member.owned, generation=member.generation, late=late)
        case Phase.LEAVING:
            return Leave(member_id=member.member_id)
        case _:
            return None


def after(member: Member, event: Event) -> Member:
    """The member after an event; as it is where the event is of no concern any more."""
    if member.phase is Phase.ENDED:
        return member
    changed = member
    match event:
        case Subscribed(topics):
            changed = _wanting(member, topics)
        case PartitionsChanged():
            changed = _changed(member)
        case Refused():
            changed = _refused(member, event)
        case PollExpired():
            changed = _expired(member)
        case Closed():
            changed = _closing(member)
        case JoinAgain() | Joined() | SyncAgain() | Synced() | GivenUp() | TakenUp() | Left():
            changed = _advanced(member, event)
    return changed


def _advanced(member: Member, event: JoinAgain | Joined | SyncAgain | Synced | GivenUp | TakenUp | Left) -> Member:
    """What was going on has ended as it should."""
    advanced = member
    match event, member.phase:
        case JoinAgain(member_id), Phase.JOINING:
            advanced = replace(member, member_id=member_id)
        case Joined(), Phase.JOINING:
            advanced = replace(
                member,
                phase=Phase.SYNCING,
                member_id=event.member_id,
                generation=event.generation,
                protocol=event.protocol,
                roll=event.roll,
                again=False,
            )
        case Synced(partitions), Phase.SYNCING:
            advanced = _assigned(member, frozenset(one for one in partitions if one.topic in member.topics))
        case GivenUp(), Phase.REVOKING:
            advanced = _given_up(member)
        case TakenUp(missing), Phase.ASSIGNING | Phase.STABLE:
            stable = replace(member, phase=Phase.STABLE, owned=member.owned | (member.assigned - missing))
            advanced = _rejoining(stable) if stable.again else stable
        case Left(), Phase.LEAVING:
            gone = replace(member, member_id="", generation=NO_GENERATION)
            advanced = replace(gone, phase=Phase.REVOKING if member.lost else Phase.ENDED)
    return advanced


def _wanting(member: Member, topics: frozenset[str]) -> Member:
    if topics == member.topics:
        return member
    changed = replace(member, topics=topics)
    return replace(changed, phase=Phase.JOINING) if member.phase is Phase.UNJOINED else _changed(changed)


def _changed(member: Member) -> Member:
    """Another rebalance is due: now, or when the present one has ended."""
    if member.phase in {Phase.ASSIGNING, Phase.STABLE}:
        # Where partitions begin may take long to find out, and the group does not wait for that.
        return _rejoining(member)
    return replace(member, again=member.phase in {Phase.SYNCING, Phase.REVOKING} or member.again)


def _rejoining(member: Member) -> Member:
    if member.cooperative or not member.owned:
        return replace(member, phase=Phase.JOINING)
    return _revoking(member, member.owned, Then.JOIN)


def _revoking(member: Member, partitions: Partitions, then: Then) -> Member:
    return replace(member, phase=Phase.REVOKING, giving_up=partitions, lost=False, then=then)


def _assigned(member: Member, partitions: Partitions) -> Member:
    member = replace(member, assigned=partitions, roll=None)
    surplus = member.owned - partitions
    if surplus:
        # Others wait for it: they get it in the rebalance that this member begins when it has given it up.
        return _revoking(replace(member, again=True), surplus, Then.ASSIGN)
    return replace(member, phase=Phase.ASSIGNING)


def _given_up(member: Member) -> Member:
    left = replace(member, owned=member.owned - member.giving_up, giving_up=NONE, lost=False)
    match member.then:
        case Then.JOIN:
            return replace(left, phase=Phase.JOINING)
        case Then.ASSIGN:
            return replace(left, phase=Phase.ASSIGNING)
        case Then.LEAVE:
            return _leaving(left)
        case Then.END:
            return replace(left, phase=Phase.ENDED)


def _leaving(member: Member) -> Member:
    if member.static or not member.member_id:
        # The place of a static member is kept for it.
        return replace(member, phase=Phase.ENDED)
    return replace(member, phase=Phase.LEAVING)


def _refused(member: Member, event: Refused) -> Member:
    if event.code == errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID and event.member_id:
        # No id is given twice: also one that joins under it is not known.
        known = event.member_id != member.member_id or member.phase is Phase.LEAVING
        return member if known else _thrown_out(member, member_id="")
    if event.generation != member.generation or (event.aside and not member.beats):
        return member
    match event.code:
        case errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS:
            return replace(member, phase=Phase.JOINING) if member.phase is Phase.SYNCING else _changed(member)
        case errors_pb2.ERROR_CODE_ILLEGAL_GENERATION:
            return _thrown_out(member, member_id=member.member_id)
        case errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID:
            return _thrown_out(member, member_id="")
        case _:
            failed = replace(member, failure=Failure(code=event.code, message=event.message))
            return _thrown_out(failed, member_id="", ends=True)


def _thrown_out(member: Member, *, member_id: str, ends: bool = False) -> Member:
    """What it had is somebody else's by now; ``ends``: and it is no member any more."""
    lost = replace(
        member,
        phase=Phase.REVOKING,
        member_id=member_id,
        generation=NO_GENERATION,
        assigned=NONE,
        giving_up=member.owned,
        lost=True,
        then=Then.END if ends or member.closes else Then.JOIN,
        again=False,
        roll=None,
    )
    # Without anything to lose there is nobody to tell.
    return lost if member.owned else _given_up(lost)


def _expired(member: Member) -> Member:
    if member.closes or member.phase in {Phase.UNJOINED, Phase.LEAVING}:
        return member
    if member.phase is Phase.REVOKING and member.lost:
        return member
    lost = replace(
        member,
        generation=NO_GENERATION,
        assigned=NONE,
        giving_up=member.owned,
        lost=True,
        then=Then.JOIN,
        again=False,
        roll=None,
    )
    if member.static or not member.member_id:
        return replace(lost, phase=Phase.REVOKING)
    return replace(lost, phase=Phase.LEAVING)


def _closing(member: Member) -> Member:
    if member.phase is Phase.UNJOINED:
        return replace(member, phase=Phase.ENDED)
    if member.lost:
        return replace(member, then=Then.END)
    return _revoking(member, member.owned, Then.LEAVE)
