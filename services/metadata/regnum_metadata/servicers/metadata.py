"""MetadataService: the cluster as this process knows it."""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Final

from regnum.metadata.v1 import metadata_pb2
from regnum_model.broker_lists import NO_BROKERS, BrokerLists
from regnum_service.access.authorization import EVERYBODY, Authorizer
from regnum_service.access.topic_sight import TopicSight, forbidden_topic
from regnum_service.cluster_image.feed import ClusterFeed
from regnum_service.cluster_image.held import to_wire
from regnum_service.cluster_image.watching import watch
from regnum_service.encoding import Encoding
from regnum_service.name_order import NameOrder
from regnum_service.slices import slices
from regnum_service.topic_pages import TopicPages, check_names, listed, unknown_topic

from regnum_metadata.image import Image, TopicImage

PARTITIONS_PER_TURN: Final = 1_000
"""Partitions put into an answer between two turns of the event loop (safety rule S22)."""

TOPIC_WEIGHT: Final = 2
"""What a topic takes besides, in partitions."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class MetadataServicer:
    """Answers from the image; what it answers is encoded."""

    def __init__(
        self, image: Callable[[], Image], names: NameOrder, feed: ClusterFeed, authorizer: Authorizer = EVERYBODY
    ) -> None:
        """Only assigns.

        Args:
            image: the image as of now.
            names: the names of its topics; told of every change of them.
            feed: what watchers are told.
            authorizer: says which topics a caller may be told of.
        """
        self._authorizer: Final = authorizer
        self._feed: Final = feed
        self._image: Final = image
        self._names: Final = names
        self._pages: Final = TopicPages(lambda: image().topics, names, authorizer=authorizer)
        self._broker_lists: Final = BrokerLists()

    async def GetMetadata(  # noqa: N802 - gRPC's name
        self,
        request: metadata_pb2.GetMetadataRequest,
        context: Context,  # noqa: ARG002
    ) -> bytes:
        """The newest picture: a GetMetadataResponse. Raises RegnumError INVALID_REQUEST for too many names."""
        check_names(request.topics)
        image = self._image()
        answer = Encoding(self._head(image, request.known_brokers), size=PARTITIONS_PER_TURN)
        if request.brokers_only:
            return answer.whole()
        sight = TopicSight(self._authorizer)
        if not request.topics:
            for topic in await listed(sight, self._names, lambda: self._image().topics):
                if sight.lists(topic.name):
                    await _add_topic(answer, topic)
                else:
                    await answer.took()
            return answer.whole()
        named: set[str] = set()
        for name in request.topics:
            if name in named:
                await answer.took()
                continue
            named.add(name)
            known = image.topics.get(name)
            if not sight.answers(name):
                answer.piece.topics.append(forbidden_topic(name))
                await answer.took(TOPIC_WEIGHT)
            elif known is not None:
                await _add_topic(answer, known)
            else:
                answer.piece.topics.append(unknown_topic(name))
                await answer.took(TOPIC_WEIGHT)
        return answer.whole()

    async def DescribeTopics(  # noqa: N802 - gRPC's name
        self,
        request: metadata_pb2.DescribeTopicsRequest,
        context: Context,  # noqa: ARG002
    ) -> bytes:
        """A page of topics: a DescribeTopicsResponse."""

        def head() -> metadata_pb2.DescribeTopicsResponse:
            image = self._image()
            return metadata_pb2.DescribeTopicsResponse(
                cluster_id=image.head.cluster_id, version=(image.controller_epoch << 32) + image.version
            )

        return await self._pages.page(request, head)

    async def DescribeCluster(  # noqa: N802 - gRPC's name
        self,
        request: metadata_pb2.DescribeClusterRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> metadata_pb2.DescribeClusterResponse:
        """The cluster without its topics."""
        image = self._image()
        return metadata_pb2.DescribeClusterResponse(
            cluster_id=image.head.cluster_id,
            controller=image.head.controller,
            brokers=image.head.brokers,
            version=to_wire(image.position),
            topics=len(image.topics),
        )

    async def WatchMetadata(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[metadata_pb2.WatchMetadataRequest],
        context: Context,
    ) -> AsyncIterator[bytes]:
        """Changes, as WatchMetadataResponses."""
        async with aclosing(watch(self._feed, request_iterator, connection=context.peer())) as told:
            async for message in told:
                yield message

    def _head(self, image: Image, known_brokers: int) -> metadata_pb2.GetMetadataResponse:
        head = image.head
        digest = self._broker_lists.digest(head.brokers)
        unchanged = digest == known_brokers != NO_BROKERS
        return metadata_pb2.GetMetadataResponse(
            cluster_id=head.cluster_id,
            controller=head.controller,
            brokers=() if unchanged else head.brokers,
            version=(image.controller_epoch << 32) + image.version,
            brokers_digest=digest,
            brokers_unchanged=unchanged,
        )


async def _add_topic(answer: Encoding[metadata_pb2.GetMetadataResponse], topic: TopicImage) -> None:
    state = answer.piece.topics.add().topic
    state.name, state.topic_id = topic.name, topic.topic_id
    async for numbers in slices(sorted(topic.partitions), PARTITIONS_PER_TURN):
        state.partitions.extend([topic.partitions[number] for number in numbers])
    await answer.took(TOPIC_WEIGHT + len(topic.partitions))
