"""How a member's life ends, event by event."""

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.consumer.groups.members.member import Member, Phase
from regnum_client.consumer.groups.members.member_events import (
    Closed,
    Event,
    GivenUp,
    GiveUp,
    Join,
    Joined,
    Leave,
    PollExpired,
    Refused,
    Subscribed,
    Synced,
    TakenUp,
    TakeUp,
)
from regnum_client.consumer.groups.members.membership import action_of, after
from regnum_client.records import TopicPartition

P = TopicPartition("t", 0)


def lived(member: Member, *events: Event) -> Member:
    for event in events:
        member = after(member, event)
    return member


def joining() -> Member:
    return lived(Member(cooperative=True), Subscribed(frozenset("t")))


def syncing() -> Member:
    return lived(joining(), Joined(member_id="me", generation=1, protocol="range", roll=None))


def stable() -> Member:
    return lived(syncing(), Synced(frozenset({P})), TakenUp())


@pytest.mark.parametrize(
    "code",
    [
        errors_pb2.ERROR_CODE_GROUP_MAX_SIZE_REACHED,
        errors_pb2.ERROR_CODE_INCONSISTENT_GROUP_PROTOCOL,
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
        errors_pb2.ERROR_CODE_FENCED_INSTANCE_ID,
    ],
)
def test_one_that_cannot_be_a_member_ends_also_before_it_has_anything(code: errors_pb2.ErrorCode) -> None:
    for member in (joining(), syncing()):
        refused = lived(member, Refused(code=code, message="said the test", generation=member.generation))
        assert (refused.phase, action_of(refused)) == (Phase.ENDED, None)
        assert refused.failure is not None
        assert refused.failure.code == code


def test_one_that_is_away_while_it_closes_does_not_join_again() -> None:
    closing = lived(stable(), Closed())
    assert lived(closing, PollExpired()) == closing
    leaving = lived(closing, PollExpired(), GivenUp())
    assert action_of(leaving) == Leave(member_id="me")
    fenced = lived(
        stable(), Refused(code=errors_pb2.ERROR_CODE_FENCED_INSTANCE_ID, message="", generation=1), PollExpired()
    )
    assert action_of(fenced) == GiveUp(partitions=frozenset({P}), lost=True)
    assert lived(fenced, GivenUp()).phase is Phase.ENDED


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.SYNCING, Phase.STABLE])
def test_one_that_is_not_known_any_more_reads_nothing_wherever_it_is(phase: Phase) -> None:
    rejoining = lived(
        stable(), Refused(code=errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS, message="", generation=1, aside=True)
    )
    resyncing = lived(rejoining, Joined(member_id="me", generation=2, protocol="range", roll=None))
    member = {Phase.JOINING: rejoining, Phase.SYNCING: resyncing, Phase.STABLE: stable()}[phase]
    assert (member.phase, member.readable) == (phase, {P})
    unknown = Refused(
        code=errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID, message="", generation=1, aside=True, member_id="me"
    )
    gone = lived(member, unknown)
    assert (gone.readable, gone.member_id) == (frozenset(), "")
    assert action_of(gone) == GiveUp(partitions=frozenset({P}), lost=True)
    assert lived(gone, unknown) == gone
    other = Refused(
        code=errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID, message="", generation=1, aside=True, member_id="former"
    )
    assert lived(member, other) == member


def test_a_leader_beats_while_it_assigns_and_joins_again_when_that_takes_too_long() -> None:
    roll = (("me", "", b""),)
    member = lived(joining(), Joined(member_id="me", generation=1, protocol="range", roll=roll))
    assert member.beats
    assert not syncing().beats, "its call is held"
    rebalance = errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS
    assert lived(member, Refused(code=rebalance, message="", generation=1, aside=True)).phase is Phase.JOINING


def test_what_cannot_be_read_yet_is_taken_up_later_and_holds_no_rebalance_up() -> None:
    two = frozenset({P, TopicPartition("t", 1)})
    member = lived(syncing(), Synced(two), TakenUp(frozenset({P})))
    assert (member.phase, member.owned) == (Phase.STABLE, two - {P})
    assert action_of(member) == TakeUp(partitions=frozenset({P}), generation=1, late=True)
    assert lived(member, TakenUp(frozenset({P}))) == member
    whole = lived(member, TakenUp())
    assert (whole.owned, action_of(whole)) == (two, None)
    rebalance = Refused(code=errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS, message="", generation=1, aside=True)
    for waiting in (member, lived(syncing(), Synced(two))):
        action = action_of(lived(waiting, rebalance))
        assert isinstance(action, Join)
        assert action.subscription.owned == waiting.owned
