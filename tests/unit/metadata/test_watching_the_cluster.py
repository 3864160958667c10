"""Whoever watches metadata knows what the process knows, of its topics, however slow it reads and whatever happens."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from immutables import Map
from regnum.metadata.v1.metadata_pb2 import WatchMetadataRequest, WatchMetadataResponse
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_client.cluster.view import ClusterView
from regnum_client.cluster.watching.changes import with_change
from regnum_metadata.image import TopicImage
from regnum_model.ids import BrokerId, ControllerEpoch, TopicId
from regnum_model.picture_line import NO_PICTURE, News, PictureVersion, TopicNews
from regnum_service.cluster_image.feed import PART_BYTES, SLICE, ClusterFeed
from regnum_service.cluster_image.held import HeldImage, from_wire, to_wire
from regnum_service.cluster_image.watchers import NAMES_PER_REQUEST, Watcher, Watchers
from regnum_service.cluster_image.watching import watch
from regnum_service.errors import RegnumError
from regnum_testing.metadata_values import broker
from regnum_testing.waiting import DEADLINE_S

NAMES = [f"topic-{number}" for number in range(8)]


class Owner:
    """Holds an image, and changes it as a broker does."""

    def __init__(self, seed: int = 0, **bounds: int) -> None:
        self.chance = random.Random(seed)
        self.image = HeldImage()
        self.feed = ClusterFeed(lambda: self.image, **bounds)
        self._lives = 0
        self._terms = 0

    def replace(self, epoch: int, number: int, *topics: TopicImage, brokers: Sequence[int] = (1, 2, 3)) -> None:
        """Another image altogether."""
        self.image = HeldImage(
            position=PictureVersion(ControllerEpoch(epoch), number),
            cluster_id="c",
            controller=types_pb2.Controller(id=1, epoch=epoch, client=types_pb2.Endpoint(host="h", port=1)),
            brokers=[broker(id) for id in brokers],
            topics=Map({topic.name: topic for topic in topics}),
        )
        self.feed.replaced()

    def topic(self, name: str, partitions: int) -> TopicImage:
        """A new life of a topic."""
        self._lives += 1
        states = Map({number: self.state(number) for number in range(partitions)})
        return TopicImage(name=name, topic_id=f"life-{self._lives}", partitions=states)

    def state(self, number: int) -> types_pb2.PartitionState:
        """A partition with a later leader than any before."""
        self._terms += 1
        return types_pb2.PartitionState(
            partition=number, leader=self.chance.randint(1, 3), leader_epoch=self._terms, isr=[1, 2]
        )

    def change(
        self,
        *,
        put: Sequence[TopicImage] = (),
        news: Sequence[TopicNews] = (),
        gone: Sequence[str] = (),
        brokers: Sequence[int] | None = None,
        epoch: int | None = None,
    ) -> None:
        """The next version; ``epoch``: of another reign that goes on from this one."""
        before = self.image
        topics = dict(before.topics)
        deleted = {TopicId(topics[name].topic_id): name for name in gone}
        for name in gone:
            del topics[name]
        named: dict[TopicId, TopicNews] = {}
        for topic in put:
            topics[topic.name] = topic
            changed = next((one.partitions for one in news if one.name == topic.name), frozenset(topic.partitions))
            named[TopicId(topic.topic_id)] = TopicNews(topic.name, changed)
        live = [one.id for one in before.brokers] if brokers is None else brokers
        position = before.position
        self.image = HeldImage(
            position=PictureVersion(ControllerEpoch(epoch or position.epoch), position.number + 1),
            cluster_id="c",
            controller=before.controller
            if epoch is None
            else types_pb2.Controller(id=2, epoch=epoch, client=types_pb2.Endpoint(host="h", port=2)),
            brokers=[broker(id) for id in live],
            topics=Map(topics),
        )
        moved = {BrokerId(id) for id in {one.id for one in before.brokers} ^ set(live)}
        self.feed.extended(
            News(topics=named, deleted=deleted, brokers=frozenset(moved)),
            base=None if epoch is None else position.number,
        )

    def anything(self) -> None:
        """One of the things that happen to a cluster."""
        chance, name = self.chance, self.chance.choice(NAMES)
        known = self.image.topics.get(name)
        match chance.randrange(8):
            case 0 if known is not None:
                self.change(gone=[name])
            case 1:
                self.change(put=[self.topic(name, chance.randint(1, 4))], gone=[name] if known is not None else ())
            case 2:
                self.change(brokers=chance.sample(range(1, 6), chance.randint(1, 5)))
            case 3:
                self.change(epoch=self.image.position.epoch + 1)
            case 4 if chance.random() < 0.3:
                topics = [self.topic(one, 2) for one in chance.sample(NAMES, 4)]
                self.replace(self.image.position.epoch + 1, 1, *topics)
            case 5 if known is not None and len(known.partitions) > 1:
                number = max(known.partitions)
                left = Map({one: state for one, state in known.partitions.items() if one != number})
                topic = TopicImage(name=name, topic_id=known.topic_id, partitions=left)
                self.change(put=[topic], news=[TopicNews(name, frozenset([number]))])
            case _ if known is not None:
                number = chance.choice(list(known.partitions))
                partitions = Map(dict(known.partitions) | {number: self.state(number)})
                topic = TopicImage(name=name, topic_id=known.topic_id, partitions=partitions)
                self.change(put=[topic], news=[TopicNews(name, frozenset([number]))])
            case _:
                self.change()


class Client:
    """Takes up what it is told."""

    def __init__(self, owner: Owner, *topics: str, all_topics: bool = False) -> None:
        self.owner = owner
        self.watcher = Watcher(all_topics=all_topics)
        owner.feed.watchers.admit(self.watcher)
        self.name(*topics)
        self.view = ClusterView()
        self.messages = 0

    def name(self, *topics: str) -> None:
        """Names topics."""
        self.watcher.asked(self.owner.feed.watchers.name(self.watcher, topics))

    def resume(self) -> None:
        """Goes on at what might be another broker with the same picture."""
        feed = self.owner.feed
        feed.watchers.dismiss(self.watcher)
        again = Watcher(position=from_wire(self.view.version), all_topics=self.watcher.all_topics)
        feed.watchers.admit(again)
        feed.watchers.name(again, list(self.watcher.topics))
        again.asked(())
        self.watcher = again

    async def listen(self) -> int:
        """Take up what it lacks; how many messages that was."""
        return self.hear([WatchMetadataResponse.FromString(one) async for one in self.owner.feed.changes(self.watcher)])

    def hear(self, parts: Sequence[WatchMetadataResponse]) -> int:
        """Take up a change; how many messages that was."""
        if parts:
            assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
            view = with_change(self.view, parts)
            assert view is not None
            self.view = view
        self.messages += len(parts)
        return len(parts)

    def knows_everything(self) -> None:
        """What it watches is as the owner has it."""
        image = self.owner.image
        watched = image.topics if self.watcher.all_topics else self.watcher.topics
        wanted = {
            name: (topic.topic_id, {number: (one.leader, one.leader_epoch) for number, one in topic.partitions.items()})
            for name in watched
            if (topic := image.topics.get(name)) is not None
        }
        known = {
            name: (topic.topic_id, {number: (one.leader, one.leader_epoch) for number, one in topic.partitions.items()})
            for name, topic in self.view.topics.items()
        }
        assert known == wanted
        assert sorted(self.view.brokers) == sorted(one.id for one in image.brokers)
        assert self.view.controller is not None
        assert self.view.controller.epoch == image.controller.epoch


@pytest.mark.parametrize("seed", range(25))
async def test_watchers_know_what_the_process_knows_whenever_they_listen(seed: int) -> None:
    """Each listens when it likes; topics come, go and live again, brokers and controllers change, reigns begin anew."""
    owner = Owner(seed)
    owner.replace(1, 1, *(owner.topic(name, 3) for name in NAMES[:5]))
    clients = [Client(owner, *owner.chance.sample(NAMES, 3)) for _ in range(5)]
    for _ in range(150):
        owner.anything()
        client = owner.chance.choice(clients)
        if owner.chance.random() < 0.1:
            client.name(owner.chance.choice(NAMES))
        if owner.chance.random() < 0.1 and client.view.version:
            await client.listen()
            client.resume()
        if owner.chance.random() < 0.6:
            await client.listen()
            client.knows_everything()
    for client in clients:
        await client.listen()
        client.knows_everything()
    assert owner.image.position != PictureVersion(ControllerEpoch(1), 1), "much has happened"


async def test_a_change_is_serialised_once_for_all_that_watch_the_topic() -> None:
    owner = Owner()
    topics = [owner.topic(name, 4) for name in NAMES]
    owner.replace(1, 1, *topics)
    clients = [Client(owner, NAMES[0]) for _ in range(300)]
    for client in clients:
        await client.listen()
    assert owner.feed.serialisations == 1, "the topic as a whole"
    state = owner.state(2)
    changed = TopicImage(name=NAMES[0], topic_id=topics[0].topic_id, partitions=topics[0].partitions.set(2, state))
    owner.change(put=[changed], news=[TopicNews(NAMES[0], frozenset([2]))])
    for client in clients:
        await client.listen()
        client.knows_everything()
    assert owner.feed.serialisations == 2


async def test_a_slow_watcher_gets_one_newer_change_and_not_a_queue() -> None:
    owner = Owner()
    topic = owner.topic("a", 4)
    owner.replace(1, 1, topic)
    client = Client(owner, "a")
    await client.listen()
    for _ in range(1_000):
        topic = TopicImage(name="a", topic_id=topic.topic_id, partitions=topic.partitions.set(2, owner.state(2)))
        owner.change(put=[topic], news=[TopicNews("a", frozenset([2]))])
    assert await client.listen() == 1
    client.knows_everything()
    assert await client.listen() == 0


async def test_those_who_do_not_read_keep_few_differences_and_know_everything_when_they_read_on() -> None:
    """Each stops reading at a version of its own, and what changed since it listened last would be held for it."""
    owner = Owner(told_names_max=200)
    topics = [owner.topic(name, 4) for name in NAMES]
    owner.replace(1, 1, *topics)
    reader, *clients = [Client(owner, *NAMES[:3], all_topics=number % 2 == 0) for number in range(41)]
    for client in (reader, *clients):
        await client.listen()
    stopped: list[tuple[Client, AsyncIterator[bytes], list[WatchMetadataResponse]]] = []
    for client in clients:
        put = [replace(one, partitions=one.partitions.set(2, owner.state(2))) for one in topics]
        owner.change(put=put, news=[TopicNews(one.name, frozenset(one.partitions)) for one in put])
        told = aiter(owner.feed.changes(client.watcher))
        stopped.append((client, told, [WatchMetadataResponse.FromString(await anext(told))]))
    differences = [parts for _, _, parts in stopped if not parts[0].all_brokers]
    assert 0 < len(differences) * len(NAMES) * (1 + 4) <= 200
    # Of little there is little to hold: it goes on as ever.
    await reader.listen()
    newest = replace(topics[0], partitions=topics[0].partitions.set(2, owner.state(2)))
    owner.change(put=[newest], news=[TopicNews(NAMES[0], frozenset({2}))])
    (small,) = [WatchMetadataResponse.FromString(one) async for one in owner.feed.changes(reader.watcher)]
    assert not small.all_brokers
    for client, told, parts in stopped:
        client.hear([*parts, *[WatchMetadataResponse.FromString(one) async for one in told]])
        await client.listen()
        client.knows_everything()


async def test_callers_who_name_many_versions_of_earlier_reigns_have_few_changes_put_together() -> None:
    owner = Owner()
    owner.replace(3, 1, *(owner.topic(name, 4) for name in NAMES))
    owner.change(put=[owner.topic("gone", 1)])
    for epoch in (3, 4, 5):
        for _ in range(200):
            name = owner.chance.choice(NAMES)
            owner.change(put=[owner.image.topics[name]], news=[TopicNews(name, frozenset({owner.chance.randrange(4)}))])
        owner.change(epoch=epoch + 1)
    owner.change(gone=["gone"])
    versions = [PictureVersion(ControllerEpoch(epoch), number) for epoch in (3, 4, 5) for number in range(1, 610)]
    told = 0
    for version in versions:
        watcher = Watcher(position=version)
        owner.feed.watchers.admit(watcher)
        owner.feed.watchers.name(watcher, ["gone"])
        messages = [WatchMetadataResponse.FromString(one) async for one in owner.feed.changes(watcher)]
        owner.feed.watchers.dismiss(watcher)
        (gone,) = [state for message in messages for state in message.whole_topics]
        assert gone.deleted
        told += not messages[0].all_brokers
    assert told > 600  # (the others name versions that no reign passed through)
    assert owner.feed.changes_put_together <= 2 * 12


async def test_what_does_not_concern_a_watcher_is_not_sent() -> None:
    owner = Owner()
    owner.replace(1, 1, *(owner.topic(name, 2) for name in NAMES))
    client = Client(owner, "topic-0")
    await client.listen()
    client.watcher.is_idle = True
    for _ in range(50):
        owner.change(put=[owner.topic("topic-1", 2)], gone=["topic-1"])
    assert client.watcher.position == owner.image.position, "its place moves along without a word"
    assert await client.listen() == 0


async def test_only_those_concerned_are_woken_and_all_of_them_when_a_broker_dies() -> None:
    owner = Owner()
    owner.replace(1, 1, *(owner.topic(name, 2) for name in NAMES))
    clients = [Client(owner, name) for name in NAMES for _ in range(20)]
    for client in clients:
        await client.listen()
        client.watcher.wake.clear()
    waker = asyncio.ensure_future(owner.feed.run())
    try:
        owner.change(put=[owner.topic("topic-3", 2)], gone=["topic-3"])
        await woken([client for client in clients if "topic-3" in client.watcher.topics])
        assert sum(client.watcher.wake.is_set() for client in clients) == 20
        owner.change(brokers=[1, 3])
        await woken(clients)
    finally:
        waker.cancel()


async def test_of_very_many_topics_each_watcher_finds_out_himself_whether_one_is_his() -> None:
    """To find out whom a change concerns would take as long as the change is large, in the turn in which it comes."""
    owner, many = Owner(), [f"many-{number}" for number in range(SLICE)]
    owner.replace(1, 1, *(owner.topic(name, 1) for name in (*NAMES, *many)))
    concerned, other = Client(owner, "many-7"), Client(owner, "topic-0")
    for client in (concerned, other):
        await client.listen()
        client.watcher.wake.clear()
        client.watcher.is_idle = True
    waker = asyncio.ensure_future(owner.feed.run())
    try:
        owner.change(put=[owner.topic(name, 1) for name in (*many, "topic-1")])
        await woken([concerned, other])
        assert await concerned.listen() > 0
        assert await other.listen() == 0
        assert other.watcher.position == owner.image.position
    finally:
        waker.cancel()


async def woken(clients: Sequence[Client]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        for client in clients:
            await client.watcher.wake.wait()


async def test_a_watcher_of_everything_is_told_of_what_will_be() -> None:
    owner = Owner(3)
    owner.replace(1, 1, owner.topic("a", 2))
    client = Client(owner, all_topics=True)
    await client.listen()
    client.knows_everything()
    owner.change(put=[owner.topic("b", 3)])
    owner.change(gone=["a"])
    assert await client.listen() == 1
    client.knows_everything()
    owner.replace(2, 1, owner.topic("z", 2))
    await client.listen()
    assert "z" in client.view.topics


async def test_large_topics_go_in_messages_of_bounded_size() -> None:
    owner = Owner()
    owner.replace(1, 1, owner.topic("large", 30_000))
    client = Client(owner, "large")
    sizes = [len(one) async for one in owner.feed.changes(client.watcher)]
    assert len(sizes) > 1
    assert max(sizes) < 2 * PART_BYTES
    client.resume()
    client.watcher.position = NO_PICTURE
    await client.listen()
    client.knows_everything()


async def test_nothing_is_told_before_there_is_an_image() -> None:
    owner = Owner()
    client = Client(owner, "a")
    assert await client.listen() == 0
    owner.replace(1, 1, owner.topic("a", 1))
    await client.listen()
    client.knows_everything()


class Requests:
    """What a client says on its stream."""

    def __init__(self, *requests: WatchMetadataRequest) -> None:
        self._queue: asyncio.Queue[WatchMetadataRequest] = asyncio.Queue()
        for request in requests:
            self._queue.put_nowait(request)

    def say(self, *topics: str) -> None:
        self._queue.put_nowait(WatchMetadataRequest(topics=topics))

    async def __aiter__(self) -> AsyncIterator[WatchMetadataRequest]:
        while True:
            yield await self._queue.get()


async def test_a_stream_answers_what_it_is_asked_later_and_says_so() -> None:
    owner = Owner()
    owner.replace(1, 1, owner.topic("a", 1), owner.topic("b", 1))
    requests = Requests(WatchMetadataRequest(topics=["a"]))
    stream = watch(owner.feed, aiter(requests))
    async with asyncio.timeout(DEADLINE_S):
        first = WatchMetadataResponse.FromString(await anext(stream))
        assert ([one.name for one in first.whole_topics], first.requests_taken) == (["a"], 1)
        requests.say("b", "nowhere")
        second = WatchMetadataResponse.FromString(await anext(stream))
        assert [(one.name, one.deleted) for one in second.whole_topics] == [("b", False), ("nowhere", True)]
        assert second.requests_taken == 2
    await stream.aclose()
    assert len(owner.feed.watchers) == 0
    assert owner.feed.watchers.names == 0


async def test_who_is_woken_over_and_over_by_what_is_not_his_hears_the_version_all_the_same() -> None:
    """Of very many topics everybody is woken; clients give a stream up that says nothing for long."""
    owner, many = Owner(), [f"many-{number}" for number in range(SLICE + 1)]
    owner.replace(1, 1, *(owner.topic(name, 1) for name in many))
    stream = watch(owner.feed, aiter(Requests(WatchMetadataRequest())), beat_s=0.05)
    waker, stop = asyncio.ensure_future(owner.feed.run()), asyncio.Event()

    async def changing() -> None:
        while not stop.is_set():
            owner.change(put=[owner.topic(name, 1) for name in many])
            await asyncio.sleep(0)

    changes = asyncio.ensure_future(changing())
    try:
        async with asyncio.timeout(DEADLINE_S):
            told = [WatchMetadataResponse.FromString(await anext(stream)).version for _ in range(4)]
    finally:
        stop.set()
        await changes
        waker.cancel()
        await stream.aclose()
    assert told == sorted(set(told)), "each beat is of a later version"


async def test_somebody_who_has_nothing_to_hear_hears_the_version_now_and_then() -> None:
    owner = Owner()
    owner.replace(1, 1)
    stream = watch(owner.feed, aiter(Requests(WatchMetadataRequest())), beat_s=0.01)
    async with asyncio.timeout(DEADLINE_S):
        await anext(stream)
        owner.change(put=[owner.topic("of no interest", 1)])
        beat = WatchMetadataResponse.FromString(await anext(stream))
    assert beat.version == to_wire(owner.image.position)
    assert not beat.topics
    await stream.aclose()


async def test_a_stream_resumes_where_it_was() -> None:
    owner = Owner()
    owner.replace(1, 1, owner.topic("a", 3), owner.topic("b", 3))
    version = to_wire(owner.image.position)
    owner.change(put=[owner.topic("b", 3)], gone=["b"])
    again = WatchMetadataRequest(known_topics=["a", "b"], version=version)
    stream = watch(owner.feed, aiter(Requests(again)))
    async with asyncio.timeout(DEADLINE_S):
        told = WatchMetadataResponse.FromString(await anext(stream))
    assert [one.name for one in (*told.topics, *told.whole_topics)] == ["b"]
    assert not told.all_brokers
    await stream.aclose()


@pytest.mark.parametrize("version", [-1, 1, (1 << 32) + 7, (9 << 32) + 1, 2**63 - 1])
async def test_a_version_that_nobody_published_is_answered_with_the_present_state(version: int) -> None:
    owner = Owner()
    owner.replace(1, 5, owner.topic("a", 1))
    stream = watch(owner.feed, aiter(Requests(WatchMetadataRequest(known_topics=["a"], version=version))))
    async with asyncio.timeout(DEADLINE_S):
        told = WatchMetadataResponse.FromString(await anext(stream))
    assert told.all_brokers
    assert [one.name for one in told.whole_topics] == ["a"]
    await stream.aclose()


async def test_too_many_watchers_and_too_many_names_are_refused_and_leave_nothing() -> None:
    watchers = Watchers(most=3)
    for number in range(3):
        watchers.admit(Watcher(connection=f"c{number}"))
    with pytest.raises(RegnumError) as full:
        watchers.admit(Watcher(connection="c3"))
    assert full.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    one = next(iter(watchers))
    with pytest.raises(RegnumError) as many:
        watchers.name(one, [f"t{number}" for number in range(NAMES_PER_REQUEST + 1)])
    assert many.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    with pytest.raises(RegnumError):
        watchers.name(one, ["fine", "not/a/name"])
    assert watchers.names == 0


async def test_one_connection_leaves_places_and_names_for_others() -> None:
    watchers = Watchers(most=100, names_most=1_000)
    greedy = [Watcher(connection="greedy") for _ in range(50)]
    for one in greedy:
        watchers.admit(one)
    with pytest.raises(RegnumError) as refused:
        watchers.admit(Watcher(connection="greedy"))
    assert refused.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    assert len(watchers) == 50
    for number in range(20):
        watchers.admit(Watcher(connection=f"other {number}"))
    watchers.name(greedy[0], [f"t{number}" for number in range(500)])
    with pytest.raises(RegnumError):
        watchers.name(greedy[1], ["u"])
    modest = Watcher(connection="modest")
    watchers.admit(modest)
    assert len(watchers.name(modest, [f"w{number}" for number in range(150)])) == 150
    for one in (*greedy, modest):
        watchers.dismiss(one)
    assert len(watchers) == 20
    assert watchers.names == 0
    # What one had is free again, also for the same connection.
    watchers.admit(Watcher(connection="greedy"))


async def test_what_watchers_were_sent_and_who_was_refused_is_counted() -> None:
    owner = Owner()
    owner.replace(1, 5, owner.topic("a", 1))
    stream = watch(owner.feed, aiter(Requests(WatchMetadataRequest(known_topics=["a"]))), connection="c")
    async with asyncio.timeout(DEADLINE_S):
        told = await anext(stream)
    assert owner.feed.sent_bytes == len(told) > 0
    assert owner.feed.watchers.dropped == 0
    await stream.aclose()
    assert owner.feed.watchers.dropped == 0, "who hangs up was not dropped"
    wrong = watch(owner.feed, aiter(Requests(WatchMetadataRequest(topics=["not/a/name"]))), connection="c")
    with pytest.raises(RegnumError):
        await anext(wrong)
    assert owner.feed.watchers.dropped == 1
    assert len(owner.feed.watchers) == 0


def test_a_principal_leaves_places_and_names_for_others_on_however_many_connections() -> None:
    watchers = Watchers(most=100, names_most=1_000)

    def one(principal: str, number: int) -> Watcher:
        return Watcher(connection=f"{principal} {number}", principal=principal)

    greedy = [one("User:greedy", number) for number in range(75)]
    for watcher in greedy:
        watchers.admit(watcher)
    with pytest.raises(RegnumError, match="User:greedy has 75 streams"):
        watchers.admit(one("User:greedy", 75))
    for number in range(10):
        watchers.admit(one("User:other", number))
    for number, watcher in enumerate(greedy):
        watchers.name(watcher, [f"{number}.{name}" for name in range(10)])
    with pytest.raises(RegnumError, match="too many topics"):
        watchers.name(greedy[0], [f"more.{name}" for name in range(10)])
    for watcher in greedy:
        watchers.dismiss(watcher)
        watchers.dismiss(watcher)
    assert (len(watchers), watchers.names) == (10, 0)
