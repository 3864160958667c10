"""ProducerService: identity of producers."""

from typing import Any, Final

from regnum.broker.v1 import producer_pb2, producer_pb2_grpc

from regnum_broker.serving.producer_ids import ProducerIds

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class ProducerServicer(producer_pb2_grpc.ProducerServiceServicer):
    """Passes calls on."""

    def __init__(self, ids: ProducerIds) -> None:
        """Only assigns."""
        self.ids: Final = ids
        """Where producers get theirs from, whichever door they come by."""

    async def InitProducerId(  # noqa: N802 - gRPC's name
        self,
        request: producer_pb2.InitProducerIdRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> producer_pb2.InitProducerIdResponse:
        """A producer id."""
        return producer_pb2.InitProducerIdResponse(producer_id=await self.ids.next_id(), producer_epoch=0)
