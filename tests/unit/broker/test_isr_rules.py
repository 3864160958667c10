"""Who is in sync (semantics 4.1)."""

import math

import pytest
from regnum_broker.replication.decisions.isr import (
    NEVER_S,
    UNKNOWN_OFFSET,
    FollowerProgress,
    after_fetch,
    at_new_epoch,
    at_same_epoch,
    is_caught_up,
    lagging,
    may_join,
)
from regnum_model.ids import BrokerId

LEADER, FIRST, SECOND = BrokerId(1), BrokerId(2), BrokerId(3)
LAG_S = 30.0


def test_catching_up_is_measured_by_fetches() -> None:
    progress = at_new_epoch(in_sync=False, now_s=0.0)
    progress = after_fetch(progress, offset=5, leader_end=10, now_s=1.0)
    assert progress.caught_up_s == NEVER_S
    progress = after_fetch(progress, offset=10, leader_end=15, now_s=2.0)
    assert progress.caught_up_s == 1.0
    progress = after_fetch(progress, offset=15, leader_end=15, now_s=3.0)
    assert progress.caught_up_s == 3.0


def test_a_fetch_below_the_former_log_end_proves_nothing() -> None:
    progress = after_fetch(at_new_epoch(in_sync=True, now_s=0.0), offset=5, leader_end=10, now_s=1.0)
    progress = after_fetch(progress, offset=9, leader_end=15, now_s=2.0)
    assert progress.caught_up_s == 0.0


@pytest.mark.parametrize(("in_sync", "caught_up_s"), [(True, 7.0), (False, NEVER_S)])
def test_a_new_epoch_forgets_positions_and_gives_members_time(*, in_sync: bool, caught_up_s: float) -> None:
    progress = at_new_epoch(in_sync=in_sync, now_s=7.0)
    assert (progress.log_end_offset, progress.caught_up_s) == (UNKNOWN_OFFSET, caught_up_s)
    assert not progress.has_fetched


@pytest.mark.parametrize(("in_sync", "at_s"), [(True, 9.0), (False, NEVER_S)])
def test_the_same_epoch_again_keeps_positions(*, in_sync: bool, at_s: float) -> None:
    before = FollowerProgress(log_end_offset=11, caught_up_s=1.0, fetched_s=1.0, leader_end_at_fetch=10)
    progress = at_same_epoch(before, in_sync=in_sync, leader_end=11, now_s=9.0)
    assert progress == FollowerProgress(log_end_offset=11, caught_up_s=at_s, fetched_s=at_s, leader_end_at_fetch=11)


def test_an_idle_follower_at_the_log_end_stays_caught_up() -> None:
    progress = after_fetch(at_new_epoch(in_sync=True, now_s=0.0), offset=10, leader_end=10, now_s=1.0)
    assert is_caught_up(progress, leader_end=10, now_s=1.0 + 30.001, lag_s=LAG_S)


@pytest.mark.parametrize(("now_s", "caught_up"), [(31.0, True), (31.001, False)])
def test_a_follower_behind_has_the_lag_limit(*, now_s: float, caught_up: bool) -> None:
    progress = FollowerProgress(log_end_offset=9, caught_up_s=1.0, fetched_s=1.0, leader_end_at_fetch=9)
    assert is_caught_up(progress, leader_end=10, now_s=now_s, lag_s=LAG_S) is caught_up


def test_a_clock_that_starts_at_zero_catches_nobody_up() -> None:
    progress = at_new_epoch(in_sync=False, now_s=0.0)
    assert not is_caught_up(progress, leader_end=0, now_s=0.0, lag_s=LAG_S)


def test_members_that_never_fetched_leave_after_the_limit_and_the_leader_never() -> None:
    followers = {FIRST: at_new_epoch(in_sync=True, now_s=0.0)}
    followers[SECOND] = after_fetch(at_new_epoch(in_sync=True, now_s=0.0), offset=4, leader_end=4, now_s=1.0)
    members = (LEADER, FIRST, SECOND)

    def leave(now_s: float) -> tuple[BrokerId, ...]:
        return lagging(members, followers, leader=LEADER, leader_end=4, now_s=now_s, lag_s=LAG_S)

    assert leave(30.0) == ()
    assert leave(30.001) == (FIRST,)


def test_a_member_that_nothing_is_known_of_lags() -> None:
    assert lagging((LEADER, FIRST), {}, leader=LEADER, leader_end=0, now_s=0.0, lag_s=LAG_S) == (FIRST,)


@pytest.mark.parametrize(
    ("log_end", "high_watermark", "epoch_start", "joins"),
    [
        (3, 10, 10, False),
        (10, 10, 10, True),
        (0, 1, 5, False),
        (1, 1, 5, False),
        (5, 1, 5, True),
        (9, 10, 5, False),
        (UNKNOWN_OFFSET, 0, 0, False),
    ],
)
def test_joining_needs_high_watermark_epoch_start_and_a_fetch(
    *, log_end: int, high_watermark: int, epoch_start: int, joins: bool
) -> None:
    progress = FollowerProgress(log_end_offset=log_end)
    assert may_join(progress, 20, high_watermark=high_watermark, epoch_start=epoch_start) is joins


def test_never_is_before_every_clock() -> None:
    assert -math.inf == NEVER_S
