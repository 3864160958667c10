"""Followers of a partition that was idle for longer than the lag limit stay in its ISR when records come again."""

from pathlib import Path

from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import FetchingFollower, LeadingReplicas

LAG_S = 10.0


async def test_a_record_that_the_writer_has_just_added_puts_no_idle_follower_behind(tmp_path: Path) -> None:
    """The log of a leader grows on the writer's thread, a moment before its event loop hears of it.

    1. The follower stands at the log end and asks every half second; nothing comes for longer than the lag limit.
    2. The writer adds a record.
    3. The ISR is looked at.
    4. The event loop hears of the record.
    """
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, partitions=1, clock=clock) as leader:
        leadership = leader.leadership()
        follower = FetchingFollower(leader.session())
        await follower.ask((0, 0))
        clock.skip(2 * LAG_S)
        await follower.ask()
        log = leader.partition().log
        log.append_as_leader([batch_of(b"v")], leader_epoch=leadership.state.leader_epoch)
        assert leadership.wanted_change(clock.monotonic()) is None
        leadership.appended(0, now_s=clock.monotonic())
        assert leadership.wanted_change(clock.monotonic()) is None


async def test_one_that_does_not_take_the_record_within_the_lag_limit_is_behind(tmp_path: Path) -> None:
    clock = FakeClock()
    async with LeadingReplicas(tmp_path, partitions=1, clock=clock) as leader:
        leadership = leader.leadership()
        follower = FetchingFollower(leader.session())
        await follower.ask((0, 0))
        clock.skip(2 * LAG_S)
        await follower.ask()
        await leader.append()
        clock.skip(LAG_S + 0.1)
        change = leadership.wanted_change(clock.monotonic())
        assert change is not None
        assert change.leaving == (2,)
