"""The largest images hold the loop of a metadata process shortly (safety rule S22)."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from typing import Any

import pytest
from regnum.metadata.v1 import image_pb2, metadata_pb2
from regnum.propagation.v1 import propagation_pb2
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import types_pb2
from regnum_metadata.propagation import Propagation
from regnum_metadata.servicers.metadata import MetadataServicer
from regnum_metadata.servicers.propagation import PropagationServicer
from regnum_model.ids import MetadataId
from regnum_service.clock import SystemClock
from regnum_service.cluster_image.describing import ImageServicer
from regnum_service.cluster_image.watchers import Watcher
from regnum_service.topic_pages import NAMES_MAX
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.metadata_values import broker

pytestmark = pytest.mark.alone

BROKERS = 1_000
PART_PARTITIONS = 1_000
LARGEST = ((200_000, 1), (20, 10_000))
"""Topics, and partitions of each: 200,000 partitions in as many topics, and in as few, as may be."""


def topics(count: int, partitions: int, *, leader_epoch: int) -> Iterator[types_pb2.TopicState]:
    for number in range(count):
        yield types_pb2.TopicState(
            name=f"topic-{number:06}",
            topic_id=f"{number:022}",
            partitions=[
                types_pb2.PartitionState(
                    partition=each, leader=1, leader_epoch=leader_epoch, isr=[1, 2, 3], replicas=[1, 2, 3]
                )
                for each in range(partitions)
            ],
        )


def cut(states: Iterable[types_pb2.TopicState]) -> Iterator[list[types_pb2.TopicState]]:
    """In parts, as a controller sends them."""
    part: list[types_pb2.TopicState] = []
    size = 0
    for state in states:
        for start in range(0, len(state.partitions), PART_PARTITIONS):
            some = state.partitions[start : start + PART_PARTITIONS]
            if part and size + len(some) > PART_PARTITIONS:
                yield part
                part, size = [], 0
            part.append(types_pb2.TopicState(name=state.name, topic_id=state.topic_id, partitions=some))
            size += len(some)
    yield part


class Body:
    """Topics in the bytes of the wire, in parts, for as many publications as need them."""

    def __init__(self, states: Iterable[types_pb2.TopicState]) -> None:
        self._parts = [propagation_pb2.PublishChangesRequest(topics=part).SerializeToString() for part in cut(states)]

    async def parts(
        self, epoch: int, from_version: int, to_version: int
    ) -> AsyncIterator[propagation_pb2.PublishChangesRequest]:
        """A change as a stream hands it over: parsed part by part, when it is read."""
        brokers = [broker(id) for id in range(1, BROKERS + 1)]
        for number, part in enumerate(self._parts):
            head = propagation_pb2.PublishChangesRequest(
                controller_id=7,
                controller_epoch=epoch,
                from_version=from_version,
                to_version=to_version,
                part=number,
                last=number == len(self._parts) - 1,
                max_broker_epoch=BROKERS,
                cluster_id="c",
                brokers=brokers if number == 0 and not from_version else (),
                all_brokers=number == 0 and not from_version,
            )
            # A turn for each message, as when it comes from the network.
            await asyncio.sleep(0)
            yield propagation_pb2.PublishChangesRequest.FromString(head.SerializeToString() + part)


class Taker:
    """A broker that takes whatever comes and reads only what it must."""

    def __init__(self) -> None:
        self._head = b""

    async def send(self, part: bytes) -> None:
        self._head = self._head or part
        # A turn for each message, as when it goes to the network.
        await asyncio.sleep(0)

    async def answer(self) -> control_pb2.UpdateMetadataResponse:
        head, self._head = control_pb2.UpdateMetadataRequest.FromString(self._head), b""
        return control_pb2.UpdateMetadataResponse(
            controller_epoch=head.controller_epoch, version=head.to_version, version_epoch=head.controller_epoch
        )

    def abandon(self) -> None:
        self._head = b""

    async def close(self) -> None:
        self.abandon()


async def anybody(_epoch: int) -> bool:
    return True


class World:
    """A metadata process that serves all brokers."""

    def __init__(self, held: HeldLoop) -> None:
        self._held = held
        self.tasks: list[asyncio.Task[None]] = []
        self.propagation = Propagation(
            id=MetadataId(1),
            open_stream=lambda _: Taker(),
            clock=SystemClock(),
            spawn=self._spawn,
            believes=anybody,
            shows=anybody,
        )

    def _spawn(self, name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.tasks.append(task)
        return task

    async def publish(self, what: str, body: Body, epoch: int, from_version: int, to_version: int) -> None:
        """Until every broker has it."""
        with self._held.measuring(what):
            parts = body.parts(epoch, from_version, to_version)
            await PropagationServicer(self.propagation).PublishChanges(parts, None)
            while not all(lane.acknowledged >= to_version for lane in self.propagation.lanes):
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("count", "partitions"),
    [(20_000, 1), *(pytest.param(*shape, marks=pytest.mark.full) for shape in ((70_000, 1), *LARGEST))],
)
def test_an_image_comes_changes_and_is_shown(count: int, partitions: int) -> None:
    one, other = (Body(topics(count, partitions, leader_epoch=epoch)) for epoch in (1, 2))
    small = Body(topics(1, 1, leader_epoch=3))
    asked = min(count, NAMES_MAX // 2)
    named = metadata_pb2.GetMetadataRequest(topics=[f"topic-{number:06}" for number in range(asked)] * 2)

    async def scenario(held: HeldLoop) -> None:
        world = World(held)
        await world.propagation.processes_are(frozenset({MetadataId(1)}))
        await world.publish("the first image", one, 1, 0, 1)
        await world.publish("a change of one partition", small, 1, 1, 2)
        await world.publish("a change of every partition", other, 1, 2, 3)
        await world.publish("another reign, where nothing differs", other, 2, 0, 4)
        await world.publish("another reign, where everything differs", one, 3, 0, 5)
        servicer = MetadataServicer(lambda: world.propagation.image, world.propagation.names, world.propagation.feed)
        everything = ("by nobody's name", metadata_pb2.GetMetadataRequest(), count)
        for what, request, topics_shown in (everything, ("by name", named, asked)):
            with held.measuring(f"topics are asked for {what}"):
                answer = await servicer.GetMetadata(request, None)
            shown = metadata_pb2.GetMetadataResponse.FromString(answer)
            assert len(shown.brokers) == BROKERS
            assert sum(len(item.topic.partitions) for item in shown.topics) == topics_shown * partitions
            del shown
        for summaries in (False, True):
            request = metadata_pb2.DescribeTopicsRequest(limit=10_000, summaries=summaries)
            described = 0
            with held.measuring(f"topics are described page by page, summaries {summaries}"):
                while True:
                    page = metadata_pb2.DescribeTopicsResponse.FromString(await servicer.DescribeTopics(request, None))
                    described += sum(len(item.topic.partitions) for item in page.topics)
                    described += sum(one.partitions for one in page.summaries)
                    if not page.HasField("next_cursor"):
                        break
                    request.cursor.CopyFrom(page.next_cursor)
            assert described == count * partitions
        with held.measuring("how far 1000 brokers are"):
            question = propagation_pb2.DescribeLagRequest(controller_epoch=3, version=5, wait_ms=1_000)
            lag = await PropagationServicer(world.propagation).DescribeLag(question, None)
            lag.SerializeToString()
        assert len(lag.brokers) == BROKERS
        await world.publish("another reign, where nearly everything is gone", small, 4, 0, 6)
        assert len(world.propagation.image.topics) == 1
        await world.close()

    run_measured(scenario).assert_free()


@pytest.mark.parametrize(
    ("count", "partitions"),
    [(20_000, 1), *(pytest.param(*shape, marks=pytest.mark.full) for shape in LARGEST)],
)
def test_an_image_is_compared_and_watched(count: int, partitions: int) -> None:
    first, second = (Body(topics(count, partitions, leader_epoch=epoch)) for epoch in (1, 2))

    async def scenario(held: HeldLoop) -> None:
        world = World(held)
        propagation = world.propagation
        waker = asyncio.ensure_future(propagation.feed.run())
        await world.publish("the first image", first, 1, 0, 1)
        images = ImageServicer(lambda: propagation.held, propagation.digest, SystemClock())
        names = list(propagation.image.topics)
        everything = Watcher(all_topics=True)
        some = Watcher()
        many = [Watcher() for _ in range(500)]
        watchers = propagation.feed.watchers
        for watcher in (everything, some, *many):
            watchers.admit(watcher)
        watchers.name(some, names[:10_000])
        for number, watcher in enumerate(many):
            watchers.name(watcher, [names[number % len(names)]])
        for what, question in (
            ("for the first time", image_pb2.DescribeImageRequest(sections=True)),
            ("from nothing", image_pb2.DescribeImageRequest(recompute=True)),
            ("topic by topic", image_pb2.DescribeImageRequest(topics_of_sections=range(256))),
            ("by name", image_pb2.DescribeImageRequest(topics=names[:100])),
        ):
            with held.measuring(f"an image is described {what}"):
                await images.DescribeImage(question, None)
        for told, body, version in (("everything", None, 1), ("every change", second, 2)):
            if body is not None:
                await world.publish("a change of every partition", body, 1, version - 1, version)
            for who, watcher in (("of all topics", everything), ("of some", some)):
                with held.measuring(f"a watcher {who} is told {told}"):
                    async for _ in propagation.feed.changes(watcher):
                        # Watchers are answered one turn each, as the servicer does it.
                        await asyncio.sleep(0)
            with held.measuring(f"500 watchers are told {told}"):
                for watcher in many:
                    async for _ in propagation.feed.changes(watcher):
                        pass
                    # As above.
                    await asyncio.sleep(0)
        with held.measuring("an image is described after every partition changed"):
            await images.DescribeImage(image_pb2.DescribeImageRequest(), None)
        waker.cancel()
        await world.close()

    run_measured(scenario).assert_free()
