"""When a leader that lives is relieved (safety rules S9 and S10)."""

import pytest
from regnum_election.decisions.leadership import Change, ChangeKind, Decision, Refusal
from regnum_election.decisions.relief import CutOff, FetchContacts, cut_leaders, relieve
from regnum_model.ids import BrokerId
from regnum_testing.election_values import broker, replicas, state, surroundings


def ids(*ids: int) -> frozenset[BrokerId]:
    return frozenset(BrokerId(id) for id in ids)


def says(*, unreachable: tuple[int, ...] = (), silent: tuple[int, ...] = ()) -> FetchContacts:
    return FetchContacts(unreachable_leaders=ids(*unreachable), silent_followers=ids(*silent))


def decide(isr: tuple[int, ...], *, live: tuple[int, ...], cut_off: tuple[int, ...], **other: object) -> Decision:
    return relieve(
        state(1, isr, elr=other.get("elr", ())),  # type: ignore[arg-type]
        replicas(1, 2, 3),
        other.get("around", surroundings(*live)),  # type: ignore[arg-type]
        leader=BrokerId(1),
        cut_off=CutOff(followers=ids(*cut_off), isolated=ids(*other.get("isolated", ()))),  # type: ignore[misc]
        min_insync=int(other.get("min_insync", 2)),  # type: ignore[call-overload]
    )


def test_followers_and_leader_have_to_agree() -> None:
    agreed = {BrokerId(1): says(silent=(2, 3)), BrokerId(2): says(unreachable=(1,)), BrokerId(3): says()}
    assert cut_leaders(agreed) == {1: CutOff(followers=ids(2), isolated=ids())}
    both = {**agreed, BrokerId(3): says(unreachable=(1,))}
    assert cut_leaders(both) == {1: CutOff(followers=ids(2, 3), isolated=ids())}


def test_who_is_heard_by_nobody_is_isolated() -> None:
    said = {
        BrokerId(1): says(silent=(2, 3), unreachable=(2, 3)),
        BrokerId(2): says(silent=(1,), unreachable=(1,)),
        BrokerId(3): says(silent=(1,), unreachable=(1,)),
    }
    assert cut_leaders(said) == {
        1: CutOff(followers=ids(2, 3), isolated=ids()),
        2: CutOff(followers=ids(1), isolated=ids(1)),
        3: CutOff(followers=ids(1), isolated=ids(1)),
    }
    # 3 hears it: one link is cut, and who is to blame is not known.
    assert not any(cut.isolated for cut in cut_leaders({**said, BrokerId(3): says()}).values())


def test_a_broker_that_leads_nothing_is_no_witness_that_others_are_isolated() -> None:
    """1 leads and is cut off from 2 and 3; 2 hears no fetches because nobody has anything to fetch there.

    3 says so first. Taken for isolated, it left the ISR, and 2 alone was not enough to relieve 1 a moment later.
    """
    early = {
        BrokerId(1): says(silent=(2, 3), unreachable=(3,)),
        BrokerId(2): says(silent=(1, 3)),
        BrokerId(3): says(silent=(1,), unreachable=(1,)),
    }
    assert cut_leaders(early)[BrokerId(1)] == CutOff(followers=ids(3), isolated=ids())
    late = {**early, BrokerId(2): says(silent=(1, 3), unreachable=(1,))}
    assert cut_leaders(late)[BrokerId(1)] == CutOff(followers=ids(2, 3), isolated=ids())
    # 2 and 3 hear one another, and both miss answers of 1.
    assert cut_leaders(late)[BrokerId(3)] == CutOff(followers=ids(1), isolated=ids(1))


def test_a_follower_that_is_cut_off_from_all_does_not_hold_others_up_until_the_lag_limit() -> None:
    decision = decide((1, 2, 3), live=(1, 2, 3), cut_off=(3,), isolated=(3,))
    assert isinstance(decision, Change)
    assert decision.kind is ChangeKind.ISR_ONLY
    assert (decision.state.leader, decision.state.leader_epoch, decision.state.isr) == (1, 5, (1, 2))


@pytest.mark.parametrize(
    ("isr", "isolated", "min_insync"),
    [
        # One link: the lag limit is for that.
        ((1, 2, 3), (), 2),
        # Nothing could be acknowledged without it.
        ((1, 3), (3,), 2),
        ((1, 2, 3), (3,), 3),
    ],
)
def test_a_follower_stays_in_sync_where_it_is_needed_or_may_not_be_to_blame(
    isr: tuple[int, ...], isolated: tuple[int, ...], min_insync: int
) -> None:
    decision = decide(isr, live=(1, 2, 3), cut_off=(3,), isolated=isolated, min_insync=min_insync)
    assert decision is Refusal.FOLLOWERS_DISAGREE


@pytest.mark.parametrize("followers_say", [(1,), (1, 7)])
def test_a_follower_alone_moves_nothing(followers_say: tuple[int, ...]) -> None:
    """Mistaken or hostile: the leader hears its fetches, or holds no lifeline."""
    assert cut_leaders({BrokerId(1): says(), BrokerId(2): says(unreachable=followers_say)}) == {}
    assert cut_leaders({BrokerId(2): says(unreachable=followers_say)}) == {}


def test_a_leader_alone_moves_nothing() -> None:
    assert cut_leaders({BrokerId(1): says(silent=(2, 3)), BrokerId(2): says(), BrokerId(3): says()}) == {}


def test_a_leader_that_none_of_its_followers_reaches_is_replaced_by_one_of_them() -> None:
    decision = decide((1, 2, 3), live=(1, 2, 3), cut_off=(2, 3))
    assert isinstance(decision, Change)
    assert decision.kind is ChangeKind.ELECTED
    assert (decision.state.leader, decision.state.leader_epoch) == (2, 6)
    assert (decision.state.isr, decision.state.elr) == ((2, 3), ())


@pytest.mark.parametrize(
    ("isr", "live", "cut_off", "min_insync"),
    [
        # One of them can fetch.
        ((1, 2, 3), (1, 2, 3), (2,), 2),
        # Too few are left to acknowledge anything without the leader.
        ((1, 2, 3), (1, 2), (2,), 2),
        ((1, 2), (1, 2, 3), (2,), 2),
        # The leader has shrunk its ISR to itself.
        ((1,), (1, 2, 3), (2, 3), 1),
        ((1,), (1, 2, 3), (2, 3), 2),
    ],
)
def test_a_leader_stays_when_not_all_or_too_few_are_cut_off(
    isr: tuple[int, ...], live: tuple[int, ...], cut_off: tuple[int, ...], min_insync: int
) -> None:
    assert decide(isr, live=live, cut_off=cut_off, min_insync=min_insync) is Refusal.FOLLOWERS_DISAGREE


def test_one_follower_is_enough_where_one_replica_is() -> None:
    decision = decide((1, 2), live=(1, 2), cut_off=(2,), min_insync=1)
    assert isinstance(decision, Change)
    assert (decision.state.leader, decision.state.isr) == (2, (2,))


def test_nobody_is_elected_from_the_eligible_while_the_leader_lives() -> None:
    assert decide((1,), live=(1, 2, 3), cut_off=(2, 3), elr=(2, 3)) is Refusal.FOLLOWERS_DISAGREE


def test_a_follower_that_bounced_or_stops_does_not_count_as_one_that_could_lead() -> None:
    bounced = surroundings(broker(1), broker(2), broker(3, epoch=9))
    assert decide((1, 2, 3), live=(), cut_off=(2, 3), around=bounced) is Refusal.FOLLOWERS_DISAGREE
    stopping = surroundings(1, 2, 3, leaving=(3,))
    assert decide((1, 2, 3), live=(), cut_off=(2, 3), around=stopping) is Refusal.FOLLOWERS_DISAGREE


def test_who_does_not_lead_any_more_or_has_bounced_is_not_relieved() -> None:
    assert (
        relieve(
            state(2, (1, 2, 3)),
            replicas(1, 2, 3),
            surroundings(1, 2, 3),
            leader=BrokerId(1),
            cut_off=CutOff(followers=ids(2, 3), isolated=ids()),
            min_insync=2,
        )
        is Refusal.NOTHING_TO_CHANGE
    )
    bounced = surroundings(broker(1, epoch=9), broker(2), broker(3))
    assert decide((1, 2, 3), live=(), cut_off=(2, 3), around=bounced) is Refusal.NOTHING_TO_CHANGE
