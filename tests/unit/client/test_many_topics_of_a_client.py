"""What a client asks and takes up grows with its work, and not with the topics that it knows. All counted."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace

import pytest
from regnum.metadata.v1.metadata_pb2 import GetMetadataResponse, TopicMetadata
from regnum.types.v1.types_pb2 import PartitionState, TopicState
from regnum_client import Admin, Consumer, ConsumerSettings, Producer, ProducerSettings
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.view import ClusterView, Hint, LeaderTerm, PartitionView, merge, with_leaders
from regnum_client.cluster.watching.merging import MERGED_ON_LOOP_MAX
from regnum_client.records import TopicPartition
from regnum_client.tasks import Tasks
from regnum_model.ids import BrokerId, LeaderEpoch, TopicId
from regnum_records.build import build_batch
from regnum_records.record import NewRecord
from regnum_service.channel import Channels
from regnum_service.clock import SystemClock
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

TOPICS = 150
NAMES = [f"t{number:03}" for number in range(TOPICS)]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        for name in NAMES:
            running.create(name, partitions=2)
        yield running


def named(cluster: FakeCluster) -> int:
    """Topics named in all questions together; a question that was repeated for its late answer is one."""
    questions = zip([None, *cluster.named], cluster.named, strict=False)
    told = [names for before, names in questions if names is None or names != before]
    return sum(TOPICS if names is None else len(names) for names in told)


async def test_first_sends_one_after_another_ask_for_each_topic_once(cluster: FakeCluster) -> None:
    settings = ProducerSettings(linger_ms=0.0)
    async with Producer(cluster.bootstrap, settings=settings, chance=random.Random(7)) as producer:
        began_s = SystemClock().monotonic()
        for name in NAMES:
            await (await producer.send(name, b"x", partition=0))
        lasted_s = SystemClock().monotonic() - began_s
    # Only pictures of age name all, and the test may be slow.
    assert named(cluster) <= TOPICS * (1 + lasted_s // 60)


async def test_first_sends_at_once_are_one_question(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap, chance=random.Random(7)) as producer:
        asked = len(cluster.named)
        await asyncio.gather(*(producer.send(name, b"x", partition=number) for name in NAMES for number in (0, 1)))
        assert cluster.named[asked:] == [tuple(NAMES)]
        await producer.flush()


async def test_topics_that_are_described_or_deleted_are_all_that_is_asked_for(cluster: FakeCluster) -> None:
    async with Admin(cluster.bootstrap, chance=random.Random(7)) as admin:
        for name in NAMES:
            assert (await admin.describe_topic(name)).name == name
        assert named(cluster) == TOPICS
        cluster.elect(NAMES[0], 0, 3)
        assert (await admin.describe_topic(NAMES[0])).partitions[0].leader == 3, "asked anew, known or not"
        asked = named(cluster)
        await admin.delete_topics(NAMES[:2])
        assert named(cluster) == asked + 2
        assert len(await admin.list_topics()) == TOPICS - 2
        asked = len(cluster.named)
        await admin.describe_cluster()
        assert cluster.named[asked:] == [()], "that somebody once wanted all topics does not make every question so"


async def test_the_ends_of_many_topics_are_one_question_and_one_call_to_each_leader(cluster: FakeCluster) -> None:
    async with Consumer(cluster.bootstrap, chance=random.Random(7)) as consumer:
        asked = len(cluster.named)
        ends = await consumer.end_offsets(TopicPartition(name, number) for name in NAMES for number in (0, 1))
        assert len(ends) == 2 * TOPICS
        assert cluster.named[asked:] == [tuple(NAMES)]
        assert cluster.calls["ListOffsets"] == 2, "of three brokers two lead"


async def test_leaders_are_asked_for_offsets_at_a_time(cluster: FakeCluster) -> None:
    """One that does not answer does not keep those waiting that come after it."""
    settings = ConsumerSettings(request_timeout_s=DEADLINE_S)
    async with Consumer(cluster.bootstrap, settings=settings, chance=random.Random(7)) as consumer:
        await consumer.assign(NAMES[0], start=0)
        calls = cluster.calls["ListOffsets"]
        for number in (1, 2):
            await cluster.brokers[number].freeze()
        looking = asyncio.create_task(consumer.end_offsets(TopicPartition(NAMES[0], number) for number in (0, 1)))
        await until(lambda: cluster.calls["ListOffsets"] >= calls + 2, "both leaders were asked")
        for number in (1, 2):
            cluster.brokers[number].thawed.set()
        assert set((await looking).values()) == {0}


class Picture:
    """A client's picture of the cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.connections = Connections(Channels())
        addresses = [broker.address for broker in cluster.brokers.values()]
        self.metadata = Metadata(
            addresses,
            self.connections,
            clock=SystemClock(),
            chance=random.Random(3),
            client_id="test",
            tasks=Tasks("test"),
        )

    async def __aenter__(self) -> Metadata:
        await self.metadata.start(timeout_s=DEADLINE_S)
        return self.metadata

    async def __aexit__(self, *_: object) -> None:
        await self.metadata.close()
        await self.connections.close()


async def test_an_answer_about_other_topics_is_no_news_of_a_failure(cluster: FakeCluster) -> None:
    async with Picture(cluster) as metadata:
        await metadata.topic(NAMES[0], timeout_s=DEADLINE_S)
        before = metadata.view
        cluster.elect(NAMES[0], 0, 3)
        await metadata.topic(NAMES[1], timeout_s=DEADLINE_S)
        partial = metadata.view
        assert partial.version > before.version
        assert partial.as_of_s == before.as_of_s
        assert partial.leader_term(NAMES[0], 0) == before.leader_term(NAMES[0], 0)
        whole = await metadata.newer_than(before.as_of_s, timeout_s=DEADLINE_S)
        assert whole.as_of_s > before.as_of_s
        assert whole.leader_term(NAMES[0], 0) == (cluster.topic_ids[NAMES[0]], 3, 1)
        assert cluster.named[-1] == tuple(NAMES[:2])


async def test_a_partition_without_a_leader_is_asked_about_alone_and_goes_on_when_it_has_one(
    cluster: FakeCluster,
) -> None:
    async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0.0), chance=random.Random(7)) as one:
        for name in NAMES:
            await (await one.send(name, b"x", partition=0))
        cluster.elect(NAMES[0], 0, -1)
        waiting = await one.send(NAMES[0], b"y", partition=0)
        asked = len(cluster.named)
        await until(lambda: cluster.named[asked:].count((NAMES[0],)) >= 5, "it was asked about five times")
        # (The refusal of the former leader was news of a failure, which is worth a question about everything, and a
        # slow machine makes two of one.)
        assert sum(names != (NAMES[0],) for names in cluster.named[asked:]) <= 4
        cluster.elect(NAMES[0], 0, 3)
        assert (await asyncio.wait_for(waiting, DEADLINE_S)).offset == 1


async def test_a_consumer_without_a_leader_asks_about_that_topic_alone(cluster: FakeCluster) -> None:
    cluster.partitions[NAMES[0], 0].append(build_batch([NewRecord(value=b"y")], timestamp_ms=1000))
    cluster.elect(NAMES[0], 0, -1)
    async with Consumer(cluster.bootstrap, chance=random.Random(7)) as consumer:
        for name in NAMES[:20]:
            await consumer.assign(name, partitions=[0], start=0)
        asked = len(cluster.named)
        await until(lambda: cluster.named[asked:].count((NAMES[0],)) >= 5, "it was asked about five times")
        assert sum(names != (NAMES[0],) for names in cluster.named[asked:]) <= 2
        cluster.elect(NAMES[0], 0, 3)
        assert [record.value for record in await consumer.read(timeout_s=DEADLINE_S)] == [b"y"]


async def test_the_list_of_brokers_is_sent_when_it_changes_and_not_with_each_answer(cluster: FakeCluster) -> None:
    async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0.0), chance=random.Random(7)) as one:
        for name in NAMES:
            await (await one.send(name, b"x", partition=0))
        assert len(cluster.named) > TOPICS
        # (A first question that is slow goes to two brokers.)
        first = cluster.broker_lists_sent
        assert first <= 2
        # Another life of a broker: everybody hears of it once.
        cluster.brokers[3].epoch += 1
        cluster.version += 1
        for name in NAMES:
            await (await one.send(name, b"x", partition=1))
            cluster.elect(name, 1, 1)
            await (await one.send(name, b"y", partition=1))
        assert 1 <= cluster.broker_lists_sent - first <= 2


async def test_what_is_known_of_the_brokers_stays_where_an_answer_leaves_it_out(cluster: FakeCluster) -> None:
    async with Picture(cluster) as metadata:
        brokers = metadata.view.brokers
        assert set(brokers) == {1, 2, 3}
        await metadata.topic(NAMES[0], timeout_s=DEADLINE_S)
        assert metadata.view.brokers is brokers
        cluster.brokers[3].epoch += 1
        cluster.version += 1
        await metadata.topic(NAMES[1], timeout_s=DEADLINE_S)
        assert metadata.view.brokers[BrokerId(3)].epoch == brokers[BrokerId(3)].epoch + 1


async def test_what_can_be_no_topics_name_is_asked_of_nobody(cluster: FakeCluster) -> None:
    async with Picture(cluster) as metadata:
        asked = len(cluster.named)
        assert await metadata.topics(["", "a b", "\ud800"], timeout_s=DEADLINE_S) == {}
        await metadata.use(["", "\ud800"], timeout_s=DEADLINE_S)
        assert len(cluster.named) == asked
        await metadata.newer_than(metadata.view.as_of_s, timeout_s=DEADLINE_S)


async def test_topics_that_are_looked_for_without_end_do_not_keep_whole_pictures_waiting(cluster: FakeCluster) -> None:
    async with Picture(cluster) as metadata:
        await metadata.topic(NAMES[0], timeout_s=DEADLINE_S)

        async def look_without_end() -> None:
            while True:
                await metadata.topics([NAMES[1]], timeout_s=DEADLINE_S)

        looking = asyncio.create_task(look_without_end())
        for _ in range(5):
            await metadata.newer_than(metadata.view.as_of_s, timeout_s=DEADLINE_S)
        assert not looking.done()
        looking.cancel()


async def test_a_refusal_is_not_forgotten_for_an_answer_that_a_thread_takes_up() -> None:
    """A large answer, asked for before the leader changed, is merged while a refusal names the new leader."""
    async with FakeCluster() as cluster:
        cluster.create("t", partitions=MERGED_ON_LOOP_MAX * 10)
        async with Picture(cluster) as metadata:
            await metadata.topic("t", timeout_s=DEADLINE_S)
            topic_id = TopicId(cluster.topic_ids["t"])
            epochs: list[int] = []

            async def refuse_without_end() -> None:
                while True:
                    # Each refusal names a later leader than the one before; some come while a thread is busy.
                    term = LeaderTerm(topic_id, BrokerId(9), LeaderEpoch(len(epochs) + 1))
                    metadata.take_leaders([Hint(TopicPartition("t", 0), term, None)])
                    epochs.append(metadata.view.topics["t"].partitions[0].leader_epoch)
                    # Refusals come as they like, not as fast as they can.
                    await asyncio.sleep(0.001)
                    assert metadata.view.topics["t"].partitions[0].leader_epoch == term.epoch

            refusing = asyncio.create_task(refuse_without_end())
            for _ in range(3):
                cluster.elect("t", 1, 3)  # another answer than before, so that there is something to do
                await metadata.newer_than(metadata.view.as_of_s, timeout_s=DEADLINE_S)
            assert not refusing.done(), "leader epochs went back"
            refusing.cancel()
            assert epochs == sorted(epochs)


def answer(topics: int, *, changed: int | None = None, version: int = 1) -> GetMetadataResponse:
    return GetMetadataResponse(
        version=version,
        topics=[
            TopicMetadata(
                topic=TopicState(
                    name=f"t{number}",
                    topic_id=f"id{number}",
                    partitions=[
                        PartitionState(partition=n, leader=1, leader_epoch=1 + (number == changed), isr=[1, 2])
                        for n in range(4)
                    ],
                )
            )
            for number in range(topics)
        ],
    )


def test_what_did_not_change_is_shared_from_picture_to_picture() -> None:
    before = merge(ClusterView(), answer(1_000), asked=None, as_of_s=1.0)
    after = merge(before, answer(1_000, changed=7, version=2), asked=None, as_of_s=2.0)
    made = [name for name, view in after.topics.items() if view is not before.topics[name]]
    assert made == ["t7"]
    said = answer(1_000, changed=7, version=3)
    said.topics[7].topic.partitions[2].leader_epoch = 9
    last = merge(after, said, asked=None, as_of_s=3.0)
    made_of = [n for n, one in last.topics["t7"].partitions.items() if one is not after.topics["t7"].partitions[n]]
    assert made_of == [2]
    assert last.leader_term("t7", 2) == ("id7", 1, 9)
    assert after.leader_term("t7", 3) == ("id7", 1, 2)


def test_what_a_refusal_changed_is_no_more_what_the_answer_said() -> None:
    """The same answer again, at a higher version, is compared with what is known and not with what was said."""
    said = answer(1)
    view = merge(ClusterView(), said, asked=None, as_of_s=1.0)
    term = LeaderTerm(TopicId("id0"), BrokerId(2), LeaderEpoch(5))
    view = with_leaders(view, [Hint(TopicPartition("t0", 0), term, None)])
    said.version = 2
    view = merge(view, said, asked=None, as_of_s=2.0)
    assert view.leader_term("t0", 0) == term
    assert view.leader_term("t0", 1) == ("id0", 1, 1)
    said.topics[0].topic.partitions[0].leader = 3
    said.topics[0].topic.partitions[0].leader_epoch = 6
    view = merge(view, said, asked=None, as_of_s=3.0)
    assert view.leader_term("t0", 0) == ("id0", 3, 6)


class Counting(Mapping[int, PartitionView]):
    """Partitions; counts how often all of them are gone through."""

    def __init__(self, partitions: Mapping[int, PartitionView]) -> None:
        self.partitions = partitions
        self.walked = 0

    def __getitem__(self, number: int) -> PartitionView:
        return self.partitions[number]

    def __iter__(self) -> Iterator[int]:
        self.walked += 1
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)


def test_a_leader_of_thousands_that_names_its_successors_is_taken_up_at_once() -> None:
    view = merge(ClusterView(), answer(1), asked=None, as_of_s=1.0)
    state = view.topics["t0"].partitions[0]
    partitions = Counting({number: replace(state, number=number) for number in range(5_000)})
    view = replace(view, topics={"t0": replace(view.topics["t0"], partitions=partitions)})
    hints = [
        Hint(TopicPartition("t0", number), LeaderTerm(TopicId("id0"), BrokerId(3), LeaderEpoch(2)), None)
        for number in range(5_000)
    ]
    after = with_leaders(view, hints)
    assert {one.leader for one in after.topics["t0"].partitions.values()} == {3}
    assert partitions.walked == 1


async def test_a_topic_that_does_not_exist_is_asked_for_at_the_pace(cluster: FakeCluster) -> None:
    async with Picture(cluster) as metadata:
        began_s = SystemClock().monotonic()
        asked = len(cluster.named)
        looking = asyncio.create_task(metadata.topic("none", timeout_s=2 * DEADLINE_S))
        await metadata.topic(NAMES[0], timeout_s=DEADLINE_S)

        def questions() -> int:
            return sum(names is not None and "none" in names for names in cluster.named[asked:])

        await until(lambda: questions() >= 5, "it is asked for again and again")
        lasted_s = SystemClock().monotonic() - began_s
        looking.cancel()
        assert questions() <= 2 + lasted_s / 0.02
