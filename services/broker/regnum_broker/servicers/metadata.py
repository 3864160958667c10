"""MetadataService: the cluster as this broker knows it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, nullcontext
from typing import Any, Final

from regnum.metadata.v1 import metadata_pb2
from regnum_model.broker_lists import NO_BROKERS, BrokerLists
from regnum_service.access.authorization import EVERYBODY, Authorizer
from regnum_service.access.topic_sight import TopicSight, forbidden_topic
from regnum_service.cluster_image.watching import watch
from regnum_service.encoding import Encoding
from regnum_service.slices import slices
from regnum_service.topic_pages import TopicPages, check_names, listed, unknown_topic

from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache, TopicView

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


SLICE: Final = 1_000
"""Partitions put into an answer before the event loop gets a turn (safety rule S22)."""

SMALL: Final = 100
"""Topics and partitions of an answer that is made at once: it costs what any other call does."""

TOPIC_WEIGHT: Final = 2
"""What a topic takes besides, in partitions."""


class MetadataServicer:
    """Answers from the cache; what it answers is encoded."""

    def __init__(self, cache: MetadataCache, leaders: CurrentLeaders, authorizer: Authorizer = EVERYBODY) -> None:
        """Only assigns; ``authorizer`` says which topics a caller may be told of."""
        self._authorizer: Final = authorizer
        self._cache: Final = cache
        self._leaders: Final = leaders
        self._broker_lists: Final = BrokerLists()
        self._building: Final = asyncio.Lock()
        """One large answer at a time, so that many do not add up to one long turn."""
        self._pages: Final = TopicPages(lambda: cache.topics, cache.names, leaders.state_of, authorizer)

    async def GetMetadata(  # noqa: N802 - gRPC's name
        self,
        request: metadata_pb2.GetMetadataRequest,
        context: Context,  # noqa: ARG002
    ) -> bytes:
        """The newest picture: a GetMetadataResponse. Raises RegnumError INVALID_REQUEST for too many names."""
        check_names(request.topics)
        if request.brokers_only:
            return self._head(request.known_brokers).SerializeToString()
        async with nullcontext() if self._is_small(request) else self._building:
            # Of one picture, however long it takes: what the cache holds now is replaced and never changed; what
            # is laid over it only gets newer.
            answer = Encoding(self._head(request.known_brokers), size=SLICE)
            known, sight = self._cache.topics, TopicSight(self._authorizer)
            if not request.topics:
                for view in await listed(sight, self._cache.names, lambda: self._cache.topics):
                    if sight.lists(view.name):
                        await self._add(answer, view)
                    else:
                        await answer.took()
                return answer.whole()
            named: set[str] = set()
            for name in request.topics:
                if name in named:
                    await answer.took()
                    continue
                named.add(name)
                found = known.get(name)
                if not sight.answers(name):
                    answer.piece.topics.append(forbidden_topic(name))
                    await answer.took(TOPIC_WEIGHT)
                elif found is not None:
                    await self._add(answer, found)
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
        cache = self._cache
        return await self._pages.page(
            request,
            lambda: metadata_pb2.DescribeTopicsResponse(cluster_id=cache.cluster_id, version=cache.version),
        )

    async def DescribeCluster(  # noqa: N802 - gRPC's name
        self,
        request: metadata_pb2.DescribeClusterRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> metadata_pb2.DescribeClusterResponse:
        """The cluster without its topics."""
        cache = self._cache
        return metadata_pb2.DescribeClusterResponse(
            cluster_id=cache.cluster_id,
            controller=cache.controller,
            brokers=cache.brokers,
            version=cache.version,
            topics=len(cache.topics),
        )

    async def WatchMetadata(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[metadata_pb2.WatchMetadataRequest],
        context: Context,
    ) -> AsyncIterator[bytes]:
        """Changes, as WatchMetadataResponses: of what this broker was told, without what it was ordered."""
        async with aclosing(watch(self._cache.feed, request_iterator, connection=context.peer())) as told:
            async for message in told:
                yield message

    def _is_small(self, request: metadata_pb2.GetMetadataRequest) -> bool:
        """Whether an answer waits for no other: else a call that names 10,000 topics holds up all that name one."""
        if not 0 < len(request.topics) <= SMALL:
            return False
        found = map(self._cache.topics.get, request.topics)
        return len(request.topics) + sum(len(view.partitions) for view in found if view is not None) <= SMALL

    async def _add(self, answer: Encoding[metadata_pb2.GetMetadataResponse], view: TopicView) -> None:
        state = answer.piece.topics.add().topic
        state.name, state.topic_id = view.name, view.topic_id
        async for numbers in slices(sorted(view.partitions), SLICE):
            state.partitions.extend([self._leaders.state_of(view, number) for number in numbers])
        await answer.took(TOPIC_WEIGHT + len(view.partitions))

    def _head(self, known_brokers: int) -> metadata_pb2.GetMetadataResponse:
        cache = self._cache
        digest = self._broker_lists.digest(cache.brokers)
        unchanged = digest == known_brokers != NO_BROKERS
        return metadata_pb2.GetMetadataResponse(
            cluster_id=cache.cluster_id,
            controller=cache.controller,
            brokers=() if unchanged else cache.brokers,
            version=cache.version,
            brokers_digest=digest,
            brokers_unchanged=unchanged,
        )
