"""ImageService of an election process: what the controller published, where this one is it."""

from typing import Any, Final

from regnum.metadata.v1 import image_pb2
from regnum_service.clock import Clock
from regnum_service.cluster_image.describing import ImageServicer

from regnum_election.candidacy.role import ControllerRole

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class ControllerImageServicer:
    """Answers of the present reign."""

    def __init__(self, role: ControllerRole, clock: Clock) -> None:
        self._role: Final = role
        self._clock: Final = clock

    async def DescribeImage(  # noqa: N802 - gRPC's name
        self, request: image_pb2.DescribeImageRequest, context: Context
    ) -> bytes:
        """A DescribeImageResponse. Raises RegnumError NOT_CONTROLLER."""
        metadata = (await self._role.controller()).health.context.metadata
        return await ImageServicer(lambda: metadata.held, metadata.digest, self._clock).DescribeImage(request, context)
