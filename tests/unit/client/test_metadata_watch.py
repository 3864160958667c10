"""Clients hear of new leaders without asking, and lose nothing where nobody tells them."""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from regnum.broker.v1 import log_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum_client import Consumer, ConsumerSettings, Producer, ProducerSettings, ResetPolicy
from regnum_client.cluster.bootstrap import bootstrap_addresses
from regnum_client.cluster.connections import Connections
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.questions import IDLE_MAX_S, Question
from regnum_client.cluster.view import ClusterView, LeaderTerm
from regnum_client.cluster.watching.changes import with_change
from regnum_client.cluster.watching.stream import MetadataWatch
from regnum_client.tasks import Tasks
from regnum_model.ids import BrokerId, LeaderEpoch, TopicId
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.clock import Clock, SystemClock
from regnum_service.cluster_image.feed import ClusterFeed
from regnum_service.cluster_image.held import HeldImage, from_wire
from regnum_service.cluster_image.watching import watch
from regnum_testing.clock import SkippingClock, settle
from regnum_testing.fake_broker import DescribedTopic, FakeBroker
from regnum_testing.fake_cluster import FakeCluster
from regnum_testing.refused_stream import RefusedStream
from regnum_testing.waiting import DEADLINE_S, until


class Telling:
    """Brokers of a fake cluster that tell what they know, each with a feed of its own."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.feeds = {number: ClusterFeed(lambda: self.held) for number in cluster.brokers}
        self.firsts: list[metadata_pb2.WatchMetadataRequest] = []
        """With what streams began."""
        self._wakers = [asyncio.ensure_future(feed.run()) for feed in self.feeds.values()]
        cluster.watch = self.watch
        self.tell()

    @property
    def held(self) -> HeldImage:
        known = next(iter(self.cluster.brokers.values()))._metadata([])
        topics = {
            item.topic.name: DescribedTopic(
                item.topic.name, item.topic.topic_id, {one.partition: one for one in item.topic.partitions}
            )
            for item in known.topics
        }
        return HeldImage(
            position=from_wire(known.version),
            cluster_id=known.cluster_id,
            controller=known.controller,
            brokers=known.brokers,
            topics=topics,
        )

    def tell(self) -> None:
        for feed in self.feeds.values():
            feed.replaced()

    async def watch(
        self, number: int, requests: AsyncIterator[metadata_pb2.WatchMetadataRequest]
    ) -> AsyncGenerator[bytes, None]:
        async def noted() -> AsyncIterator[metadata_pb2.WatchMetadataRequest]:
            first = True
            async for request in requests:
                if first:
                    self.firsts.append(request)
                first = False
                yield request

        async for message in watch(self.feeds[number], noted()):
            yield message

    @property
    def watching(self) -> list[int]:
        """Brokers at which somebody watches."""
        return [number for number, feed in self.feeds.items() if len(feed.watchers)]

    async def stop(self) -> None:
        for waker in self._wakers:
            waker.cancel()
        await asyncio.wait(self._wakers)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as running:
        running.create("orders", partitions=3)
        yield running


@pytest.fixture
async def telling(cluster: FakeCluster) -> AsyncIterator[Telling]:
    brokers = Telling(cluster)
    yield brokers
    await brokers.stop()


async def opened(cluster: FakeCluster, seed: int = 1, clock: Clock | None = None) -> tuple[Metadata, Connections]:
    connections = Connections(Channels())
    metadata = Metadata(
        bootstrap_addresses(cluster.bootstrap),
        connections,
        clock=clock or SystemClock(),
        chance=random.Random(seed),
        client_id="watching",
        tasks=Tasks("test"),
    )
    await metadata.start(timeout_s=DEADLINE_S)
    return metadata, connections


async def closed(*clients: tuple[Metadata, Connections]) -> None:
    for metadata, connections in clients:
        await metadata.close()
        await connections.close()


async def test_a_new_leader_is_known_without_a_question(cluster: FakeCluster, telling: Telling) -> None:
    metadata, connections = await opened(cluster)
    await metadata.topic("orders", timeout_s=DEADLINE_S)
    heard: list[ClusterView] = []
    metadata.listen(lambda: heard.append(metadata.view))
    await until(lambda: metadata.changes_told > 0)
    asked = len(cluster.asked)
    cluster.elect("orders", 0, 3)
    telling.tell()
    await until(lambda: (metadata.view.leader_term("orders", 0) or (0, 0))[1] == 3)
    assert len(cluster.asked) == asked
    assert heard[-1].leader_term("orders", 0) == metadata.view.leader_term("orders", 0), "listeners are told"
    await closed((metadata, connections))


async def test_a_producer_sends_to_a_leader_that_it_was_told_of(cluster: FakeCluster, telling: Telling) -> None:
    """No broker that does not lead is tried, and none is asked who does."""
    async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0.0)) as producer:
        await (await producer.send("orders", b"1", partition=0))
        await until(lambda: any(feed.watchers.names for feed in telling.feeds.values()))
        tried: list[int] = []

        async def note(broker: FakeBroker, _request: log_pb2.ProduceRequest) -> None:
            tried.append(broker.number)

        cluster.before_produce = note
        asked = len(cluster.asked)
        cluster.elect("orders", 0, 2)
        telling.tell()
        metadata = producer._metadata
        assert metadata is not None
        await until(lambda: metadata.view.leader_term("orders", 0) == term(cluster, 2))
        await asyncio.wait_for(await producer.send("orders", b"2", partition=0), DEADLINE_S)
        assert (tried, len(cluster.asked)) == ([2], asked)
    assert cluster.values("orders", 0) == [b"1", b"2"]


def term(cluster: FakeCluster, leader: int) -> LeaderTerm:
    one = cluster.partitions["orders", 0]
    return LeaderTerm(TopicId(one.topic_id), BrokerId(leader), LeaderEpoch(one.leader_epoch))


async def test_a_consumer_watches_too(cluster: FakeCluster, telling: Telling) -> None:
    settings = ConsumerSettings(reset=ResetPolicy.EARLIEST)
    async with Consumer(cluster.bootstrap, settings=settings) as consumer:
        await consumer.assign("orders")
        await until(lambda: any(feed.watchers.names for feed in telling.feeds.values()))
        metadata = consumer._metadata
        assert metadata is not None
        await until(lambda: metadata.changes_told > 0)
        asked = len(cluster.asked)
        cluster.elect("orders", 0, 2)
        telling.tell()
        await until(lambda: metadata.view.leader_term("orders", 0) == term(cluster, 2))
        assert len(cluster.asked) == asked, "it was told, and did not ask"
    await until(lambda: not telling.watching, "a consumer that is closed watches no longer")


async def test_brokers_that_know_no_such_call_are_asked_for_it_once(cluster: FakeCluster) -> None:
    """Everything goes on as it did before there was one."""
    async with Producer(cluster.bootstrap, settings=ProducerSettings(linger_ms=0.0)) as producer:
        await (await producer.send("orders", b"1", partition=0))
        await until(lambda: cluster.calls["WatchMetadata"] == len(cluster.brokers))
        cluster.elect("orders", 0, 2)
        await asyncio.wait_for(await producer.send("orders", b"2", partition=0), DEADLINE_S)
        assert cluster.calls["WatchMetadata"] == len(cluster.brokers)
    assert cluster.values("orders", 0) == [b"1", b"2"]


async def test_who_does_not_want_to_be_told_asks_for_nothing(cluster: FakeCluster, telling: Telling) -> None:
    async with Producer(cluster.bootstrap, settings=ProducerSettings(metadata_watch=False)) as producer:
        await (await producer.send("orders", b"1", partition=0))
        cluster.elect("orders", 0, 2)
        await asyncio.wait_for(await producer.send("orders", b"2", partition=0), DEADLINE_S)
    assert cluster.calls["WatchMetadata"] == 0
    assert not telling.firsts


async def test_a_watch_goes_on_at_another_broker_from_where_it_was(cluster: FakeCluster, telling: Telling) -> None:
    metadata, connections = await opened(cluster)
    await metadata.topic("orders", timeout_s=DEADLINE_S)
    await until(lambda: metadata.changes_told > 0 and metadata.view.version == cluster.version)
    (at,) = telling.watching
    await cluster.brokers[at].stop()
    await until(lambda: len(telling.firsts) >= 2)
    again = telling.firsts[-1]
    assert (list(again.known_topics), again.version) == (["orders"], cluster.version)
    survivors = [number for number in cluster.brokers if number != at]
    cluster.elect("orders", 0, survivors[0])
    telling.tell()
    await until(lambda: (metadata.view.leader_term("orders", 0) or (0, 0))[1] == survivors[0])
    assert not _of_dead_streams(), "it would name topics in place of the stream that lives"
    await closed((metadata, connections))


def _of_dead_streams() -> list[str]:
    """Tasks that feed requests to streams, but for one that lives."""
    feeding = [str(task.get_coro()) for task in asyncio.all_tasks()]
    return [name for name in feeding if "_consume_request_iterator" in name or "MetadataWatch._write" in name][1:]


async def test_topics_that_come_into_use_are_named_on_the_same_stream(cluster: FakeCluster, telling: Telling) -> None:
    cluster.create("bills")
    telling.tell()
    metadata, connections = await opened(cluster)
    await metadata.topic("orders", timeout_s=DEADLINE_S)
    await until(lambda: metadata.changes_told > 0)
    await metadata.topic("bills", timeout_s=DEADLINE_S)
    await until(lambda: sum(feed.watchers.names for feed in telling.feeds.values()) == 2)
    assert len(telling.firsts) == 1
    await closed((metadata, connections))


async def test_what_is_forgotten_is_watched_no_more_and_used_again_it_is(
    cluster: FakeCluster, telling: Telling
) -> None:
    """News of a topic that this client forgot would be a picture of a part of it: a record would go elsewhere."""
    cluster.create("bills")
    telling.tell()
    clock = SkippingClock()
    settings = ProducerSettings(linger_ms=0.0)

    def watched() -> int:
        return sum(feed.watchers.names for feed in telling.feeds.values())

    async with Producer(cluster.bootstrap, settings=settings, clock=clock, chance=random.Random(1)) as producer:
        await producer.send_and_wait("bills", b"1")
        await producer.send_and_wait("orders", b"1", partition=0)
        metadata = producer._metadata
        assert metadata is not None
        await until(lambda: watched() == 2 and metadata.view.version == cluster.version)
        clock.skipped_s += IDLE_MAX_S + 1
        await producer.send_and_wait("bills", b"2")
        await metadata.newer_than(clock.monotonic(), timeout_s=DEADLINE_S)
        await until(lambda: len(telling.firsts) == 2 and watched() == 1, "another stream, without it")
        assert list(telling.firsts[-1].known_topics) == ["bills"], "what is known of the others is not told anew"
        cluster.elect("orders", 0, 2)
        cluster.elect("bills", 0, 2)
        telling.tell()
        await until(lambda: (metadata.view.leader_term("bills", 0) or (0, 0))[1] == 2)
        assert "orders" not in metadata.view.topics
        await producer.send_and_wait("orders", b"2", partition=0)
        assert len(metadata.view.topics["orders"].partitions) == 3
        await until(lambda: watched() == 2)
    assert cluster.values("orders", 0) == [b"1", b"2"]


async def test_news_of_a_topic_that_was_forgotten_meanwhile_is_not_taken_up(cluster: FakeCluster) -> None:
    clock = SkippingClock()
    metadata, connections = await opened(cluster, clock=clock)
    await metadata.topic("orders", timeout_s=DEADLINE_S)
    metadata.idle.release = lambda _topics, _now_s: {}
    clock.skipped_s += IDLE_MAX_S + 1
    news = metadata_pb2.WatchMetadataResponse(version=metadata.view.version + 1, cluster_id=metadata.view.cluster_id)
    state = news.topics.add(name="orders", topic_id=metadata.view.topics["orders"].topic_id)
    state.partitions.add(partition=0, leader=2, leader_epoch=7)
    async with metadata._merging:
        # What is told waits until an answer has been taken up, beside which the topic is forgotten.
        telling = asyncio.create_task(metadata._take_change([news]))
        await settle()
        view = metadata.view
        question = Question(topics=("orders",), whole=True, sought=frozenset())
        metadata._view = metadata.idle.forget(view, question, clock.monotonic(), sought=())
    assert not await telling
    assert "orders" not in metadata.view.topics
    await closed((metadata, connections))


async def test_clients_of_a_broker_that_dies_come_to_the_others_over_some_time(
    cluster: FakeCluster, telling: Telling
) -> None:
    """They come by chance and not at once, resume, and ask for no picture of everything."""
    clients = [await opened(cluster, seed) for seed in range(30)]
    for metadata, _ in clients:
        await metadata.topic("orders", timeout_s=DEADLINE_S)
    await until(lambda: all(metadata.changes_told > 0 for metadata, _ in clients))
    begun = len(telling.firsts)
    at = max(telling.feeds, key=lambda number: len(telling.feeds[number].watchers))
    moved, asked = len(telling.feeds[at].watchers), len(cluster.asked)
    await cluster.brokers[at].stop()
    await until(lambda: len(telling.firsts) >= begun + moved)
    assert all(first.version and list(first.known_topics) == ["orders"] for first in telling.firsts[begun:])
    assert len(cluster.asked) == asked, "nobody lost anything that it was using"
    await closed(*clients)


def leader_told(version: int, leader: int, epoch: int, *, cluster_id: str = "c") -> metadata_pb2.WatchMetadataResponse:
    told = metadata_pb2.WatchMetadataResponse(version=version, cluster_id=cluster_id)
    told.topics.add(name="a", topic_id="id").partitions.add(partition=0, leader=leader, leader_epoch=epoch)
    return told


def test_a_change_never_takes_a_leader_epoch_back() -> None:
    known = with_change(ClusterView(), [leader_told(5, leader=1, epoch=7)])
    assert known is not None
    later = with_change(known, [leader_told(6, leader=2, epoch=6)])
    assert later is not None
    assert later.leader_term("a", 0) == LeaderTerm(TopicId("id"), BrokerId(1), LeaderEpoch(7))
    assert later.version == 6


def test_a_change_from_before_adds_later_leaders_and_nothing_else() -> None:
    known = with_change(ClusterView(), [leader_told(9, leader=1, epoch=7)])
    assert known is not None
    old = leader_told(8, leader=3, epoch=8)
    old.removed_brokers.append(1)
    old.whole_topics.add(name="a", deleted=True)
    after = with_change(known, [old])
    assert after is not None
    assert after.leader_term("a", 0) == LeaderTerm(TopicId("id"), BrokerId(3), LeaderEpoch(8))
    assert after.version == 9


def test_what_another_cluster_tells_is_not_believed() -> None:
    known = with_change(ClusterView(), [leader_told(5, leader=1, epoch=7)])
    assert known is not None
    assert with_change(known, [leader_told(6, leader=2, epoch=9, cluster_id="other")]) is None


def test_topics_that_nothing_is_said_of_stay_the_same_objects() -> None:
    """Whoever waits looks at a topic again only when it is another object."""
    known = with_change(ClusterView(), [leader_told(5, leader=1, epoch=7)])
    assert known is not None
    same = with_change(known, [metadata_pb2.WatchMetadataResponse(version=6, cluster_id="c")])
    again = with_change(known, [leader_told(6, leader=1, epoch=7)])
    assert same is not None
    assert again is not None
    assert same.topics["a"] is known.topics["a"] is again.topics["a"]


async def test_a_deletion_that_is_told_after_a_newer_answer_about_others_is_asked_about(cluster: FakeCluster) -> None:
    cluster.create("lines", partitions=1)
    metadata, connections = await opened(cluster)
    for name in ("orders", "lines"):
        await metadata.topic(name, timeout_s=DEADLINE_S)
    cluster.delete("lines")
    late = metadata_pb2.WatchMetadataResponse(
        version=metadata.view.version - 1, cluster_id=metadata.view.cluster_id, more=False
    )
    late.whole_topics.add(name="lines", deleted=True)
    assert await metadata._take_change([late])
    await until(lambda: "lines" not in metadata.view.topics)
    await closed((metadata, connections))


class Refusing(Connections):
    """Every broker answers with the same call."""

    def __init__(self, call: RefusedStream) -> None:
        super().__init__(Channels())
        self._call = call

    def metadata(self, address: Address) -> Any:
        return self

    def WatchMetadata(self) -> RefusedStream:  # noqa: N802 - a name of the wire
        return self._call


async def test_a_watch_that_is_ended_in_the_moment_of_a_refusal_ends() -> None:
    """Whoever closes a client waits for it."""

    async def taken(_messages: Sequence[metadata_pb2.WatchMetadataResponse]) -> bool:
        return True

    call = RefusedStream()
    watching = MetadataWatch(
        connections=Refusing(call),
        clock=SystemClock(),
        chance=random.Random(1),
        client_id="watching",
        candidates=lambda: [Address(host="127.0.0.1", port=1)],
        suspect=lambda _: None,
        topics=lambda: ["orders"],
        take=taken,
        tasks=Tasks("test"),
    )
    task = asyncio.create_task(watching.run())
    await call.waits.wait()
    task.cancel()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


class Kept(dict[str, None]):
    """Names of topics in use; counts how many were gone through."""

    walked = 0

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            self.walked += 1
            yield name


class SilentBroker(Connections):
    """Takes what a watcher names and says nothing; it is its own stream."""

    def __init__(self) -> None:
        super().__init__(Channels())
        self.named: list[list[str]] = []
        self._said: asyncio.Future[metadata_pb2.WatchMetadataResponse] = asyncio.get_running_loop().create_future()

    def metadata(self, address: Address) -> Any:
        return self

    def WatchMetadata(self) -> Any:  # noqa: N802 - a name of the wire
        return self

    async def write(self, request: metadata_pb2.WatchMetadataRequest) -> None:
        self.named.append(list(request.topics))

    async def read(self) -> metadata_pb2.WatchMetadataResponse:
        return await asyncio.shield(self._said)

    def cancel(self) -> None:
        """The watcher hangs up."""


async def test_a_new_topic_is_named_without_a_look_at_all_others() -> None:
    """Ten thousand that came one by one took two seconds, and fifty thousand most of a minute."""
    broker, kept = SilentBroker(), Kept({f"old-{number}": None for number in range(10)})

    async def taken(_messages: Sequence[metadata_pb2.WatchMetadataResponse]) -> bool:
        return True

    watching = MetadataWatch(
        connections=broker,
        clock=SystemClock(),
        chance=random.Random(1),
        client_id="watching",
        candidates=lambda: [Address(host="127.0.0.1", port=1)],
        suspect=lambda _: None,
        topics=lambda: kept,
        take=taken,
        tasks=Tasks("test"),
    )
    task = asyncio.create_task(watching.run())
    await until(lambda: broker.named == [list(kept.keys())])
    new = [f"new-{number}" for number in range(300)]
    for number, name in enumerate(new):
        kept[name] = None
        watching.topic_added(name)
        await until(lambda number=number: len(broker.named) == number + 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert broker.named[1:] == [[name] for name in new]
    assert kept.walked <= 2 * len(kept)
