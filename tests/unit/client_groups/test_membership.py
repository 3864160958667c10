"""A member's life, event by event: what it has to do, what is read, and what never happens."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum.types.v1 import errors_pb2
from regnum_client.consumer.groups.consumer_protocol import NO_GENERATION
from regnum_client.consumer.groups.members.member import Member, Phase
from regnum_client.consumer.groups.members.member_events import (
    Closed,
    Event,
    GivenUp,
    GiveUp,
    Join,
    JoinAgain,
    Joined,
    Leave,
    Left,
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
from regnum_client.consumer.groups.members.membership import action_of, after
from regnum_client.records import TopicPartition

P = [TopicPartition("t", number) for number in range(4)]
REBALANCE = errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS
ILLEGAL = errors_pb2.ERROR_CODE_ILLEGAL_GENERATION
UNKNOWN = errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID
FENCED = errors_pb2.ERROR_CODE_FENCED_INSTANCE_ID


def lived(member: Member, *events: Event) -> Member:
    for event in events:
        member = after(member, event)
    return member


def joined(generation: int, *, leads: bool = False) -> Joined:
    roll = (("me", "", b""),) if leads else None
    return Joined(member_id="me", generation=generation, protocol="range", roll=roll)


def beat(code: int, generation: int) -> Refused:
    return Refused(code=code, message="said the test", generation=generation, aside=True)


def stable(*partitions: TopicPartition, cooperative: bool = True, static: bool = False) -> Member:
    return lived(
        Member(cooperative=cooperative, static=static),
        Subscribed(frozenset("t")),
        JoinAgain("me"),
        joined(1),
        Synced(frozenset(partitions)),
        TakenUp(),
    )


def test_a_first_join_gets_an_id_then_a_generation_then_partitions() -> None:
    member = lived(Member(cooperative=True), Subscribed(frozenset("t")))
    action = action_of(member)
    assert isinstance(action, Join)
    assert action.member_id == ""
    member = lived(member, JoinAgain("me"))
    action = action_of(member)
    assert isinstance(action, Join)
    assert action.member_id == "me"
    member = lived(member, joined(1, leads=True))
    assert action_of(member) == Sync(member_id="me", generation=1, protocol="range", roll=(("me", "", b""),))
    member = lived(member, SyncAgain(), Synced(frozenset(P[:2])))
    assert action_of(member) == TakeUp(partitions=frozenset(P[:2]), generation=1)
    assert member.owned == frozenset()
    member = lived(member, TakenUp())
    assert (member.phase, member.owned, action_of(member)) == (Phase.STABLE, frozenset(P[:2]), None)


def test_an_eager_member_gives_everything_up_before_it_joins() -> None:
    member = lived(stable(*P[:2], cooperative=False), beat(REBALANCE, 1))
    assert action_of(member) == GiveUp(partitions=frozenset(P[:2]), lost=False)
    assert member.beats
    member = lived(member, GivenUp())
    action = action_of(member)
    assert isinstance(action, Join)
    assert (action.member_id, action.subscription.owned, member.owned) == ("me", frozenset(), frozenset())


def test_a_cooperative_member_joins_with_what_it_has_and_gives_up_what_moves() -> None:
    member = lived(stable(*P[:3]), beat(REBALANCE, 1))
    action = action_of(member)
    assert isinstance(action, Join)
    assert (action.subscription.owned, action.subscription.generation) == (frozenset(P[:3]), 1)
    assert member.readable == frozenset(P[:3])
    member = lived(member, joined(2), Synced(frozenset({P[0], P[3]})))
    assert action_of(member) == GiveUp(partitions=frozenset(P[1:3]), lost=False)
    member = lived(member, GivenUp())
    assert action_of(member) == TakeUp(partitions=frozenset({P[3]}), generation=2)
    member = lived(member, TakenUp())
    action = action_of(member)
    assert isinstance(action, Join), "others wait for what it gave up"
    assert action.subscription.owned == {P[0], P[3]}
    assert lived(member, joined(3), Synced(frozenset({P[0], P[3]})), TakenUp()).phase is Phase.STABLE


@pytest.mark.parametrize(("code", "kept"), [(ILLEGAL, "me"), (UNKNOWN, "")])
def test_what_a_member_that_was_thrown_out_had_is_read_no_more_and_told_before_it_joins(code: int, kept: str) -> None:
    member = lived(stable(*P[:2]), beat(code, 1))
    assert member.readable == frozenset()
    assert action_of(member) == GiveUp(partitions=frozenset(P[:2]), lost=True)
    assert not member.beats
    member = lived(member, GivenUp())
    action = action_of(member)
    assert isinstance(action, Join)
    assert (action.member_id, action.subscription.owned) == (kept, frozenset())
    assert action.subscription.generation == NO_GENERATION


def test_a_member_that_is_thrown_out_while_it_gives_up_has_lost_everything() -> None:
    member = lived(stable(*P[:3]), beat(REBALANCE, 1), joined(2), Synced(frozenset({P[0]})), beat(UNKNOWN, 2))
    assert action_of(member) == GiveUp(partitions=frozenset(P[:3]), lost=True)
    assert lived(member, GivenUp()).phase is Phase.JOINING


def test_refusals_of_another_generation_and_of_what_was_said_beside_a_join_are_not_meant() -> None:
    member = stable(P[0])
    assert lived(member, beat(UNKNOWN, 0)) == member
    joining = lived(member, beat(REBALANCE, 1))
    assert lived(joining, beat(ILLEGAL, 1)) == joining, "the coordinator may be in the next generation already"
    assert lived(joining, Refused(code=UNKNOWN, message="", generation=1)).lost


def test_a_fenced_member_ends_and_says_why() -> None:
    member = lived(stable(*P[:2], static=True), beat(FENCED, 1))
    assert member.readable == frozenset()
    member = lived(member, GivenUp())
    assert (member.phase, action_of(member)) == (Phase.ENDED, None)
    assert member.failure is not None
    assert member.failure.code == FENCED


def test_an_application_that_is_away_leaves_at_once_and_joins_when_it_is_back() -> None:
    member = lived(stable(*P[:2]), PollExpired())
    assert (action_of(member), member.readable) == (Leave(member_id="me"), frozenset())
    member = lived(member, Left())
    assert action_of(member) == GiveUp(partitions=frozenset(P[:2]), lost=True)
    member = lived(member, GivenUp())
    action = action_of(member)
    assert isinstance(action, Join)
    assert action.member_id == ""


def test_one_without_partitions_that_is_away_waits_for_its_application_too() -> None:
    member = lived(stable(), PollExpired(), Left())
    assert action_of(member) == GiveUp(partitions=frozenset(), lost=True)


def test_the_end_gives_up_and_leaves_and_a_static_member_does_not_leave() -> None:
    member = lived(stable(P[0]), Closed())
    assert action_of(member) == GiveUp(partitions=frozenset({P[0]}), lost=False)
    member = lived(member, GivenUp())
    assert action_of(member) == Leave(member_id="me")
    assert lived(member, Left()).phase is Phase.ENDED
    assert lived(stable(P[0], static=True), Closed(), GivenUp()).phase is Phase.ENDED


def test_a_change_of_topics_or_partitions_is_another_rebalance_also_in_the_middle_of_one() -> None:
    assert lived(stable(P[0]), PartitionsChanged()).phase is Phase.JOINING
    syncing = lived(stable(P[0]), beat(REBALANCE, 1), joined(2))
    for change in (PartitionsChanged(), Subscribed(frozenset("tu"))):
        member = lived(syncing, change, Synced(frozenset({P[0]})), TakenUp())
        assert member.phase is Phase.JOINING
        assert lived(member, joined(3), Synced(frozenset({P[0]})), TakenUp()).phase is Phase.STABLE


def test_partitions_of_topics_that_it_does_not_want_are_not_taken() -> None:
    member = lived(Member(cooperative=True), Subscribed(frozenset("t")), joined(1))
    assert lived(member, Synced(frozenset({P[0], TopicPartition("other", 0)}))).assigned == {P[0]}


def test_a_rebalance_while_it_syncs_lets_it_join_again_with_what_it_has() -> None:
    syncing = lived(stable(P[0]), beat(REBALANCE, 1), joined(2))
    member = lived(syncing, Refused(code=REBALANCE, message="", generation=2))
    action = action_of(member)
    assert isinstance(action, Join)
    assert (action.member_id, action.subscription.owned) == ("me", frozenset({P[0]}))


GENERATIONS = st.integers(0, 4)
PARTITIONS = st.frozensets(st.sampled_from(P))
EVENTS = st.one_of(
    st.builds(Subscribed, st.sampled_from([frozenset("t"), frozenset("tu")])),
    st.just(PartitionsChanged()),
    st.builds(
        Refused,
        code=st.sampled_from([REBALANCE, ILLEGAL, UNKNOWN, FENCED]),
        message=st.just(""),
        generation=st.integers(-1, 4),
        aside=st.booleans(),
        member_id=st.sampled_from(["", "me", "former"]),
    ),
    st.just(PollExpired()),
    st.just(Closed()),
)


def ended(member: Member, draw: st.DataObject) -> Event:
    """What goes on comes to its end, one way or the other."""
    match action_of(member):
        case Join():
            generation = draw.draw(st.integers(max(0, member.generation), 9))
            return joined(generation, leads=True) if draw.draw(st.booleans()) else JoinAgain("me")
        case Sync():
            return draw.draw(st.one_of(st.just(SyncAgain()), st.builds(Synced, PARTITIONS)))
        case GiveUp():
            return GivenUp()
        case TakeUp():
            return TakenUp()
        case Leave():
            return Left()
        case None:
            return draw.draw(EVENTS)


@settings(max_examples=100, deadline=None)
@given(cooperative=st.booleans(), static=st.booleans(), data=st.data())
def test_whatever_happens_nothing_is_taken_that_was_not_assigned_nor_dropped_without_being_given_up(
    cooperative: bool, static: bool, data: st.DataObject
) -> None:
    member = Member(cooperative=cooperative, static=static)
    for _ in range(25):
        before, action = member, action_of(member)
        event = data.draw(EVENTS) if data.draw(st.booleans()) else ended(member, data)
        member = after(member, event)
        assert member.giving_up <= member.owned
        assert member.readable <= member.owned
        gained, dropped = member.owned - before.owned, before.owned - member.owned
        if gained:
            assert isinstance(action, TakeUp)
            assert gained == action.partitions
        if dropped:
            assert isinstance(action, GiveUp)
            assert dropped == action.partitions
        joins = action_of(member)
        if isinstance(joins, Join) and not cooperative:
            assert not member.owned
        if member.lost:
            assert not member.readable
            assert not member.beats
        if member.phase is Phase.ENDED:
            assert not member.owned
            assert after(member, replace(joined(9))) == member


@settings(max_examples=60, deadline=None)
@given(cooperative=st.booleans(), data=st.data())
def test_a_member_that_is_closed_ends_within_a_few_steps_from_anywhere(cooperative: bool, data: st.DataObject) -> None:
    member = Member(cooperative=cooperative)
    for _ in range(data.draw(st.integers(0, 12))):
        member = after(member, data.draw(EVENTS) if data.draw(st.booleans()) else ended(member, data))
    member = after(member, Closed())
    for _ in range(4):
        if member.phase is not Phase.ENDED:
            member = after(member, ended(member, data))
    assert member.phase is Phase.ENDED
