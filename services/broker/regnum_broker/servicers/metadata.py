"""MetadataService: the cluster as this broker knows it."""

import asyncio
from typing import Any, Final

from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.broker_lists import NO_BROKERS, BrokerLists
from regnum_model.topics import InvalidTopicNameError, check_topic_name
from regnum_service.encoding import Encoding
from regnum_service.slices import slices

from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache, TopicView

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


SLICE: Final = 1_000
"""Partitions put into an answer before the event loop gets a turn (safety rule S22)."""

TOPIC_WEIGHT: Final = 2
"""What a topic takes besides, in partitions."""


class MetadataServicer:
    """Answers from the cache; what it answers is encoded."""

    def __init__(self, cache: MetadataCache, leaders: CurrentLeaders) -> None:
        self._cache: Final = cache
        self._leaders: Final = leaders
        self._broker_lists: Final = BrokerLists()
        self._building: Final = asyncio.Lock()
        """One large answer at a time, so that many do not add up to one long turn."""

    async def GetMetadata(  # noqa: N802 - gRPC's name
        self,
        request: metadata_pb2.GetMetadataRequest,
        context: Context,  # noqa: ARG002
    ) -> bytes:
        """The newest picture: a GetMetadataResponse."""
        if request.brokers_only:
            return self._head(request.known_brokers).SerializeToString()
        async with self._building:
            # Of one picture, however long it takes: what the cache holds now is replaced and never changed; what
            # is laid over it only gets newer.
            answer = Encoding(self._head(request.known_brokers), size=SLICE)
            known = self._cache.topics
            if not request.topics:
                for view in known.values():
                    await self._add(answer, view)
                return answer.whole()
            named: set[str] = set()
            for name in request.topics:
                if name in named:
                    await answer.took()
                    continue
                named.add(name)
                found = known.get(name)
                if found is not None:
                    await self._add(answer, found)
                else:
                    answer.piece.topics.append(_unknown(name))
                    await answer.took(TOPIC_WEIGHT)
            return answer.whole()

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


def _unknown(name: str) -> metadata_pb2.TopicMetadata:
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        code = errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
    else:
        code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    return metadata_pb2.TopicMetadata(error_code=code, topic=types_pb2.TopicState(name=name))
