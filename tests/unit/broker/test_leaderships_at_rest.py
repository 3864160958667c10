"""Leaderships at rest are asked for no more than that, and only those are at rest of which nothing is expected."""

import asyncio
from dataclasses import replace
from pathlib import Path

from regnum_broker.maintenance import IsrWatch
from regnum_broker.replication.isr_writer import IsrWriter
from regnum_broker.replication.leader import Leadership
from regnum_model.ids import BrokerId
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.leading_replicas import FOLLOWER, LEADER, FetchingFollower, LeadingReplicas

LAG_S = 10.0
COUNT = 20
OTHER = BrokerId(9)


class CountingClock(FakeClock):
    """Counts how often it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return super().monotonic()


class NotingWriter(IsrWriter):
    """Notes whose ISR it is to look at."""

    def __init__(self, *, clock: FakeClock) -> None:
        super().__init__(
            broker=LEADER,
            identity=lambda: None,
            store=lambda: None,
            report=lambda _: None,
            step_down=lambda *_: None,
            clock=clock,
        )
        self.woken: list[int] = []

    def wake(self, leadership: Leadership) -> None:
        self.woken.append(leadership.partition.key.partition)


async def test_only_what_is_not_at_rest_is_looked_at_whole(tmp_path: Path) -> None:
    clock = CountingClock()
    async with LeadingReplicas(tmp_path, partitions=COUNT, clock=clock) as leader:
        writer = NotingWriter(clock=clock)
        watch = IsrWatch(
            replicas=leader.replicas, writer=writer, lag_s=LAG_S, clock=clock, tell_uncommitted=lambda _: None
        )
        follower = FetchingFollower(leader.session())
        await follower.ask(*[(number, 0) for number in range(COUNT)])
        running = asyncio.create_task(watch.run())
        # One turn: the watch has looked for the first time.
        await asyncio.sleep(0)
        await leader.append(7)
        clock.skip(LAG_S + 0.1)
        clock.asked = 0
        await clock.advance(0.5)
        assert writer.woken == [7], "its follower has not taken the record"
        assert clock.asked < COUNT // 2
        running.cancel()


async def test_a_leadership_is_at_rest_when_all_is_committed_and_everybody_stands_at_the_end(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, partitions=1) as leader:
        leadership = leader.leadership()
        assert not leadership.at_rest, "its follower has not been heard of"
        follower = FetchingFollower(leader.session())
        await follower.ask((0, 0))
        assert leadership.at_rest
        leadership.partition.log.append_as_leader([batch_of(b"v")], leader_epoch=leadership.state.leader_epoch)
        assert not leadership.at_rest, "the writer has added a record"
        leadership.appended(0, now_s=leader.clock.monotonic())
        assert not leadership.at_rest, "the record is not committed"
        await follower.ask((0, 1))
        assert leadership.at_rest
        await follower.ask((0, 0))
        assert not leadership.at_rest, "the follower went back"


async def test_a_leadership_whose_isr_is_to_change_or_may_is_not_at_rest(tmp_path: Path) -> None:
    async with LeadingReplicas(tmp_path, partitions=1) as leader:
        leadership = leader.leadership()
        await FetchingFollower(leader.session()).ask((0, 0))
        assert leadership.at_rest
        leadership.proposed_isr = (LEADER,)
        assert not leadership.at_rest
        leadership.proposed_isr = None
        assert leadership.at_rest
        for isr, elr in (((LEADER,), ()), ((LEADER, FOLLOWER), (OTHER,)), ((LEADER, OTHER), ())):
            whole = leadership.state
            leadership.state = replace(whole, isr=isr, elr=elr)
            assert not leadership.at_rest
            leadership.state = whole
