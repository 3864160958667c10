"""Calls that brokers pass on (KIP-590): opened, checked, and carried out for the client that made them.

Goals: a client that calls by way of a broker gets what it would have got here, and no more; nobody but a broker speaks
for others; a repeat of a call is carried out once.

Algorithm: the checks in Kafka's order, each of which ends the call with an error of its own, which the broker does not
show to its client. Then the request goes to the same handler as a direct call, for as long as that runs under the
name of the client (``identity.calling``): rights, quotas and audit log know nobody else. What the handler refuses goes
back within the answer, as the client would have got it. A call that was passed on is passed on no more.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import grpc
from google.protobuf import message_factory
from google.protobuf.message import Message
from regnum.admin.v1 import admin_pb2
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.access import Operation, ResourceType
from regnum_model.api_versions import ADMIN_SERVICE, forwarding_of, version_of
from regnum_service.access.authorization import Authorizer
from regnum_service.access.identity import INTERNAL, caller, calling
from regnum_service.errors import RegnumError
from regnum_service.request_sizes import Parsing, TooMuchError
from regnum_service.slices import Turns
from regnum_service.status import from_rpc_error, to_status
from regnum_telemetry import tracing

from regnum_election.candidacy.role import ControllerRole
from regnum_election.servicers.callers import ADDRESS_LENGTH_MAX, client_of

MUTATION_ID_LENGTH_MAX: Final = 48
"""Characters of an envelope's mutation id: with the number of an item behind it, it is one that items may have."""

IDS_PER_TURN: Final = 2_000
"""Items that get a mutation id between two turns of the event loop (safety rule S22)."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""

_ID: Final = "mutation_id"

_SERVICE: Final = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]


class ForwardedCall:
    """Stands for grpc.aio.ServicerContext of a call that came in an envelope: the client's, as far as it is known.

    It has no metadata: who calls is said by the envelope alone.
    """

    def __init__(self, context: Context, connection: str) -> None:
        """Only assigns; ``context`` is the envelope's."""
        self._context: Final = context
        self._connection: Final = connection

    def peer(self) -> str:
        """The client's connection to its broker: no broker is held up for what a client of it does."""
        return self._connection

    def time_remaining(self) -> float | None:
        """Seconds until the broker gives up, which is when its client does."""
        remaining: float | None = self._context.time_remaining()
        return remaining

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """None."""
        return ()


class EnvelopeOpener:
    """Opens envelopes. Belongs to one event loop."""

    def __init__(self, role: ControllerRole, admin: object, authorizer: Authorizer) -> None:
        """Only assigns.

        Args:
            role: who reigns.
            admin: what serves direct calls, with the guard before it.
            authorizer: says who may send envelopes.
        """
        self._role: Final = role
        self._admin: Final = admin
        self._authorizer: Final = authorizer

    async def open(self, envelope: controller_pb2.EnvelopeRequest, context: Context) -> controller_pb2.EnvelopeResponse:
        """Carry out what is in it. Raises RegnumError: the envelope itself is refused."""
        self._check_sender()
        await self._role.controller()
        response = controller_pb2.EnvelopeResponse(correlation_id=envelope.correlation_id)
        try:
            handler, request = await self._inside(envelope)
        except TooMuchError as error:
            # The client's own doing, and said to it as if it had called here.
            response.status.CopyFrom(to_status(error))
            return response
        original = client_of(envelope.caller)
        # What came here in plaintext did not come over TLS on all of its way, and no more does its answer go back so.
        original = replace(original, encrypted=original.encrypted and caller().encrypted)
        await mint_ids(request, _base_of(envelope))
        connection = f"{envelope.caller.connection[:ADDRESS_LENGTH_MAX]} through {caller().host or 'a broker'}"
        try:
            with calling(original):
                answer = await handler(request, ForwardedCall(context, connection))
        except RegnumError as error:
            tracing.refuse()
            response.status.CopyFrom(to_status(error))
        except grpc.aio.AioRpcError as error:
            response.status.CopyFrom(to_status(from_rpc_error(error)))
        else:
            response.throttle_time_ms = getattr(answer, "throttle_time_ms", 0)
            response.response = answer if isinstance(answer, bytes) else answer.SerializeToString()
        served = tracing.served()
        response.refused = served is not None and served.refused
        return response

    def _check_sender(self) -> None:
        sender = caller()
        if sender.listener != INTERNAL or not self._authorizer.allows(
            sender, Operation.CLUSTER_ACTION, ResourceType.CLUSTER
        ):
            raise RegnumError(
                errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED,
                "only brokers pass calls on, over the internal listener; they need the right to CLUSTER_ACTION on the"
                " cluster",
            )

    async def _inside(
        self, envelope: controller_pb2.EnvelopeRequest
    ) -> tuple[Callable[[Any, Any], Awaitable[Any]], Message]:
        name = envelope.method.removeprefix(ADMIN_SERVICE)
        method = _SERVICE.methods_by_name.get(name)
        if forwarding_of(envelope.method) is None or method is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_INVALID_REQUEST, f"{envelope.method[:100]!r} is no call that is passed on"
            )
        parsing = Parsing(envelope.method, message_factory.GetMessageClass(method.input_type).FromString)
        try:
            request = await parsing.message(envelope.request)
            version_of(request.header.api_version, version_zero=request.header.version_zero)
        except TooMuchError:
            raise
        except (RegnumError, ValueError) as error:
            raise RegnumError(
                errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION,
                f"the request within the envelope cannot be read as a {method.input_type.name}; check its version, and"
                " that client and cluster use the same protocol files",
            ) from error
        return getattr(self._admin, name), request


def _base_of(envelope: controller_pb2.EnvelopeRequest) -> str:
    base = envelope.mutation_id
    if len(base) > MUTATION_ID_LENGTH_MAX:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"the mutation id of an envelope has at most {MUTATION_ID_LENGTH_MAX} characters",
        )
    return base


async def mint_ids(request: Message, base: str) -> None:
    """Give what has no mutation id one that is the same in every repeat of the envelope; without a base, none."""
    if not base:
        return
    turns = Turns(IDS_PER_TURN)
    for field in request.DESCRIPTOR.fields:
        if field.name == _ID and not getattr(request, _ID):
            setattr(request, _ID, base)
        elif field.is_repeated and _has_id(field):
            for number, item in enumerate(getattr(request, field.name)):
                if not item.mutation_id:
                    item.mutation_id = f"{base}-{number}"
                await turns.took()


def _has_id(field: Any) -> bool:
    return field.message_type is not None and _ID in field.message_type.fields_by_name
