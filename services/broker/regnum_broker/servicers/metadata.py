"""MetadataService: the cluster as this broker knows it."""

import asyncio
from typing import Any, Final

from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.topics import InvalidTopicNameError, check_topic_name

from regnum_broker.current_leaders import CurrentLeaders
from regnum_broker.metadata_cache import MetadataCache, TopicView

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


SLICE: Final = 1_000
"""Partitions, or topics, put into an answer before the event loop gets a turn (safety rule S22)."""


class MetadataServicer(metadata_pb2_grpc.MetadataServiceServicer):
    """Answers from the cache."""

    def __init__(self, cache: MetadataCache, leaders: CurrentLeaders) -> None:
        self._cache: Final = cache
        self._leaders: Final = leaders
        self._building: Final = asyncio.Lock()
        """One large answer at a time, so that many do not add up to one long turn."""

    async def GetMetadata(  # noqa: N802 - gRPC's name
        self,
        request: metadata_pb2.GetMetadataRequest,
        context: Context,  # noqa: ARG002
    ) -> metadata_pb2.GetMetadataResponse:
        """The newest picture."""
        cache = self._cache
        if request.brokers_only:
            return _head(cache)
        async with self._building:
            # Of one picture, however long it takes: what the cache holds now is replaced and never changed; what
            # is laid over it only gets newer.
            answer, known = _head(cache), cache.topics
            names = list(dict.fromkeys(request.topics)) or sorted(known)
            weight = 0
            for name in names:
                view = known.get(name)
                weight += 1 if view is None else 1 + len(view.partitions)
                if weight > SLICE:
                    weight = 0
                    await asyncio.sleep(0)
                if view is None:
                    answer.topics.append(_unknown(name))
                else:
                    await self._add(answer, view)
            return answer

    async def _add(self, answer: metadata_pb2.GetMetadataResponse, view: TopicView) -> None:
        state = answer.topics.add().topic
        state.name, state.topic_id = view.name, view.topic_id
        numbers = sorted(view.partitions)
        for start in range(0, len(numbers), SLICE):
            if start:
                await asyncio.sleep(0)
            state.partitions.extend([self._leaders.state_of(view, number) for number in numbers[start : start + SLICE]])


def _head(cache: MetadataCache) -> metadata_pb2.GetMetadataResponse:
    return metadata_pb2.GetMetadataResponse(
        cluster_id=cache.cluster_id, controller=cache.controller, brokers=cache.brokers, version=cache.version
    )


def _unknown(name: str) -> metadata_pb2.TopicMetadata:
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        code = errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
    else:
        code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    return metadata_pb2.TopicMetadata(error_code=code, topic=types_pb2.TopicState(name=name))
