"""A controller's internal listener that answers envelopes as a test says: for tests of those who send them."""

from collections.abc import Awaitable, Callable
from typing import Any

from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_broker.cluster.controller import ControllerLocation
from regnum_model.ids import ElectionId
from regnum_model.nodes import Address
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor

Answer = Callable[[controller_pb2.EnvelopeRequest], Awaitable[controller_pb2.EnvelopeResponse]]


async def echo(envelope: controller_pb2.EnvelopeRequest) -> controller_pb2.EnvelopeResponse:
    """The request back as the answer."""
    return controller_pb2.EnvelopeResponse(correlation_id=envelope.correlation_id, response=envelope.request)


class FakeController(controller_pb2_grpc.ControllerServiceServicer):
    """One election process, as far as envelopes go."""

    def __init__(self, id: int = 1, answer: Answer = echo, *, port: int = 0) -> None:
        """Only assigns; ``answer`` may raise RegnumError, and be another one later."""
        self.answer = answer
        self.received: list[controller_pb2.EnvelopeRequest] = []
        """Envelopes that came in."""
        self._id = id
        self._supervisor = Supervisor("fake controller")
        self._server = GrpcServer(
            Address(host="127.0.0.1", port=port),
            [
                ServiceRegistration(
                    name="regnum.election.v1.ControllerService",
                    servicer=self,
                    add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
                )
            ],
            supervisor=self._supervisor,
            listener="internal",
        )

    async def start(self) -> ControllerLocation:
        """Listen; where."""
        await self._server.start()
        address = self._server.address
        return ControllerLocation(election_id=ElectionId(self._id), internal=address, lifeline=address)

    async def stop(self) -> None:
        """Hang up on everybody."""
        await self._server.stop(0.0)

    async def Envelope(  # noqa: N802 - the name in the proto
        self,
        request: controller_pb2.EnvelopeRequest,
        context: Any,  # noqa: ARG002
    ) -> controller_pb2.EnvelopeResponse:
        """As the test says."""
        self.received.append(request)
        return await self.answer(request)
