"""LogService: records in and out."""

from collections.abc import AsyncIterator
from typing import Any, Final

from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum_telemetry import propagation

from regnum_broker.fetch import Fetching, OffsetLookup
from regnum_broker.produce import Producing

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class LogServicer(log_pb2_grpc.LogServiceServicer):
    """Passes calls on."""

    def __init__(self, *, producing: Producing, fetching: Fetching) -> None:
        self._producing: Final = producing
        self._fetching: Final = fetching

    async def Produce(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.ProduceRequest,
        context: Context,
    ) -> log_pb2.ProduceResponse:
        """Append. A producer that comes back after an outage is told in trailing metadata what caused it."""
        response = await self._producing.produce(request)
        if any(key == propagation.RECOVERING for key, _ in context.invocation_metadata() or ()):
            causes = propagation.render_causes(self._producing.causes(request))
            if causes:
                context.set_trailing_metadata(tuple(causes))
        return response

    async def Fetch(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.FetchRequest,
        context: Context,  # noqa: ARG002
    ) -> log_pb2.FetchResponse:
        """Read."""
        return await self._fetching.fetch(request)

    async def Consume(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.ConsumeRequest,
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[log_pb2.ConsumeResponse]:
        """Stream."""
        async for response in self._fetching.consume(request):
            yield response

    async def ListOffsets(  # noqa: N802 - gRPC's name
        self,
        request: log_pb2.ListOffsetsRequest,
        context: Context,  # noqa: ARG002
    ) -> log_pb2.ListOffsetsResponse:
        """Offsets."""
        answers = [self._fetching.list_offsets(query) for query in request.queries]
        lookups = [answer for answer in answers if isinstance(answer, OffsetLookup)]
        if lookups:
            await self._fetching.look_up(lookups)
        return log_pb2.ListOffsetsResponse(
            results=[answer.result if isinstance(answer, OffsetLookup) else answer for answer in answers]
        )
