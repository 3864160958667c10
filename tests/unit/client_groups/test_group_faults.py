"""Members of a group in trouble, against a coordinator: what is told, what is committed, and what is never read."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.groups.decisions.state import GroupState
from regnum_client import (
    CommitFailedError,
    Consumer,
    MaxPollIntervalExceededError,
    NoOffsetForPartitionError,
    RebalanceListener,
    ResetPolicy,
    TopicPartition,
)
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.group_members import Reading, member, write
from regnum_testing.waiting import until, within

P = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t", partitions=4)
        yield running


async def test_one_that_the_group_does_not_take_hears_why_and_asks_no_more(cluster: FakeCluster) -> None:
    async with member(cluster, session_timeout_s=1801.0) as consumer:
        with pytest.raises(RegnumError) as caught:
            await within(anext(consumer))
        assert caught.value.code == errors_pb2.ERROR_CODE_INVALID_SESSION_TIMEOUT
        assert cluster.groups.calls["JoinGroup"] == 1


async def test_one_whose_answers_find_no_room_asks_again(cluster: FakeCluster) -> None:
    write(cluster, 0, 1)
    cluster.groups.refusals.extend([errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED] * 3)
    async with member(cluster) as consumer:
        assert (await within(anext(consumer))).offset == 0
        assert not cluster.groups.refusals


async def test_one_whose_application_may_work_for_days_joins(cluster: FakeCluster) -> None:
    write(cluster, 0, 1)
    async with member(cluster, max_poll_interval_s=86_400.0) as consumer:
        assert (await within(anext(consumer))).offset == 0


def hold(cluster: FakeCluster, call: str) -> asyncio.Event:
    cluster.groups.held[call] = asyncio.Event()
    return cluster.groups.held[call]


async def test_what_is_committed_by_itself_does_not_take_back_a_commit_that_is_under_way(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    async with member(cluster, auto_commit_interval_s=1_000.0) as consumer:
        assert len(await within(consumer.read(records_max=10, timeout_s=1_000.0))) == 10
        let_go = hold(cluster, "OffsetCommit")
        by_hand = asyncio.create_task(consumer.commit({P[0]: 5}))
        await until(lambda: cluster.groups.calls["OffsetCommit"] == 1, "it is on its way")
        closing = asyncio.create_task(consumer.close())
        heartbeats = cluster.groups.calls["Heartbeat"]
        await until(lambda: cluster.groups.calls["Heartbeat"] > heartbeats + 3, "the end has its turn to choose")
        let_go.set()
        await within(by_hand)
        await within(closing)
    assert cluster.groups.offset("g", "t", 0) == 5


async def test_where_nobody_has_said_where_to_begin_nothing_is_committed(cluster: FakeCluster) -> None:
    for partition in range(4):
        write(cluster, partition, 10)
    for _ in range(2):
        async with member(cluster, auto_offset_reset=ResetPolicy.FAIL) as consumer:
            with pytest.raises(NoOffsetForPartitionError):
                await within(anext(consumer))
            await consumer.commit()
    assert [cluster.groups.offset("g", "t", one.partition) for one in P] == [None] * 4


async def test_a_commit_of_partitions_that_were_lost_and_came_back_is_refused(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    async with member(cluster, enable_auto_commit=False) as consumer:
        await within(anext(consumer))
        let_go = hold(cluster, "OffsetCommit")
        committing = asyncio.create_task(consumer.commit())
        await until(lambda: cluster.groups.calls["OffsetCommit"] == 1)
        cluster.groups.remove("g", *cluster.groups.members("g"))
        await until(lambda: not consumer.assignment, "it has heard")
        reading = Reading(consumer)
        await until(lambda: len(reading.has) == 4, "it has them again")
        let_go.set()
        with pytest.raises(CommitFailedError, match="t/0"):
            await within(committing)
        await reading.stop()
    assert cluster.groups.offset("g", "t", 0) is None


async def test_a_listener_may_commit_what_it_is_given(cluster: FakeCluster) -> None:
    class Committing(RebalanceListener):
        consumer: Consumer

        async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
            await self.consumer.commit(dict.fromkeys(partitions, 3))

    write(cluster, 0, 10)
    listener = Committing()
    async with member(cluster, listener=listener, enable_auto_commit=False) as consumer:
        listener.consumer = consumer
        assert (await within(anext(consumer))).offset == 0
    assert [cluster.groups.offset("g", "t", one.partition) for one in P] == [3] * 4


async def test_a_leader_that_is_closed_before_it_has_assigned_does_not_hold_the_group_up(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    leader = member(cluster, commit_timeout_s=1_000.0, auto_commit_interval_s=1_000.0)
    await leader.start()
    for _ in range(5):
        await within(anext(leader))
    async with member(cluster, topics=(), enable_auto_commit=False) as other:
        for broker in cluster.brokers.values():
            await broker.freeze()
        await other.subscribe("t", "u")
        await until(lambda: cluster.groups.state("g") is GroupState.COMPLETING_REBALANCE, "it has to assign")
        await within(leader.close())
        assert len(cluster.groups.members("g")) == 1
        for broker in cluster.brokers.values():
            broker.frozen.clear()
            broker.thawed.set()
        reading = Reading(other)
        await until(lambda: len(reading.has) == 4)
        await reading.stop()


async def test_a_leader_that_cannot_assign_yet_stays_a_member(cluster: FakeCluster) -> None:
    async with member(cluster, session_timeout_s=2.0, topic_wait_s=1.0) as leader:
        reading = Reading(leader)
        await until(lambda: len(reading.has) == 4)
        known = cluster.groups.members("g")
        async with member(cluster, topics=(), enable_auto_commit=False) as other:
            for broker in cluster.brokers.values():
                await broker.freeze()
            await other.subscribe("t", "u")
            await until(lambda: cluster.groups.state("g") is GroupState.COMPLETING_REBALANCE, "it has to assign")
            beats = cluster.groups.calls["Heartbeat"]
            await until(lambda: cluster.groups.calls["Heartbeat"] > beats + 120, "more than a session")
            assert known <= cluster.groups.members("g")
            for broker in cluster.brokers.values():
                broker.frozen.clear()
                broker.thawed.set()
            two = Reading(other)
            await until(lambda: len(two.has) == len(reading.has) == 2)
            await two.stop()
        await reading.stop()


async def test_while_its_coordinator_is_away_a_member_reads_on_and_what_it_lost_meanwhile_it_is_told_afterwards(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """As Kafka's: a coordinator that is away for everybody must not stop everybody."""
    heard = list[str]()

    class Told(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
            heard.append("assigned")

        async def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
            heard.append("lost")

    write(cluster, 0, 10)
    async with member(cluster, session_timeout_s=0.5, enable_auto_commit=False, listener=Told()) as consumer:
        reading = Reading(consumer)
        await until(lambda: len(reading.records) == 10)
        cluster.groups.coordinator = 0
        await until(lambda: "nothing was heard" in caplog.text, "a session time-out is over")
        write(cluster, 0, 5)
        await until(lambda: len(reading.records) == 15, "it reads on")
        assert heard == ["assigned"]
        cluster.groups.coordinator = 1
        await until(lambda: heard == ["assigned", "lost", "assigned"], "the coordinator had thrown it out")
        await until(lambda: len(reading.records) == 30, "nothing was committed")
        await reading.stop()
        assert [record.offset for record in reading.records] == [*range(15), *range(15)]


async def test_a_partition_without_a_leader_keeps_neither_the_others_nor_the_group_waiting(
    cluster: FakeCluster,
) -> None:
    for partition in range(4):
        write(cluster, partition, 10)
    cluster.elect("t", 0, -1)
    async with member(cluster) as first:
        one = Reading(first)
        await until(lambda: len(one.records) == 30, "the others are read")
        assert one.has == set(P[1:])
        async with member(cluster) as second:
            two = Reading(second)
            await until(lambda: len(two.has) + len(one.has) == 3 and len(two.has) > 0, "they share")
            cluster.elect("t", 0, 1)
            await until(lambda: P[0] in one.has | two.has, "it is read when it has a leader")
            await until(lambda: sum(record.partition == 0 for record in (*one.records, *two.records)) == 10)
            await two.stop()
        await one.stop()


async def test_a_topic_that_goes_while_it_has_no_leader_keeps_nobody_waiting(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    cluster.create("u")
    cluster.elect("u", 0, -1)
    async with member(cluster, topics=("t", "u")) as consumer:
        reading = Reading(consumer)
        await until(lambda: len(reading.has) == 4)
        cluster.delete("u")
        await until(lambda: len(reading.records) == 10)
        await reading.stop()
        assert [record.offset for record in reading.records] == list(range(10))


async def test_what_is_said_while_a_listener_runs_holds_before_anything_is_handed_out(cluster: FakeCluster) -> None:
    class Slow(RebalanceListener):
        def __init__(self) -> None:
            self.heard: list[str] = []

        async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
            self.heard.append("assigned")
            if len(self.heard) == 1:
                cluster.groups.remove("g", *cluster.groups.members("g"))
                beats = cluster.groups.calls["Heartbeat"]
                await until(lambda: cluster.groups.calls["Heartbeat"] > beats + 5, "the member has heard")

        async def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
            self.heard.append("lost")

    for partition in range(4):
        write(cluster, partition, 10)
    listener = Slow()
    async with member(cluster, listener=listener, enable_auto_commit=False) as consumer:
        await within(anext(consumer))
        assert listener.heard == ["assigned", "lost", "assigned"], "nothing came before it was a member again"


async def test_a_listener_that_does_not_return_does_not_keep_partitions(cluster: FakeCluster) -> None:
    returns = asyncio.Event()

    class Hanging(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
            await returns.wait()

    write(cluster, 0, 10)
    async with member(cluster, listener=Hanging(), max_poll_interval_s=0.1, session_timeout_s=0.3) as consumer:
        reading = asyncio.create_task(anext(consumer))
        await until(lambda: len(cluster.groups.members("g")) == 1)
        await until(lambda: not cluster.groups.members("g"), "others may have them")
        returns.set()
        with pytest.raises(MaxPollIntervalExceededError):
            await within(reading)
        assert (await within(anext(consumer))).offset == 0


async def test_a_close_that_nobody_waits_for_leaves_nothing_running(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    before = asyncio.all_tasks()
    consumer = member(cluster, auto_commit_interval_s=1_000.0)
    await consumer.start()
    for _ in range(2):
        await within(anext(consumer))
    let_go = hold(cluster, "OffsetCommit")
    closing = asyncio.create_task(consumer.close())
    await until(lambda: cluster.groups.calls["OffsetCommit"] == 1, "it commits")
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    left = {task.get_name() for task in asyncio.all_tasks() - before if not task.done()}
    assert not {name for name in left if name.startswith(("group-", "consumer-", "fetch-", "metadata"))}
    let_go.set()
