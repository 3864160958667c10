"""Decisions about leaders and ISRs: Kafka's vectors, and the traces that lost records under earlier rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_election.decisions.leadership import Change, ChangeKind, Refusal, first_state, hand_over, prefer, settle
from regnum_model.ids import NO_LEADER, BrokerId
from regnum_testing.election_values import TOPIC_ID, broker, replicas, state, surroundings


def changed(decision: object) -> Change:
    assert isinstance(decision, Change), decision
    return decision


# Kafka's vectors (PartitionLeaderElectionAlgorithmsTest)


def test_offline_elects_the_live_member() -> None:
    decision = changed(settle(state(2, [2, 4]), replicas(2, 4), surroundings(4), min_insync=1))
    assert decision.kind is ChangeKind.ELECTED
    assert (decision.state.leader, decision.state.isr, decision.state.leader_epoch) == (4, (4,), 6)


def test_offline_never_elects_a_live_replica_outside_isr_and_elr() -> None:
    decision = changed(settle(state(2, [2]), replicas(2, 4), surroundings(4), min_insync=1))
    assert decision.kind is ChangeKind.OFFLINE
    assert (decision.state.leader, decision.state.isr, decision.state.leader_epoch) == (NO_LEADER, (2,), 6)
    again = settle(decision.state, replicas(2, 4), surroundings(4), min_insync=1)
    assert again is Refusal.NO_ELIGIBLE_MEMBER


def test_offline_follows_assignment_order_not_isr_order() -> None:
    decision = changed(settle(state(1, [1, 3, 2]), replicas(1, 2, 3), surroundings(2, 3), min_insync=1))
    assert decision.state.leader == 2
    assert decision.state.isr == (3, 2)


@pytest.mark.parametrize(
    ("isr", "live", "expected"),
    [([2, 4], [2, 4], 2), ([2], [], Refusal.PREFERRED_NOT_IN_SYNC), ([4], [4], Refusal.PREFERRED_NOT_IN_SYNC)],
)
def test_preferred(isr: list[int], live: list[int], expected: object) -> None:
    decision = prefer(state(4 if 4 in isr else -1, isr), replicas(2, 4), surroundings(*live))
    assert (decision.state.leader if isinstance(decision, Change) else decision) == expected


def test_preferred_leader_that_leads_already() -> None:
    assert prefer(state(2, [2, 4]), replicas(2, 4), surroundings(2, 4)) is Refusal.PREFERRED_LEADS


def test_controlled_shutdown_hands_over() -> None:
    decision = changed(hand_over(state(2, [2, 4]), replicas(2, 4), surroundings(2, 4, leaving=[2]), min_insync=1))
    assert (decision.state.leader, decision.state.isr, decision.state.leader_epoch) == (4, (4,), 6)


def test_controlled_shutdown_of_the_only_member_is_refused() -> None:
    decision = hand_over(state(2, [2]), replicas(2, 4), surroundings(2, 4, leaving=[2]), min_insync=1)
    assert decision is Refusal.NO_OTHER_MEMBER


def test_controlled_shutdown_takes_a_follower_out_and_keeps_the_epoch() -> None:
    decision = changed(hand_over(state(2, [2, 4]), replicas(2, 4), surroundings(2, 4, leaving=[4]), min_insync=1))
    assert decision.kind is ChangeKind.ISR_ONLY
    assert (decision.state.leader, decision.state.isr, decision.state.leader_epoch) == (2, (2,), 5)


def test_controlled_shutdown_leaves_other_partitions_alone() -> None:
    decision = hand_over(state(2, [2, 4]), replicas(2, 4, 6), surroundings(2, 4, 6, leaving=[6]), min_insync=1)
    assert decision is Refusal.NOTHING_TO_CHANGE


def test_new_partition_takes_all_live_replicas() -> None:
    decision = changed(first_state(TOPIC_ID, replicas(3, 1, 2), surroundings(broker(1, epoch=7), 2)))
    assert (decision.state.leader, decision.state.isr, decision.state.leader_epoch) == (1, (1, 2), 0)
    assert decision.state.members[BrokerId(1)].broker_epoch == 7
    assert decision.state.members[BrokerId(1)].log_id == "log-1"


def test_new_partition_without_a_live_replica_stays_new() -> None:
    assert first_state(TOPIC_ID, replicas(1, 2), surroundings(3)) is Refusal.NO_LIVE_REPLICA


def test_new_partition_avoids_brokers_that_are_shutting_down() -> None:
    decision = changed(first_state(TOPIC_ID, replicas(1, 2), surroundings(1, 2, leaving=[1])))
    assert decision.state.isr == (2,)


# Followers


def test_a_dead_follower_leaves_the_isr_without_a_new_epoch() -> None:
    decision = changed(settle(state(1, [1, 2, 3]), replicas(1, 2, 3), surroundings(1, 2), min_insync=2))
    assert decision.kind is ChangeKind.ISR_ONLY
    assert (decision.state.leader_epoch, decision.state.isr, decision.state.elr) == (5, (1, 2), ())


def test_below_min_insync_the_removed_member_stays_eligible() -> None:
    decision = changed(settle(state(1, [1, 2]), replicas(1, 2), surroundings(1), min_insync=2))
    assert (decision.state.isr, decision.state.elr) == ((1,), (2,))
    assert set(decision.state.members) == {1, 2}


def test_nothing_to_do_when_all_members_are_as_recorded() -> None:
    decision = settle(state(1, [1, 2]), replicas(1, 2, 3), surroundings(1, 2, 3), min_insync=2)
    assert decision is Refusal.NOTHING_TO_CHANGE


def test_a_state_of_a_later_reign_is_left_alone() -> None:
    decision = settle(state(1, [1], controller_epoch=4), replicas(1), surroundings(controller_epoch=3), min_insync=1)
    assert decision is Refusal.NEWER_REIGN


def test_a_broker_that_is_shutting_down_leads_only_if_nobody_else_can() -> None:
    both = surroundings(2, 3, leaving=[2])
    assert changed(settle(state(1, [1, 2, 3]), replicas(1, 2, 3), both, min_insync=1)).state.leader == 3
    alone = surroundings(2, leaving=[2])
    assert changed(settle(state(1, [1, 2, 3]), replicas(1, 2, 3), alone, min_insync=1)).state.leader == 2


# Traces of the model checker (safety.md; the numbers are its own)


def test_t1_tail_of_a_bounced_member() -> None:
    """ISR {0, 2}; 2 bounced with its log whole; 0 lost power and its tail. Both bounces are seen at once: 2 leads."""
    live = surroundings(broker(0, epoch=20, log="new-log"), broker(2, epoch=21))
    decision = changed(settle(state(0, [0, 2]), replicas(0, 1, 2), live, min_insync=1))
    assert (decision.state.leader, decision.state.isr) == (2, (2,))
    assert decision.state.members[BrokerId(2)].broker_epoch == 21


def test_t2_a_controller_change_does_not_forget_a_bounce() -> None:
    """1 lost its log and registered again; 0 dies: a controller that never saw 1's bounce elects 2."""
    live = surroundings(broker(1, epoch=20, log="empty"), 2)
    decision = changed(settle(state(0, [0, 1, 2]), replicas(0, 1, 2), live, min_insync=1))
    assert (decision.state.leader, decision.state.isr) == (2, (2,))


def test_t3_a_wiped_leader_never_keeps_its_epoch() -> None:
    """Leader 0 is wiped and registered again: the leader epoch grows, and 0 does not lead."""
    live = surroundings(broker(0, epoch=20, log="wiped"), 1, 2)
    decision = changed(settle(state(0, [0, 1, 2]), replicas(0, 1, 2), live, min_insync=2))
    assert (decision.state.leader, decision.state.leader_epoch, decision.state.isr) == (1, 6, (1, 2))
    alone = changed(settle(state(0, [0]), replicas(0, 1, 2), live, min_insync=2))
    assert (alone.state.leader, alone.state.leader_epoch, alone.state.isr) == (NO_LEADER, 6, (0,))


def test_t4_a_bounced_leader_alone_leads_again_under_a_new_epoch() -> None:
    """0 refuses to resume its old epoch (S11): the controller raises it, and records the live broker epoch."""
    decision = changed(settle(state(0, [0]), replicas(0, 1), surroundings(broker(0, epoch=20), 1), min_insync=1))
    assert (decision.state.leader, decision.state.leader_epoch) == (0, 6)
    assert decision.state.members[BrokerId(0)].broker_epoch == 20
    after = settle(decision.state, replicas(0, 1), surroundings(broker(0, epoch=20), 1), min_insync=1)
    assert after is Refusal.NOTHING_TO_CHANGE


def test_t5_only_the_recorded_log_counts_however_often_a_broker_registers() -> None:
    for epoch in (20, 21, 22):
        live = surroundings(broker(1, epoch=epoch, log="second-log"))
        decision = settle(state(NO_LEADER, [1]), replicas(1, 2), live, min_insync=1)
        assert decision is Refusal.NO_ELIGIBLE_MEMBER


def test_t7_complete_copies_are_not_forgotten() -> None:
    """0 and 1 are killed one after the other, the ISR shrinks to {2}, 2 is wiped, 0 and 1 return complete: 0 leads."""
    first = changed(settle(state(0, [0, 1, 2]), replicas(0, 1, 2), surroundings(1, 2), min_insync=2)).state
    second = changed(settle(first, replicas(0, 1, 2), surroundings(2), min_insync=2)).state
    assert (second.isr, second.elr) == ((2,), (1,))
    wiped = surroundings(broker(0, epoch=30), broker(1, epoch=31), broker(2, epoch=32, log="wiped"))
    third = changed(settle(second, replicas(0, 1, 2), wiped, min_insync=2)).state
    assert (third.leader, third.isr) == (1, (1,))
    assert 2 in third.elr


def test_a_bounced_follower_leaves_the_isr_while_the_leader_stands() -> None:
    live = surroundings(1, broker(2, epoch=20))
    decision = changed(settle(state(1, [1, 2]), replicas(1, 2), live, min_insync=2))
    assert decision.kind is ChangeKind.ISR_ONLY
    assert (decision.state.isr, decision.state.elr) == ((1,), (2,))


def test_all_members_bounced_whole_one_of_them_leads() -> None:
    live = surroundings(broker(1, epoch=20), broker(2, epoch=21))
    decision = changed(settle(state(1, [1, 2]), replicas(1, 2), live, min_insync=2))
    assert (decision.state.leader, decision.state.isr, decision.state.elr) == (1, (1,), (2,))


ids = st.integers(0, 3)


@given(
    isr=st.lists(ids, min_size=1, max_size=4, unique=True),
    elr=st.lists(ids, max_size=3, unique=True),
    leads=st.booleans(),
    live=st.dictionaries(ids, st.tuples(st.booleans(), st.booleans()), max_size=4),
    leaving=st.sets(ids, max_size=2),
    min_insync=st.integers(1, 3),
)
def test_whatever_happens_the_leader_has_a_recorded_log(
    isr: list[int],
    elr: list[int],
    leads: bool,
    live: dict[int, tuple[bool, bool]],
    leaving: set[int],
    min_insync: int,
) -> None:
    """For each live broker: (bounced, wiped). Invariants of every decision."""
    elr = [id for id in elr if id not in isr]
    before = state(isr[0] if leads else NO_LEADER, isr, elr=elr)
    around = surroundings(
        *(broker(id, epoch=id + 100 if b or w else id, log="new" if w else None) for id, (b, w) in live.items()),
        leaving=leaving & live.keys(),
    )
    decision = settle(before, replicas(0, 1, 2, 3), around, min_insync=min_insync)
    after = decision.state if isinstance(decision, Change) else before
    assert after.isr
    assert set(after.isr) <= {*before.isr, *before.elr}
    assert set(after.members) == {*after.isr, *after.elr}
    assert not set(after.isr) & set(after.elr)
    if after.leader == NO_LEADER:
        assert not any(around.is_restorable(id, before.members) for id in (*before.isr, *before.elr))
        assert after.isr == before.isr
    else:
        assert after.leader in after.isr
        assert around.is_intact(after.leader, after.members)
        assert all(around.is_intact(id, after.members) for id in after.isr)
    if isinstance(decision, Change):
        grows = decision.kind is not ChangeKind.ISR_ONLY
        assert after.leader_epoch == before.leader_epoch + (1 if grows else 0)
        if not grows:
            assert after.leader == before.leader
        if before.leader != NO_LEADER and not around.is_intact(before.leader, before.members):
            assert grows
    again = settle(after, replicas(0, 1, 2, 3), around, min_insync=min_insync)
    if isinstance(again, Change):
        # Nothing that elects empties the list of eligible replicas; under a leader that stands it may be emptied.
        assert isinstance(decision, Change)
        assert again.kind is ChangeKind.ISR_ONLY
        assert (again.state.isr, again.state.elr, bool(after.elr)) == (after.isr, (), True)
        after = again.state
    assert not isinstance(settle(after, replicas(0, 1, 2, 3), around, min_insync=min_insync), Change)
