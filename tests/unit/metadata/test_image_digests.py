"""Whoever holds the same has the same digest, however it came to hold it, and a change costs what it changed."""

import asyncio
import random
from dataclasses import replace

import pytest
from immutables import Map
from regnum.metadata.v1 import image_pb2
from regnum.types.v1 import types_pb2
from regnum_broker.cluster.fence import Fence
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_metadata.image import TopicImage
from regnum_metadata.propagation import Propagation
from regnum_model.ids import ControllerEpoch, MetadataId, TopicId
from regnum_model.picture_line import News, PictureVersion, TopicNews
from regnum_service.clock import SystemClock
from regnum_service.cluster_image.describing import STATES_MAX, ImageServicer
from regnum_service.cluster_image.digest import CHUNK, NOTED_MAX, SECTIONS, ImageDigest, section_of
from regnum_service.cluster_image.held import HeldImage
from regnum_service.errors import RegnumError
from regnum_testing.metadata_values import ReceivingBroker, broker, change, gone, topic


class Holder:
    """An image that changes, and its digest."""

    def __init__(self, *topics: TopicImage) -> None:
        self.image = HeldImage(
            position=PictureVersion(ControllerEpoch(1), 1),
            cluster_id="c",
            brokers=[broker(1), broker(2)],
            topics=Map({one.name: one for one in topics}),
        )
        self.digest = ImageDigest(lambda: self.image)

    def put(self, topic: TopicImage, *numbers: int) -> None:
        """A topic is now this, and these partitions are news."""
        topics = Map(dict(self.image.topics) | {topic.name: topic})
        self.image = HeldImage(
            position=PictureVersion(ControllerEpoch(1), self.image.position.number + 1),
            cluster_id="c",
            brokers=self.image.brokers,
            topics=topics,
        )
        self.digest.note(topic.name, numbers)

    async def whole(self) -> int:
        return (await self.digest.digests()).whole

    async def from_nothing(self) -> int:
        return (await ImageDigest(lambda: self.image).digests()).whole


def held(name: str, count: int, *, leader: int = 1, id: str = "id") -> TopicImage:
    states = {number: types_pb2.PartitionState(partition=number, leader=leader) for number in range(count)}
    return TopicImage(name=name, topic_id=id, partitions=Map(states))


def with_state(one: TopicImage, number: int, **fields: int) -> TopicImage:
    state = types_pb2.PartitionState(partition=number, **fields)  # type: ignore[arg-type]  # fields of numbers only
    return TopicImage(name=one.name, topic_id=one.topic_id, partitions=one.partitions.set(number, state))


@pytest.mark.parametrize("field", ["leader", "leader_epoch", "version", "min_insync_replicas"])
async def test_any_field_of_any_partition_makes_another_digest(field: str) -> None:
    holder = Holder(held("a", 3), held("b", 2))
    before = await holder.whole()
    holder.put(with_state(held("a", 3), 1, **{"leader": 1, field: 7}), 1)
    assert await holder.whole() != before
    assert await holder.whole() == await holder.from_nothing()


async def test_one_life_of_a_topic_is_not_another() -> None:
    assert await Holder(held("a", 3, id="x")).whole() != await Holder(held("a", 3, id="y")).whole()
    assert await Holder(held("a", 3)).whole() != await Holder(held("b", 3)).whole()
    assert await Holder(held("a", 3)).whole() != await Holder(held("a", 2)).whole()
    assert await Holder().whole() != await Holder(held("a", 0)).whole()


async def test_the_order_in_which_topics_came_means_nothing() -> None:
    topics = [held(name, 2, id=name) for name in "abcdef"]
    assert await Holder(*topics).whole() == await Holder(*reversed(topics)).whole()


async def test_a_change_costs_its_chunk_and_not_the_image() -> None:
    holder = Holder(*(held(f"t{number}", 1, id=f"{number}") for number in range(2_000)), held("large", 5_000))
    await holder.whole()
    counted = holder.digest.hashed
    holder.put(with_state(held("large", 5_000), 4_999, leader=9), 4_999)
    await holder.whole()
    assert 0 < holder.digest.hashed - counted <= CHUNK
    counted = holder.digest.hashed
    holder.put(held("t7", 1, leader=3, id="7"), 0)
    await holder.whole()
    assert holder.digest.hashed - counted == 1
    await holder.whole()
    assert holder.digest.hashed - counted == 1, "nothing changed"
    assert await holder.whole() == await holder.from_nothing()


async def test_a_change_of_more_topics_than_are_noted_takes_no_time_when_it_comes_and_is_counted_when_asked() -> None:
    count = NOTED_MAX + 1
    holder = Holder(*(held(f"t{number}", 1, id=f"{number}") for number in range(count)))
    before = await holder.whole()
    topics = {f"t{number}": held(f"t{number}", 1, leader=2, id=f"{number}") for number in range(count)}
    holder.image = replace(holder.image, topics=Map(topics))
    everything = {TopicId(f"{number}"): TopicNews(f"t{number}", frozenset({0})) for number in range(count)}
    holder.digest.changed(News(topics=everything))
    assert not holder.digest.has_begun, "nothing was noted"
    after = await holder.whole()
    assert after != before
    assert after == await holder.from_nothing()
    counted = holder.digest.hashed
    # A small one is noted again.
    holder.put(held("t7", 1, leader=3, id="7"), 0)
    assert await holder.whole() == await holder.from_nothing()
    assert holder.digest.hashed - counted == 1


async def test_a_computation_that_was_cut_off_leaves_no_wrong_sum() -> None:
    holder = Holder(*(held(f"t{number}", 50, id=f"{number}") for number in range(100)))
    cut = asyncio.ensure_future(holder.whole())
    while not holder.digest.hashed:
        await asyncio.sleep(0)
    holder.put(held("t7", 60, id="7"), *range(50, 60))
    cut.cancel()
    await asyncio.wait([cut])
    assert await holder.whole() == await holder.from_nothing()


async def test_what_changes_while_it_is_computed_counts_the_next_time() -> None:
    holder = Holder(*(held(f"t{number}", 50, id=f"{number}") for number in range(100)))
    first = asyncio.ensure_future(holder.digest.digests())
    while not holder.digest.hashed:
        await asyncio.sleep(0)
    before = holder.image
    holder.put(held("t0", 60, id="0"), *range(50, 60))
    assert (await first).image is before
    assert await holder.whole() == await holder.from_nothing()


async def test_two_that_ask_at_once_get_one_computation() -> None:
    holder = Holder(*(held(f"t{number}", 50, id=f"{number}") for number in range(100)))
    one, other = await asyncio.gather(holder.whole(), holder.whole())
    assert one == other
    assert holder.digest.hashed == 5_000


async def nowhere(_epoch: int) -> bool:
    return False


async def anywhere(_epoch: int) -> bool:
    return True


def process() -> Propagation:
    return Propagation(
        id=MetadataId(1),
        open_stream=lambda _address: ReceivingBroker(),
        clock=SystemClock(),
        believes=anywhere,
        shows=nowhere,
        spawn=lambda name, coroutine: asyncio.get_running_loop().create_task(coroutine, name=name),
    )


@pytest.mark.parametrize("seed", range(10))
async def test_processes_that_heard_of_it_differently_have_the_same_digest(seed: int) -> None:
    """One takes every change, one only the last of it as a whole, and the digest is asked for at any moment."""
    chance = random.Random(seed)
    follows = process()
    await follows.take(change(0, 1, topic("a", 1, 2), topic("b", 3), brokers=[broker(1), broker(2)]))
    present = {"a": [1, 2], "b": [3]}
    for version in range(1, 60):
        name = chance.choice("abcde")
        if name in present and chance.random() < 0.2:
            del present[name]
            told = gone(name)
        else:
            leaders = present.setdefault(name, [1])
            if chance.random() < 0.3:
                leaders.append(1)
            number = chance.randrange(len(leaders))
            leaders[number] = chance.randint(1, 9)
            told = topic(name, *leaders)
        await follows.take(change(version, version + 1, told))
        if chance.random() < 0.3:
            await follows.digest.digests()
    late = process()
    topics = [topic(name, *leaders) for name, leaders in sorted(present.items(), reverse=True)]
    await late.take(change(0, 60, *topics, brokers=[broker(1), broker(2)]))
    one, other = await follows.digest.digests(), await late.digest.digests()
    again = await follows.digest.digests(recompute=True)
    assert one.whole == other.whole == again.whole
    assert follows.held.position == late.held.position


async def asked(holder: Holder, **request: object) -> image_pb2.DescribeImageResponse:
    servicer = ImageServicer(lambda: holder.image, holder.digest, SystemClock())
    question = image_pb2.DescribeImageRequest(**request)  # type: ignore[arg-type]  # fields by name
    return image_pb2.DescribeImageResponse.FromString(await servicer.DescribeImage(question, None))


async def test_what_differs_is_found_by_section_topic_and_state() -> None:
    topics = [held(f"t{number}", 3, id=f"{number}") for number in range(500)]
    one, other = Holder(*topics), Holder(*topics)
    other.put(with_state(topics[77], 2, leader=9), 2)
    first, second = await asked(one, sections=True), await asked(other, sections=True)
    assert len(first.section_digests) == SECTIONS
    differing = [n for n in range(SECTIONS) if first.section_digests[n] != second.section_digests[n]]
    assert differing == [section_of("t77")]
    by_name = [
        {item.name: item.digest for item in (await asked(holder, topics_of_sections=differing)).topic_digests}
        for holder in (one, other)
    ]
    assert [name for name in by_name[0] if by_name[0][name] != by_name[1][name]] == ["t77"]
    state = (await asked(other, topics=["t77", "nowhere"])).topics
    assert [(item.name, [one.leader for one in item.partitions]) for item in state] == [("t77", [1, 1, 9])]


async def test_a_topic_of_many_partitions_is_answered_in_parts() -> None:
    holder = Holder(held("large", STATES_MAX + 5))
    first = await asked(holder, topics=["large"])
    assert (len(first.topics[0].partitions), first.next_partition) == (STATES_MAX, STATES_MAX)
    rest = await asked(holder, topics=["large"], from_partition=first.next_partition)
    assert (len(rest.topics[0].partitions), rest.next_partition) == (5, 0)


@pytest.mark.parametrize(
    "request_",
    [{"topics_of_sections": [256]}, {"topics_of_sections": [0] * 257}, {"topics": [f"t{n}" for n in range(101)]}],
)
async def test_questions_that_make_no_sense_are_refused(request_: dict[str, list[object]]) -> None:
    with pytest.raises(RegnumError):
        await asked(Holder(), **request_)


async def test_an_answer_waits_for_a_version_for_as_long_as_it_is_told() -> None:
    holder = Holder(held("a", 1))
    waiting = asyncio.ensure_future(asked(holder, version=(1 << 32) + 2, wait_ms=10_000))
    # One turn: it has asked, and found no such version.
    await asyncio.sleep(0)
    assert not waiting.done()
    holder.put(held("b", 1))
    assert (await waiting).version == (1 << 32) + 2
    assert (await asked(holder, version=9 << 32, wait_ms=1)).version == (1 << 32) + 2


def test_a_broker_that_was_told_nothing_has_the_digest_of_nothing() -> None:
    cache = MetadataCache(Fence(), lambda _brokers: None)
    other = process()
    assert asyncio.run(cache.digest.digests()).whole == asyncio.run(other.digest.digests()).whole


async def test_several_that_ask_for_everything_to_be_counted_share_what_begins_after_they_asked() -> None:
    count = 3_000
    holder = Holder(held("a", count))
    first = asyncio.create_task(holder.digest.digests(recompute=True))
    while not holder.digest.hashed:
        await asyncio.sleep(0)
    # That one has begun: what changes from here on is not in it, and these wait for the next.
    holder.put(with_state(holder.image.topics["a"], 7, leader=9), 7)  # type: ignore[arg-type]  # it is a TopicImage
    others = await asyncio.gather(*(holder.digest.digests(recompute=True) for _ in range(20)))
    await first
    assert {one.whole for one in others} == {await holder.from_nothing()}
    assert holder.digest.hashed == 2 * count


async def test_who_waited_for_a_computation_that_was_given_up_has_one_of_his_own() -> None:
    holder = Holder(held("a", 3_000))
    given_up = asyncio.create_task(holder.digest.digests(recompute=True))
    while not holder.digest.hashed:
        await asyncio.sleep(0)
    waiting = asyncio.create_task(holder.digest.digests(recompute=True))
    await asyncio.sleep(0)
    given_up.cancel()
    assert (await waiting).whole == await holder.from_nothing()
