"""Calls that the controller carries out: passed on as the gRPC door passes them on, in any version."""

from typing import Final, TypeVar

from google.protobuf.message import Message
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_service.errors import RegnumError

from regnum_broker.kafka.addresses import Addresses
from regnum_broker.kafka.context import Context
from regnum_broker.servicers.admin import AdminCall, ForwardingServicer, UnreadRequest

A = TypeVar("A", bound=Message)


class PassingOn:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, *, broker: int, addresses: Addresses, forwarding: ForwardingServicer) -> None:
        """Only assigns.

        Args:
            broker: this one.
            addresses: of brokers.
            forwarding: passes calls on to the controller.
        """
        self._broker: Final = broker
        self._addresses: Final = addresses
        self._forwarding: Final = forwarding

    def new_mutation_id(self) -> str:
        """One that no other mutation has (safety rule S20)."""
        return self._forwarding.new_mutation_id()

    def check_gate(self) -> None:
        """For calls that clients send to the controller. Raises NOT_CONTROLLER unless this broker is its gate."""
        if self._addresses.gate != self._broker:
            raise RegnumError(
                errors_pb2.ERROR_CODE_NOT_CONTROLLER, "another broker is the controller's gate now: see Metadata"
            )

    async def pass_on(self, name: str, request: Message, answer: type[A], context: Context) -> A:
        """The controller's answer to a call of AdminService. Raises RegnumError."""
        asked = AdminCall.named(name)
        unread = UnreadRequest.parse(request.SerializeToString())
        return answer.FromString(await self._forwarding.pass_on(asked, unread, context.call))


def header(context: Context) -> types_pb2.RequestHeader:
    """What a request says of its caller: the version that it came in says what a quota may answer."""
    version = context.version
    return types_pb2.RequestHeader(api_version=version, version_zero=version == 0, client_id=context.call.client_id)
