"""The one way by which the SDK calls anybody: a channel for each address, a deadline for each call, errors by name."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import grpc
from regnum.admin.v1.admin_pb2_grpc import AdminServiceStub
from regnum.admin.v1.events_pb2_grpc import EventServiceStub
from regnum.broker.v1.figures_pb2_grpc import FiguresServiceStub
from regnum.broker.v1.group_pb2_grpc import GroupServiceStub
from regnum.broker.v1.log_pb2_grpc import LogServiceStub
from regnum.broker.v1.producer_pb2_grpc import ProducerServiceStub
from regnum.metadata.v1.image_pb2_grpc import ImageServiceStub
from regnum.metadata.v1.metadata_pb2_grpc import MetadataServiceStub
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error

if TYPE_CHECKING:
    from regnum.admin.v1.admin_pb2_grpc import AdminServiceAsyncStub
    from regnum.admin.v1.events_pb2_grpc import EventServiceAsyncStub
    from regnum.broker.v1.figures_pb2_grpc import FiguresServiceAsyncStub
    from regnum.broker.v1.group_pb2_grpc import GroupServiceAsyncStub
    from regnum.broker.v1.log_pb2_grpc import LogServiceAsyncStub
    from regnum.broker.v1.producer_pb2_grpc import ProducerServiceAsyncStub
    from regnum.metadata.v1.image_pb2_grpc import ImageServiceAsyncStub
    from regnum.metadata.v1.metadata_pb2_grpc import MetadataServiceAsyncStub

Q_contra = TypeVar("Q_contra", contravariant=True)
A_co = TypeVar("A_co", covariant=True)
Q = TypeVar("Q")
A = TypeVar("A")
Trailers = Iterable[tuple[str, str | bytes]]
"""Metadata after an answer."""


class Method(Protocol[Q_contra, A_co]):
    """A unary call of a generated stub."""

    def __call__(self, request: Q_contra, /, *, timeout: float | None = None) -> Awaitable[A_co]:
        """Start the call."""


async def call(method: Method[Q, A], request: Q, *, timeout_s: float) -> A:
    """Make a call. Raises RegnumError, for what the other side answered and for what the network did."""
    return await _answer(method(request, timeout=timeout_s))


async def call_asking(method: Any, request: Q, *, timeout_s: float, ask: tuple[str, str]) -> tuple[Any, Trailers]:
    """Make a call with a question in its metadata; returns the answer and the metadata that trails it."""
    started = method(request, timeout=timeout_s, metadata=(ask,))
    answer = await _answer(started)
    return answer, await started.trailing_metadata()


async def _answer(started: Awaitable[A]) -> A:
    try:
        return await started
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    except asyncio.CancelledError:
        # A call also ends so when its channel is closed under it; then nobody asked *this task* to end.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RegnumError(
            errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the connection was closed while the call was under way"
        ) from None


class Connections:
    """Stubs by address. Belongs to one event loop."""

    def __init__(self, channels: Channels) -> None:
        self._channels: Final = channels
        self._log: dict[Address, LogServiceAsyncStub] = {}

    def log(self, address: Address) -> "LogServiceAsyncStub":
        """Records in and out; kept, because it is asked for with every batch."""
        stub = self._log.get(address)
        if stub is None:
            stub = self._log[address] = LogServiceStub(self._channels.get(address))
        return stub

    def producers(self, address: Address) -> "ProducerServiceAsyncStub":
        """Producer ids."""
        return ProducerServiceStub(self._channels.get(address))

    def groups(self, address: Address) -> "GroupServiceAsyncStub":
        """Consumer groups."""
        return GroupServiceStub(self._channels.get(address))

    def figures(self, address: Address) -> "FiguresServiceAsyncStub":
        """What a broker does and uses."""
        return FiguresServiceStub(self._channels.get(address))

    def metadata(self, address: Address) -> "MetadataServiceAsyncStub":
        """Cluster metadata."""
        return MetadataServiceStub(self._channels.get(address))

    def images(self, address: Address) -> "ImageServiceAsyncStub":
        """What a process holds of the metadata."""
        return ImageServiceStub(self._channels.get(address))

    def admin(self, address: Address) -> "AdminServiceAsyncStub":
        """Changes to the cluster."""
        return AdminServiceStub(self._channels.get(address))

    def events(self, address: Address) -> "EventServiceAsyncStub":
        """What happened in the cluster."""
        return EventServiceStub(self._channels.get(address))

    async def drop(self, address: Address) -> None:
        """Close the connection to an address: whoever listens there now is another."""
        self._log.pop(address, None)
        await self._channels.drop(address)

    async def close(self) -> None:
        """Close all connections."""
        self._log.clear()
        await self._channels.close()
