"""MetadataService: the cluster as this process knows it."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.topics import InvalidTopicNameError, check_topic_name

from regnum_metadata.image import Image, TopicImage

TOPICS_PER_TURN: Final = 200
"""Topics put into an answer between two turns of the event loop (safety rule S22)."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class MetadataServicer(metadata_pb2_grpc.MetadataServiceServicer):
    """Answers from the image."""

    def __init__(self, image: Callable[[], Image]) -> None:
        self._image: Final = image

    async def GetMetadata(  # noqa: N802 - gRPC's name
        self,
        request: metadata_pb2.GetMetadataRequest,
        context: Context,  # noqa: ARG002
    ) -> metadata_pb2.GetMetadataResponse:
        """The newest picture."""
        image = self._image()
        topics: list[metadata_pb2.TopicMetadata] = []
        if not request.brokers_only:
            for name in dict.fromkeys(request.topics or sorted(image.topics)):
                topics.append(_topic(name, image.topics.get(name)))
                if len(topics) % TOPICS_PER_TURN == 0:
                    await asyncio.sleep(0)
        return metadata_pb2.GetMetadataResponse(
            cluster_id=image.head.cluster_id,
            controller=image.head.controller,
            brokers=image.head.brokers,
            topics=topics,
            version=(image.controller_epoch << 32) + image.version,
        )


def _topic(name: str, topic: TopicImage | None) -> metadata_pb2.TopicMetadata:
    if topic is not None:
        states = [topic.partitions[number] for number in sorted(topic.partitions)]
        return metadata_pb2.TopicMetadata(
            topic=types_pb2.TopicState(name=name, topic_id=topic.topic_id, partitions=states)
        )
    try:
        check_topic_name(name)
    except InvalidTopicNameError:
        code = errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
    else:
        code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    return metadata_pb2.TopicMetadata(error_code=code, topic=types_pb2.TopicState(name=name))
