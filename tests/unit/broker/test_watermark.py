"""Where the high watermark goes (semantics 4.1, safety rules S1 and S10)."""

import pytest
from regnum_broker.replication.decisions.isr import FollowerProgress
from regnum_broker.replication.decisions.watermark import WatermarkError, advanced, of_follower
from regnum_model.ids import BrokerId
from regnum_testing.election_values import state

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def moved(
    present: int,
    ends: dict[BrokerId, int],
    *,
    leader_end: int = 12,
    counted: tuple[BrokerId, ...] = (ONE, TWO),
    isr: tuple[BrokerId, ...] = (ONE, TWO),
    elr: tuple[BrokerId, ...] = (),
    min_insync: int = 1,
) -> int:
    return advanced(
        present,
        leader=ONE,
        leader_end=leader_end,
        counted=counted,
        followers={id: FollowerProgress(log_end_offset=end) for id, end in ends.items()},
        state=state(ONE, isr, elr=elr),
        min_insync=min_insync,
    )


def test_it_is_the_lowest_log_end_of_the_isr() -> None:
    assert moved(0, {TWO: 10, THREE: 3}) == 10


def test_the_leader_alone_commits_what_it_has() -> None:
    assert moved(0, {}, counted=(ONE,), isr=(ONE,)) == 12


def test_a_proposed_isr_counts_as_well() -> None:
    assert moved(7, {TWO: 10, THREE: 9}, counted=(ONE, TWO, THREE)) == 9


def test_it_never_goes_back() -> None:
    assert moved(10, {TWO: 10, THREE: 4}, counted=(ONE, TWO, THREE)) == 10


def test_a_member_that_has_not_fetched_holds_it() -> None:
    assert moved(5, {TWO: -1}) == 5
    assert moved(5, {}) == 5


def test_it_stands_still_below_min_insync() -> None:
    assert moved(0, {TWO: 12, THREE: 12}, counted=(ONE, TWO, THREE), isr=(ONE, TWO), min_insync=3) == 0
    assert moved(0, {TWO: 12, THREE: 12}, counted=(ONE, TWO, THREE), isr=(ONE, TWO, THREE), min_insync=3) == 12


def test_it_stands_still_while_a_replica_outside_the_isr_is_eligible() -> None:
    """Min.insync.replicas was lowered: what is committed now would be missing where a leader may come from."""
    assert moved(3, {TWO: 12, THREE: 3}, elr=(THREE,), min_insync=2) == 3
    assert moved(3, {TWO: 12, THREE: 3}, elr=(THREE,), min_insync=1) == 3
    assert moved(3, {TWO: 12, THREE: 3}, min_insync=2) == 12


def test_a_log_that_ends_below_it_is_a_defect() -> None:
    with pytest.raises(WatermarkError):
        moved(13, {TWO: 12})


@pytest.mark.parametrize(
    ("present", "leaders", "start", "end", "result"),
    [(0, 5, 0, 3, 3), (0, 2, 0, 3, 2), (4, 2, 0, 9, 4), (0, 1, 6, 9, 6)],
)
def test_a_follower_keeps_it_within_its_own_log(
    *, present: int, leaders: int, start: int, end: int, result: int
) -> None:
    assert of_follower(present, leader_high_watermark=leaders, log_start=start, log_end=end) == result
