"""Why a partition has no leader: the reason whose end would bring it back, and who it is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_election.decisions.cluster import HeldState, Partition
from regnum_election.decisions.leadership import Change, ChangeKind, Refusal, settle
from regnum_election.decisions.partitions import OfflineReason, why_offline
from regnum_model.ids import NO_LEADER, BrokerId
from regnum_testing.election_values import broker, replicas, state, surroundings


def partition(isr: list[int], elr: tuple[int, ...] = (), *assigned: int) -> Partition:
    held = HeldState(state=state(NO_LEADER, isr, elr=elr), version=3)
    return Partition(replicas=replicas(*(assigned or (1, 2, 3))), held=held)


@pytest.mark.parametrize(
    ("isr", "elr", "live", "offline", "reason", "words"),
    [
        ([2, 3], (), [1], [], OfflineReason.MEMBERS_AWAY, "no live broker: 2, 3"),
        ([2], (3,), [1], [], OfflineReason.MEMBERS_AWAY, "ELR [3]"),
        ([2], (), [1, broker(2, log="wiped")], [], OfflineReason.OTHER_LOG, "log id differs from the recorded one: 2"),
        ([2], (3,), [broker(2, log="wiped")], [], OfflineReason.MEMBERS_AWAY, "differs from the recorded one: 2"),
        ([2], (), [2], [2], OfflineReason.REPLICA_UNUSABLE, "cannot use the replica: 2"),
        ([2, 3], (), [2], [2], OfflineReason.REPLICA_UNUSABLE, "no live broker: 3"),
        ([2], (3,), [3], [], OfflineReason.ELECTION_UNDER_WAY, "under way"),
    ],
)
def test_reasons(
    isr: list[int], elr: tuple[int, ...], live: list[object], offline: list[int], reason: OfflineReason, words: str
) -> None:
    why = why_offline(partition(isr, elr), surroundings(*live, offline=offline))  # type: ignore[arg-type]
    assert why.reason is reason
    assert words in why.message


def test_states_that_cannot_be_used_and_partitions_that_never_had_one() -> None:
    trouble = Partition(replicas=replicas(1), trouble="leaderAndISR is missing")
    assert why_offline(trouble, surroundings(1)).reason is OfflineReason.STATE_UNUSABLE
    assert why_offline(trouble, surroundings(1)).message == "leaderAndISR is missing"
    fresh = Partition(replicas=replicas(1, 2), creating=True)
    assert why_offline(fresh, surroundings(3)).reason is OfflineReason.NOT_CREATED
    assert why_offline(fresh, surroundings(2)).reason is OfflineReason.ELECTION_UNDER_WAY


ids = st.integers(1, 4)


@given(
    isr=st.lists(ids, min_size=1, unique=True),
    elr=st.lists(ids, unique=True),
    live=st.sets(ids),
    wiped=st.sets(ids),
    offline=st.sets(ids),
)
def test_an_election_is_under_way_exactly_where_the_ordinary_decision_elects(
    isr: list[int], elr: list[int], live: set[int], wiped: set[int], offline: set[int]
) -> None:
    """So no reason is given for a partition that gets a leader, and one for every other."""
    one = partition(isr, tuple(id for id in elr if id not in isr), 1, 2, 3, 4)
    around = surroundings(*(broker(id, log="wiped" if id in wiped else f"log-{id}") for id in live), offline=offline)
    assert one.held is not None
    decision = settle(one.held.state, one.replicas, around, min_insync=2)
    elects = isinstance(decision, Change) and decision.kind is ChangeKind.ELECTED
    assert elects or decision is Refusal.NO_ELIGIBLE_MEMBER
    assert (why_offline(one, around).reason is OfflineReason.ELECTION_UNDER_WAY) is elects
    for id in one.held.state.isr:
        assert elects or str(BrokerId(id)) in why_offline(one, around).message
