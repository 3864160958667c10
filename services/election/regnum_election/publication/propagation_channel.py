"""PropagationChannel over gRPC: one channel to one incarnation of one metadata process."""

from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from regnum.propagation.v1 import propagation_pb2, propagation_pb2_grpc
from regnum_model.ids import MetadataId
from regnum_model.nodes import Address
from regnum_service import addressee
from regnum_service.channel import Open, PeerChannel, open_channel
from regnum_service.status import from_rpc_error

PUBLISH_CHANGES: Final = "/regnum.propagation.v1.PropagationService/PublishChanges"
"""Full name of the call, whose messages are encoded elsewhere."""

PUBLISH_TIMEOUT_S: Final = 15.0
"""Deadline of one change, a full image included."""

LAG_TIMEOUT_S: Final = 1.0
"""Deadline of DescribeLag, above the time it is asked to wait."""


class GrpcPropagationChannel:
    """Calls one metadata process. Not connected before the first call."""

    def __init__(self, process: MetadataId, address: Address, open_one: Open = open_channel) -> None:
        """Only assigns; ``open_one`` opens the channel."""
        self._channel: Final = PeerChannel(
            address, addressee.metadata(process), gone="that metadata process is told no more", open_one=open_one
        )
        self._publish: Any = None

    async def publish(self, parts: AsyncIterator[bytes]) -> propagation_pb2.PublishChangesResponse:
        """One change, whose parts are encoded."""
        channel = self._channel.get()
        if self._publish is None:
            self._publish = channel.stream_unary(
                PUBLISH_CHANGES,
                request_serializer=bytes,
                response_deserializer=propagation_pb2.PublishChangesResponse.FromString,
            )
        try:
            answer: propagation_pb2.PublishChangesResponse = await self._publish(parts, timeout=PUBLISH_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        else:
            return answer

    async def lag(self, request: propagation_pb2.DescribeLagRequest) -> propagation_pb2.DescribeLagResponse:
        """How far its brokers are."""
        stub = propagation_pb2_grpc.PropagationServiceStub(self._channel.get())
        try:
            return await stub.DescribeLag(request, timeout=LAG_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def close(self) -> None:
        """Hang up, for good."""
        await self._channel.close()
