"""Consumers of a group against a coordinator: who reads what, what is committed, and what a rebalance never does."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client import (
    CommitFailedError,
    Consumer,
    ConsumerSettings,
    MaxPollIntervalExceededError,
    NoOffsetForPartitionError,
    OffsetAndMetadata,
    RebalanceListener,
    ResetPolicy,
    TopicPartition,
)
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.group_members import Reading, member, write
from regnum_testing.waiting import DEADLINE_S, until, within

P = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("t", partitions=4)
        yield running


class Told(RebalanceListener):
    def __init__(self) -> None:
        self.heard: list[tuple[str, list[TopicPartition]]] = []

    async def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self.heard.append(("revoked", sorted(partitions)))

    async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        self.heard.append(("assigned", sorted(partitions)))

    async def on_partitions_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self.heard.append(("lost", sorted(partitions)))


async def test_one_member_reads_everything_and_commits_what_it_is_done_with_when_it_ends(cluster: FakeCluster) -> None:
    for partition in range(4):
        write(cluster, partition, 10)
    async with member(cluster, auto_commit_interval_s=1_000.0) as consumer:
        seen = [await within(anext(consumer)) for _ in range(40)]
    for partition in range(4):
        assert [one.offset for one in seen if one.partition == partition] == list(range(10))
    last = seen[-1]
    ends = {number: cluster.groups.offset("g", "t", number) for number in range(4)}
    assert ends == {number: 9 if number == last.partition else 10 for number in range(4)}, "the last is not known of"
    assert cluster.groups.members("g") == set()
    async with member(cluster) as consumer:
        again = await within(anext(consumer))
        assert (again.partition, again.offset) == (last.partition, 9)


async def test_what_was_committed_by_hand_stays_also_when_the_end_commits(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    async with member(cluster) as consumer:
        for _ in range(5):
            await within(anext(consumer))
        await consumer.commit()
        assert cluster.groups.offset("g", "t", 0) == 5
        assert cluster.groups.topic_id("g", "t", 0) == cluster.topic_ids["t"], "of that topic, and no other of its name"
        told = (await consumer.committed([P[0]]))[P[0]]
        assert told is not None
        assert told.leader_epoch == 0, "of the last record that was handed out"
        await consumer.commit({P[0]: OffsetAndMetadata(5, leader_epoch=0, metadata="so far")})
        found = await consumer.committed([P[0], P[1], P[0]])
        told = found[P[0]]
        assert told is not None
        assert (told.offset, told.leader_epoch, told.metadata) == (5, 0, "so far")
    assert cluster.groups.offset("g", "t", 0) == 5
    offsets = [offset for topic, partition, offset in cluster.groups.committed if (topic, partition) == P[0]]
    assert offsets == sorted(offsets)


async def test_members_share_and_what_one_leaves_goes_to_the_others_with_nothing_skipped_or_repeated(
    cluster: FakeCluster,
) -> None:
    second = member(cluster)
    async with member(cluster) as first:
        one = Reading(first)
        await until(lambda: len(one.has) == 4, "the first has everything")
        await second.start()
        two = Reading(second)
        await until(lambda: len(one.has) == len(two.has) == 2, "each has two")
        assert not one.has & two.has
        for partition in range(4):
            write(cluster, partition, 100)
        await until(lambda: len(one.records) + len(two.records) == 400, "everything is read")
        await two.stop()
        await second.close()
        await until(lambda: len(one.has) == 4, "the first has everything again")
        for partition in range(4):
            write(cluster, partition, 10)
        await until(lambda: len(one.records) + len(two.records) >= 440, "the rest is read")
        await one.stop()
    seen = [(record.partition, record.offset) for record in (*one.records, *two.records)]
    assert len(set(seen)) == 440
    # The last read of the one that left was not known to be done with.
    assert len(seen) - 440 <= len(two.records)


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
async def test_eager_members_give_everything_up_and_share(cluster: FakeCluster, assignor: str) -> None:
    heard = Told()
    strategy = (assignor,)
    async with member(cluster, partition_assignment_strategy=strategy, listener=heard) as first:
        one = Reading(first)
        await until(lambda: len(one.has) == 4)
        async with member(cluster, partition_assignment_strategy=strategy) as second:
            two = Reading(second)
            await until(lambda: len(one.has) == len(two.has) == 2)
            await one.stop()
            await two.stop()
    assert heard.heard[:2] == [("assigned", P), ("revoked", P)]
    assert len(heard.heard[2][1]) == 2


async def test_only_what_moves_is_revoked_and_the_listener_hears_it_in_order(cluster: FakeCluster) -> None:
    heard = Told()
    async with member(cluster, listener=heard) as first:
        one = Reading(first)
        await until(lambda: len(one.has) == 4)
        async with member(cluster) as second:
            two = Reading(second)
            await until(lambda: len(two.has) == 2)
            moved = sorted(two.has)
            await two.stop()
        await until(lambda: len(one.has) == 4)
        await one.stop()
    assert heard.heard[:3] == [("assigned", P), ("revoked", moved), ("assigned", moved)]
    assert heard.heard[3:] == [("revoked", P)]


async def test_a_record_in_hand_is_not_given_away_before_the_next_one_is_asked_for(cluster: FakeCluster) -> None:
    for partition in range(4):
        write(cluster, partition, 10)
    second = member(cluster)
    async with member(cluster) as first:
        await within(anext(first))
        await second.start()
        two = Reading(second)
        await until(lambda: cluster.groups.generation("g") >= 2, "the second has joined")
        beats = cluster.groups.calls["Heartbeat"]
        await until(lambda: cluster.groups.calls["Heartbeat"] > beats + 4, "time goes by")
        assert len(first.assignment) == 4, "the caller has not asked for more"
        assert not two.has
        one = Reading(first)
        await until(lambda: len(two.has) == 2, "it has")
        await one.stop()
        await two.stop()
        await second.close()


async def test_the_session_lasts_however_long_the_caller_works(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    async with member(cluster, session_timeout_s=2.0, heartbeat_interval_s=0.02) as consumer:
        await within(anext(consumer))
        known = cluster.groups.members("g")
        beats = cluster.groups.calls["Heartbeat"]
        await until(lambda: cluster.groups.calls["Heartbeat"] > beats + 150, "more than a session")
        assert cluster.groups.members("g") == known
        await consumer.commit()
    assert cluster.groups.offset("g", "t", 0) == 1


async def test_a_caller_that_is_away_for_too_long_loses_its_partitions_and_is_told_once(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    heard = Told()
    async with member(cluster, max_poll_interval_s=0.1, listener=heard) as consumer:
        await within(anext(consumer))
        await until(lambda: not cluster.groups.members("g"), "it left")
        assert not consumer.assignment
        with pytest.raises(CommitFailedError):
            await consumer.commit({P[0]: 1})
        with pytest.raises(MaxPollIntervalExceededError, match="max_poll_interval_s"):
            await within(anext(consumer))
        assert (await within(anext(consumer))).offset == 0, "it was never committed"
        assert [kind for kind, _ in heard.heard] == ["assigned", "lost", "assigned"]


async def test_a_member_that_was_thrown_out_hands_nothing_out_and_comes_back(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    heard = Told()
    async with member(cluster, listener=heard, enable_auto_commit=False) as consumer:
        await within(anext(consumer))
        (name,) = cluster.groups.members("g")
        cluster.groups.remove("g", name)
        await until(lambda: not consumer.assignment, "it has heard")
        with pytest.raises(CommitFailedError):
            await consumer.commit({P[0]: 1})
        assert (await within(anext(consumer))).offset == 0, "nothing was committed"
        assert [kind for kind, _ in heard.heard] == ["assigned", "lost", "assigned"]
    assert cluster.groups.offset("g", "t", 0) is None


async def test_a_static_member_that_restarts_has_its_partitions_at_once_and_its_double_is_fenced(
    cluster: FakeCluster,
) -> None:
    async with member(cluster, group_instance_id="left", session_timeout_s=30.0) as first:
        one = Reading(first)
        await until(lambda: len(one.has) == 4)
        await one.stop()
    generation = cluster.groups.generation("g")
    async with member(cluster, group_instance_id="left") as first:
        one = Reading(first)
        await until(lambda: len(one.has) == 4)
        assert cluster.groups.generation("g") == generation, "nobody else was disturbed"
        async with member(cluster, group_instance_id="left") as double:
            two = Reading(double)
            await until(lambda: len(two.has) == 4)
            with pytest.raises(RegnumError) as caught:
                await within(one.task)
            assert caught.value.code == errors_pb2.ERROR_CODE_FENCED_INSTANCE_ID
            assert not first.assignment
            await two.stop()


async def test_coordinators_that_move_load_and_stop_are_waited_for(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    cluster.groups.loading = True
    async with member(cluster) as consumer:
        reading = Reading(consumer)
        await until(lambda: cluster.groups.calls["JoinGroup"] > 2)
        cluster.groups.loading = False
        await until(lambda: len(reading.records) == 10)
        generation = cluster.groups.generation("g")
        cluster.groups.loading = True
        await cluster.groups.move(2)
        await cluster.brokers[1].stop()
        for partition in range(4):
            cluster.elect("t", partition, 2)
        cluster.groups.loading = False
        await until(lambda: cluster.groups.offset("g", "t", 0) == 10, "it is committed at the next one")
        assert cluster.groups.generation("g") == generation, "it is in the same generation still"
        assert len(reading.has) == 4
        await reading.stop()


async def test_added_partitions_and_topics_are_read_too(cluster: FakeCluster) -> None:
    async with member(cluster, topics=("t", "later")) as consumer:
        reading = Reading(consumer)
        await until(lambda: len(reading.has) == 4)
        cluster.add_partitions("t", 6)
        cluster.create("later")
        # Whoever asks about a topic learns of it at once; else it takes a minute.
        assert len(await consumer.partitions_of("later")) == 1
        cluster.elect("t", 0, 3)
        await until(lambda: len(reading.has) == 7)
        write(cluster, 5, 3)
        await until(lambda: len(reading.records) == 3)
        await consumer.subscribe("later")
        await until(lambda: reading.has == {TopicPartition("later", 0)})
        await reading.stop()


async def test_where_a_group_begins_is_the_settings_matter(cluster: FakeCluster) -> None:
    for partition in range(4):
        write(cluster, partition, 10)
    async with member(cluster, auto_offset_reset=ResetPolicy.LATEST) as consumer:
        reading = Reading(consumer)
        await until(lambda: len(reading.has) == 4)
        assert consumer.position(P[0]) == 10
        await reading.stop()
    async with Consumer(
        cluster.bootstrap,
        topics=["t"],
        group_id="other",
        settings=ConsumerSettings(auto_offset_reset=ResetPolicy.FAIL, enable_auto_commit=False),
    ) as consumer:
        with pytest.raises(NoOffsetForPartitionError) as caught:
            await within(anext(consumer))
        for one in P:
            consumer.seek(one, 4)
        assert caught.value.partition in P
        assert (await within(anext(consumer))).offset == 4


async def test_what_a_listener_raises_the_reader_hears_and_the_group_goes_on(cluster: FakeCluster) -> None:
    class Broken(RebalanceListener):
        async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
            raise LookupError(f"{len(list(partitions))} partitions are too many")

    write(cluster, 0, 1)
    async with member(cluster, listener=Broken()) as consumer:
        with pytest.raises(LookupError, match="4 partitions"):
            await within(anext(consumer))
        assert (await within(anext(consumer))).offset == 0


async def test_a_listener_may_seek_and_commit_and_must_not_read(cluster: FakeCluster) -> None:
    class Seeking(RebalanceListener):
        def __init__(self) -> None:
            self.consumer: Consumer
            self.refused: list[str] = []

        async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
            for partition in partitions:
                self.consumer.seek(partition, 3)
            try:
                await anext(self.consumer)
            except RegnumError as error:
                self.refused.append(error.message)

        async def on_partitions_revoked(self, partitions: Iterable[TopicPartition]) -> None:
            await self.consumer.commit(dict.fromkeys(partitions, 7))

    for partition in range(4):
        write(cluster, partition, 10)
    listener = Seeking()
    async with member(cluster, listener=listener) as consumer:
        listener.consumer = consumer
        assert (await within(anext(consumer))).offset == 3
        assert "must not read" in listener.refused[0]
    assert cluster.groups.offset("g", "t", 0) == 7


async def test_a_listener_never_runs_beside_what_the_caller_does_between_reads(cluster: FakeCluster) -> None:
    """A read whose time is over while the listener acts ends when that has returned."""
    began, go_on, ended = asyncio.Event(), asyncio.Event(), list[bool]()

    class Slow(Told):
        async def on_partitions_assigned(self, partitions: Iterable[TopicPartition]) -> None:
            await super().on_partitions_assigned(partitions)
            began.set()
            await go_on.wait()
            ended.append(True)

    async with member(cluster, listener=Slow()) as consumer:
        reading = asyncio.create_task(consumer.read(timeout_s=0.01))
        while not began.is_set():
            if reading.done():
                assert reading.result() == []
                reading = asyncio.create_task(consumer.read(timeout_s=0.01))
            await asyncio.wait([reading, asyncio.create_task(began.wait())], return_when=asyncio.FIRST_COMPLETED)
        done, _ = await asyncio.wait([reading], timeout=0.1)
        assert not done, "its time was over long ago"
        go_on.set()
        assert await within(reading) == []
        assert ended == [True]
        write(cluster, 0, 1)
        assert await within(anext(consumer))


async def test_a_read_that_is_given_up_in_a_rebalance_loses_nothing(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    offsets: list[int] = []
    async with member(cluster, enable_auto_commit=False) as consumer:
        async with asyncio.timeout(DEADLINE_S):
            while len(offsets) < 10:
                try:
                    async with asyncio.timeout(0.005):
                        offsets.append((await anext(consumer)).offset)
                except TimeoutError:
                    continue
    assert offsets == list(range(10))


async def test_batches_are_shared_like_records(cluster: FakeCluster) -> None:
    for partition in range(4):
        write(cluster, partition, 10)
    async with member(cluster) as consumer:
        batches = aiter(consumer.batches())
        seen = [await within(anext(batches)) for _ in range(4)]
    assert {one.partition for one in seen} == {0, 1, 2, 3}
    ends = [cluster.groups.offset("g", "t", number) for number in range(4)]
    assert sorted(ends, key=str) == sorted([0, 10, 10, 10], key=str), "the last batch is not known to be done with"


async def test_misuse_is_refused_before_anything_happens(cluster: FakeCluster) -> None:
    async with member(cluster) as consumer:
        with pytest.raises(RegnumError, match="the group assigns"):
            await consumer.assign("t")
        with pytest.raises(RegnumError, match="the group assigns"):
            consumer.unassign(P[0])
    async with Consumer(cluster.bootstrap) as consumer:
        with pytest.raises(RegnumError, match="group_id"):
            await consumer.commit()
    for wrong in (
        {"partition_assignment_strategy": ("best",)},
        {"heartbeat_interval_s": 50.0},
        {"commit_timeout_s": 0},
    ):
        with pytest.raises(RegnumError, match=next(iter(wrong))):
            await member(cluster, **wrong).start()


async def test_one_without_topics_commits_for_a_group_without_members(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    async with member(cluster, topics=()) as consumer:
        await consumer.assign("t", partitions=[0], start=2)
        assert (await within(anext(consumer))).offset == 2
        await consumer.commit()
        assert cluster.groups.offset("g", "t", 0) == 3
        found = await consumer.committed([P[1]])
        assert found == {P[1]: None}


async def test_a_commit_is_sent_again_while_that_may_help(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    async with member(cluster, heartbeat_interval_s=10.0, enable_auto_commit=False) as consumer:
        await within(anext(consumer))
        passing = [
            errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS,
            errors_pb2.ERROR_CODE_NOT_COORDINATOR,
            errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS,
            errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE,
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        ]
        cluster.groups.refusals.extend(passing)
        await within(consumer.commit())
        assert cluster.groups.offset("g", "t", 0) == 1
        assert cluster.groups.calls["OffsetCommit"] >= 1 + len(passing)


@pytest.mark.parametrize("removed", [True, False])
async def test_a_commit_that_shows_that_it_is_thrown_out_is_not_repeated_and_ends_reading(
    cluster: FakeCluster, removed: bool
) -> None:
    write(cluster, 0, 10)
    heard = Told()
    async with member(cluster, listener=heard, heartbeat_interval_s=10.0, enable_auto_commit=False) as consumer:
        await within(anext(consumer))
        if removed:
            cluster.groups.remove("g", *cluster.groups.members("g"))
        else:
            cluster.groups.refusals.append(errors_pb2.ERROR_CODE_ILLEGAL_GENERATION)
        with pytest.raises(CommitFailedError):
            await within(consumer.commit())
        assert cluster.groups.calls["OffsetCommit"] == 1
        await until(lambda: not consumer.assignment, "nothing more of it is handed out")
        assert (await within(anext(consumer))).offset == 0
        assert [kind for kind, _ in heard.heard] == ["assigned", "lost", "assigned"]


async def test_offsets_of_partitions_that_are_not_its_own_are_refused_here(cluster: FakeCluster) -> None:
    async with member(cluster, heartbeat_interval_s=10.0, enable_auto_commit=False) as consumer:
        reading = Reading(consumer)
        await until(lambda: len(reading.has) == 4)
        await reading.stop()
        with pytest.raises(CommitFailedError, match="other/0"):
            await consumer.commit({P[0]: 1, TopicPartition("other", 0): 1})
    assert cluster.groups.offset("g", "t", 0) is None
    assert cluster.groups.calls["OffsetCommit"] == 0


class SteppedClock(SystemClock):
    """Real time, but for the pause between two commits: that is as long as a test wants."""

    def __init__(self) -> None:
        self.steps = asyncio.Semaphore(0)
        self.pauses = 0

    async def sleep(self, seconds: float) -> None:
        if seconds == 1_000.0:
            self.pauses += 1
            await self.steps.acquire()
        else:
            await super().sleep(seconds)


async def test_what_is_committed_by_itself_never_overtakes_what_the_caller_commits(cluster: FakeCluster) -> None:
    write(cluster, 0, 10)
    clock = SteppedClock()
    async with member(cluster, auto_commit_interval_s=1_000.0, clock=clock) as consumer:
        for _ in range(5):
            await within(anext(consumer))
        cluster.groups.commits_wait = asyncio.Event()
        committing = asyncio.create_task(consumer.commit())
        await until(lambda: cluster.groups.calls["OffsetCommit"] == 1)
        # The one by itself has to wait for its turn; by then the record in hand, 4, has been committed.
        clock.steps.release()
        beats = cluster.groups.calls["Heartbeat"]
        await until(lambda: cluster.groups.calls["Heartbeat"] > beats + 3, "it has begun")
        cluster.groups.commits_wait.set()
        await within(committing)
        await until(lambda: clock.pauses == 2, "the other one has ended, too")
        assert cluster.groups.offset("g", "t", 0) == 5
    assert [offset for topic, partition, offset in cluster.groups.committed if (topic, partition) == P[0]] == [5]
