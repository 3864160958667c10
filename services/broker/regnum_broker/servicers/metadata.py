"""MetadataService: the cluster as this broker knows it."""

from typing import Any, Final

from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.topics import InvalidTopicNameError, check_topic_name

from regnum_broker.metadata_cache import MetadataCache, TopicView

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class MetadataServicer(metadata_pb2_grpc.MetadataServiceServicer):
    """Answers from the cache."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache: Final = cache

    async def GetMetadata(  # noqa: N802 - gRPC's name
        self,
        request: metadata_pb2.GetMetadataRequest,
        context: Context,  # noqa: ARG002
    ) -> metadata_pb2.GetMetadataResponse:
        """The newest picture."""
        cache = self._cache
        topics: list[metadata_pb2.TopicMetadata] = []
        if not request.brokers_only:
            names = list(request.topics) or sorted(cache.topics)
            topics = [self._topic(name) for name in dict.fromkeys(names)]
        return metadata_pb2.GetMetadataResponse(
            cluster_id=cache.cluster_id,
            controller=cache.controller,
            brokers=cache.brokers,
            topics=topics,
            version=cache.version,
        )

    def _topic(self, name: str) -> metadata_pb2.TopicMetadata:
        view = self._cache.topics.get(name)
        if view is not None:
            return metadata_pb2.TopicMetadata(topic=_state(view))
        try:
            check_topic_name(name)
        except InvalidTopicNameError:
            code = errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
        else:
            code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
        return metadata_pb2.TopicMetadata(error_code=code, topic=types_pb2.TopicState(name=name))


def _state(view: TopicView) -> types_pb2.TopicState:
    return types_pb2.TopicState(
        name=view.name,
        topic_id=view.topic_id,
        partitions=[view.partitions[number] for number in sorted(view.partitions)],
    )
