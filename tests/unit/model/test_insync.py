"""The rule by which ISR and eligible replicas change together (safety rule S10, KIP-966)."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, TopicId
from regnum_model.insync import effective_min_insync, with_isr
from regnum_model.nodes import LeaderAndIsr, Membership


def log_of(broker: int, epoch: int = 1) -> Membership:
    return Membership(broker_epoch=BrokerEpoch(epoch), log_id=LogId(f"log-{broker}"))


def state(isr: Sequence[int], elr: Sequence[int] = ()) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=TopicId("A" * 22),
        leader=BrokerId(isr[0]),
        leader_epoch=LeaderEpoch(1),
        isr=tuple(map(BrokerId, isr)),
        elr=tuple(map(BrokerId, elr)),
        members={BrokerId(id): log_of(id) for id in (*isr, *elr)},
        controller_epoch=ControllerEpoch(1),
    )


def brokers(*ids: int) -> list[BrokerId]:
    return [BrokerId(id) for id in ids]


def test_a_shrink_below_min_insync_keeps_the_removed_member_eligible() -> None:
    after = with_isr(state([1, 2]), brokers(2), min_insync=2)
    assert (after.isr, after.elr) == ((2,), (1,))
    assert after.members.keys() == {1, 2}


def test_a_further_shrink_keeps_the_former_eligible_ones() -> None:
    after = with_isr(state([2, 3], elr=[1]), brokers(3), min_insync=3)
    assert (after.isr, after.elr) == ((3,), (2, 1))


def test_a_shrink_that_leaves_enough_keeps_nobody() -> None:
    after = with_isr(state([1, 2, 3]), brokers(1, 2), min_insync=2)
    assert after.elr == ()
    assert after.members.keys() == {1, 2}


def test_a_join_that_makes_enough_empties_the_list_and_records_the_new_log() -> None:
    joined = log_of(3, epoch=9)
    after = with_isr(state([2], elr=[1]), brokers(2, 3), min_insync=2, joining={BrokerId(3): joined})
    assert (after.isr, after.elr) == ((2, 3), ())
    assert after.members == {2: log_of(2), 3: joined}


def test_an_eligible_replica_that_joins_is_no_longer_listed_as_eligible() -> None:
    joined = log_of(1, epoch=9)
    after = with_isr(state([2], elr=[1]), brokers(2, 1), min_insync=3, joining={BrokerId(1): joined})
    assert (after.isr, after.elr) == ((2, 1), ())
    assert after.members[BrokerId(1)] == joined


def test_a_member_joins_only_with_the_log_of_its_live_registration() -> None:
    with pytest.raises(ValueError, match="registration"):
        with_isr(state([2], elr=[1]), brokers(2, 1), min_insync=2)


def test_an_isr_is_never_emptied() -> None:
    with pytest.raises(ValueError, match="never empty"):
        with_isr(state([1]), [], min_insync=1)


@pytest.mark.parametrize(("configured", "factor", "effective"), [(2, 3, 2), (2, 1, 1), (5, 3, 3), (0, 3, 1)])
def test_min_insync_fits_the_replication_factor(configured: int, factor: int, effective: int) -> None:
    assert effective_min_insync(configured, factor) == effective


@given(st.lists(st.sets(st.integers(1, 5), min_size=1), min_size=1, max_size=8), st.integers(1, 3))
def test_members_always_record_exactly_isr_and_elr(changes: list[set[int]], min_insync: int) -> None:
    now = state([1, 2, 3])
    for change in changes:
        isr = brokers(*sorted(change))
        joining = {id: log_of(id, epoch=2) for id in isr if id not in now.isr}
        now = with_isr(now, isr, min_insync=min_insync, joining=joining)
        assert now.members.keys() == {*now.isr, *now.elr}
        assert not set(now.isr) & set(now.elr)
        assert len(now.isr) < min_insync or not now.elr
