"""The addressee of a call: a process that has come to stand at the address of another one does nothing in its place.

Goals: an order for one broker is never carried out by another, whatever made the address stand for it: two processes
that advertise one address, a name that still resolves to where the process was, a port that was given to the next one.

Constraints: UpdateMetadata is the same bytes for all brokers (safety rule S18), so that no field of a message can say
it; senders of earlier releases say nothing.

Algorithm: as Kafka's KIP-1242. A call to one known process says in its metadata which (``channel.ADDRESSEE``), a stream
once. Another process refuses it before anything of it is read, with REBOOTSTRAP_REQUIRED and its own name; a call that
does not say is taken.

Example: broker 3 advertises where broker 1 listens. StopReplica for ``broker-3`` arrives at broker 1, which answers
REBOOTSTRAP_REQUIRED, answered_by ``broker-1``, and deletes nothing.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn

import grpc
from regnum.types.v1 import errors_pb2

from regnum_service.channel import ADDRESSEE
from regnum_service.errors import RegnumError
from regnum_service.interceptor import abort

ANSWERED_BY: Final = "answered_by"
"""In the error's metadata: the process that refused."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""
Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""
Metadata = Any
"""Names and values that a call brings."""


def broker(id: int) -> str:
    """How a broker is addressed."""
    return f"broker-{id}"


def election(id: int) -> str:
    """How an election process is addressed."""
    return f"election-{id}"


def metadata(id: int) -> str:
    """How a metadata process is addressed."""
    return f"metadata-{id}"


def quota(id: int) -> str:
    """How a quota process is addressed."""
    return f"quota-{id}"


def who_answered(error: RegnumError) -> str | None:
    """Which other process stands at the address; None: the error says something else."""
    if error.code != errors_pb2.ERROR_CODE_REBOOTSTRAP_REQUIRED:
        return None
    return error.metadata.get(ANSWERED_BY, "another process")


class AddresseeInterceptor(grpc.aio.ServerInterceptor):
    """Refuses calls for others. Stands before what remembers handlers by their methods."""

    def __init__(self, own: str) -> None:
        """Only assigns; ``own``: how this process is addressed."""
        self._own: Final = own
        self._refusing: Final[dict[str, Handler]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler itself, or one that refuses; unknown methods pass (and are not remembered)."""
        handler = await continuation(handler_call_details)
        if handler is None or _addressee(handler_call_details.invocation_metadata) in {"", self._own}:
            return handler
        method = handler_call_details.method
        refusing = self._refusing.get(method)
        if refusing is None:
            # For calls of every kind: nothing of the request is read.
            refusing = self._refusing[method] = grpc.stream_stream_rpc_method_handler(self._refuse)
        return refusing

    async def _refuse(self, _requests: AsyncIterator[bytes], context: Context) -> NoReturn:
        meant = _addressee(context.invocation_metadata())
        await abort(
            context,
            RegnumError(
                errors_pb2.ERROR_CODE_REBOOTSTRAP_REQUIRED,
                f"this is {self._own}, and the call is for {meant}: the address stands for another process; nothing was"
                f" done. Look up where {meant} is now, and check that no two processes advertise one address",
                metadata={ANSWERED_BY: self._own},
            ),
        )


def _addressee(metadata: Metadata) -> str:
    for name, value in metadata or ():
        if name == ADDRESSEE:
            return str(value)
    return ""
