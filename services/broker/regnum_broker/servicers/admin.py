"""AdminService on a broker: old versions are passed on to the controller, new ones told where it is (KIP-590).

Of a request nothing is read but its header: what it asks for, its broker need not understand. What only shows something
is passed on as well, where any of Kafka's brokers would have answered it: the controller's answer is never behind what
the same client has just changed through another broker.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import grpc
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.api_versions import ADMIN_SERVICE, forwarding_of, is_forwarded, version_of
from regnum_model.ids import encode_id
from regnum_model.nodes import Address
from regnum_service.access.identity import caller
from regnum_service.deadlines import waitable_of
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_service.limits.grpc_calls import GrpcCalls
from regnum_service.server import CONTROL_BYTES_MAX, ServiceRegistration

from regnum_broker.cluster.original_caller import original_caller
from regnum_broker.forwarding.forwarder import Forwarder, PassedOn
from regnum_broker.forwarding.old_path import OldPath
from regnum_broker.limits.throttling import Throttling

WAIT_S_MAX: Final = 60.0
"""How long a call is tried that has no deadline, or a later one."""

ENVELOPE_BYTES: Final = 8 * 1024
"""What an envelope has besides the request, or less."""

REQUEST_BYTES_MAX: Final = CONTROL_BYTES_MAX - ENVELOPE_BYTES
"""The largest request that the controller takes in an envelope."""

MUTATION_ID: Final = "mutation_id"

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""

_SERVICE: Final = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadRequest:
    """A request of which only the header was read."""

    header: types_pb2.RequestHeader
    """Version and client id."""
    data: bytes
    """All of it, as it came."""

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read the header. Raises DecodeError."""
        return cls(header=types_pb2.RequestBeginning.FromString(data).header, data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminCall:
    """A call of AdminService, as a broker knows it."""

    path: str
    """Its name on the wire."""
    repeatable: bool
    """Whether it may be sent again when its outcome is not known: it shows only, or its mutation ids are kept (S20)."""

    @classmethod
    def named(cls, name: str) -> Self:
        """Of that name in AdminService."""
        return cls.of(_SERVICE.methods_by_name[name])

    @classmethod
    def of(cls, method: MethodDescriptor) -> Self:
        """As the proto has it."""
        path = f"{ADMIN_SERVICE}{method.name}"
        found = forwarding_of(path)
        if found is None:
            return cls(path=path, repeatable=False)
        return cls(path=path, repeatable=not found.changes or _takes_ids(method.input_type))


class ForwardingServicer:
    """Passes calls on, or names the controller; decides nothing else."""

    def __init__(
        self,
        *,
        forwarder: Forwarder,
        controller: Callable[[], types_pb2.Controller],
        throttling: Throttling,
        old_path: OldPath | None = None,
    ) -> None:
        """Only assigns.

        Args:
            forwarder: passes calls on.
            controller: the controller as metadata names it.
            throttling: holds connections that have to wait.
            old_path: carries out what this broker writes itself below protocol 2; None: it passes everything on.
        """
        self._forwarder: Final = forwarder
        self._controller: Final = controller
        self._throttling: Final = throttling
        self._old_path: Final = old_path
        self._calls: Final = GrpcCalls(clock=throttling.clock)

    def registration(self) -> ServiceRegistration:
        """Every call of AdminService, as a server takes them."""
        return ServiceRegistration(name=_SERVICE.full_name, servicer=self, add_to_server=_add_to_server, passes_on=True)

    async def answer(self, asked: AdminCall, request: UnreadRequest, context: Context) -> bytes:
        """Answer one call that came by gRPC."""
        header = request.header
        try:
            version = version_of(header.api_version, version_zero=header.version_zero)
        except ValueError as error:
            raise RegnumError(errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION, str(error)) from error
        if not is_forwarded(asked.path, version):
            raise self._elsewhere(asked.path)
        return await self.pass_on(asked, request, self._calls.of(context, header.client_id))

    async def pass_on(self, asked: AdminCall, request: UnreadRequest, call: Call) -> bytes:
        """The encoded answer of the controller, whatever the caller speaks and in any version. Raises RegnumError."""
        method = asked.path
        if len(request.data) > REQUEST_BYTES_MAX:
            raise RegnumError(
                errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE,
                f"a request of {len(request.data)} bytes is not passed on; {REQUEST_BYTES_MAX} are the most: split it",
            )
        mutation_id = new_mutation_id()
        if self._old_path is not None and self._old_path.takes(method):
            return await self._old_path.carry_out(method, request.data, call, mutation_id=mutation_id)
        passed_on = PassedOn(
            method=method,
            request=request.data,
            caller=original_caller(caller(), connection=call.peer),
            mutation_id=mutation_id,
            repeatable=asked.repeatable,
        )
        answer = await self._forwarder.forward(
            passed_on,
            connection=call.peer,
            wait_s=min(waitable_of(call.left_s(self._throttling.monotonic())), WAIT_S_MAX),
        )
        if answer.throttle_time_ms > 0:
            self._throttling.mute_mutations(call, answer.throttle_time_ms)
        return answer.response

    def _elsewhere(self, method: str) -> RegnumError:
        """Where the controller is; the same facts as of an election process that does not reign."""
        controller = self._controller()
        name = method.removeprefix(ADMIN_SERVICE)
        if controller.id < 0:
            return RegnumError(
                errors_pb2.ERROR_CODE_NOT_CONTROLLER,
                f"only the controller answers this version of {name}, and none is known at the moment; try again"
                " shortly",
            )
        metadata = {"controller_id": str(controller.id), "controller_epoch": str(controller.epoch)}
        address = Address(host=controller.client.host, port=controller.client.port)
        if controller.HasField("client"):
            metadata["controller_address"] = str(address)
        return RegnumError(
            errors_pb2.ERROR_CODE_NOT_CONTROLLER,
            f"only the controller answers this version of {name}: election process {controller.id} (epoch"
            f" {controller.epoch}); ask it at {address}",
            metadata=metadata,
        )


def new_mutation_id() -> str:
    """One that no other mutation has (safety rule S20)."""
    return encode_id(uuid.uuid4())


def _takes_ids(request: Descriptor) -> bool:
    items = [field.message_type for field in request.fields if field.is_repeated and field.message_type is not None]
    return any(MUTATION_ID in one.fields_by_name for one in (request, *items))


def _add_to_server(servicer: ForwardingServicer, server: grpc.aio.Server) -> None:
    handlers: dict[str, Any] = {}
    for method in _SERVICE.methods:
        handlers[method.name] = grpc.unary_unary_rpc_method_handler(
            partial(servicer.answer, AdminCall.of(method)),
            request_deserializer=UnreadRequest.parse,
            response_serializer=None,
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE.full_name, handlers),))
