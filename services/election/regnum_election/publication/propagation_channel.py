"""PropagationChannel over gRPC: one channel to one incarnation of one metadata process."""

from collections.abc import AsyncIterator
from typing import Final

from regnum.propagation.v1 import propagation_pb2, propagation_pb2_grpc
from regnum_model.ids import MetadataId
from regnum_model.nodes import Address
from regnum_service import addressee
from regnum_service.channel import Open, PeerChannel, open_channel

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

    async def publish(self, parts: AsyncIterator[bytes]) -> propagation_pb2.PublishChangesResponse:
        """One change, whose parts are encoded."""
        call = self._channel.get().stream_unary(
            PUBLISH_CHANGES,
            request_serializer=bytes,
            response_deserializer=propagation_pb2.PublishChangesResponse.FromString,
        )
        answer: propagation_pb2.PublishChangesResponse = await self._channel.answer(
            call(parts, timeout=PUBLISH_TIMEOUT_S)
        )
        return answer

    async def lag(self, request: propagation_pb2.DescribeLagRequest) -> propagation_pb2.DescribeLagResponse:
        """How far its brokers are."""
        stub = propagation_pb2_grpc.PropagationServiceStub(self._channel.get())
        return await self._channel.answer(stub.DescribeLag(request, timeout=LAG_TIMEOUT_S))

    async def close(self) -> None:
        """Hang up, for good."""
        await self._channel.close()
