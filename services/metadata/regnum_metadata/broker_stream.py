"""BrokerStream over gRPC: the standing UpdateMetadata stream to one incarnation of one broker."""

import asyncio
from typing import Any, Final

import grpc
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_service import addressee
from regnum_service.addressee import who_answered
from regnum_service.cancellation import heeding
from regnum_service.channel import Open, open_channel
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error

from regnum_metadata.lane import Receiver

UPDATE_METADATA: Final = "/regnum.replication.v1.ReplicaControlService/UpdateMetadata"
"""Called by name, since what is sent is already serialised."""


class GrpcBrokerStream:
    """Not connected before the first change; opened again after a failure."""

    def __init__(self, receiver: Receiver, open_one: Open = open_channel) -> None:
        """Only assigns; ``open_one`` opens the channel."""
        self._open_one: Final = open_one
        self._receiver: Final = receiver
        self._channel: grpc.aio.Channel | None = None
        self._stream: Any = None

    async def send(self, part: bytes) -> None:
        """One message. Raises RegnumError."""
        stream = self._opened()
        try:
            await stream.write(part)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.InvalidStateError as error:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the metadata stream broke") from error

    async def answer(self) -> control_pb2.UpdateMetadataResponse:
        """The broker's next answer. Raises RegnumError."""
        stream = self._opened()
        try:
            response = await heeding(stream.read())
        except grpc.aio.AioRpcError as error:
            refused = from_rpc_error(error)
            if who_answered(refused) is not None:
                # A connection stays with who took it, wherever the address leads by now.
                await self.close()
            raise refused from error
        except asyncio.InvalidStateError as error:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the metadata stream broke") from error
        if not isinstance(response, control_pb2.UpdateMetadataResponse):
            # The broker ended the stream in good order.
            raise RegnumError(
                errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the metadata stream ended; it is opened again"
            )
        return response

    def abandon(self) -> None:
        """Forget what is under way."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    async def close(self) -> None:
        """Hang up; the next change goes over another connection."""
        self.abandon()
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _opened(self) -> Any:
        if self._channel is None:
            self._channel = self._open_one(self._receiver.internal, addressee.broker(self._receiver.id))
        if self._stream is None:
            method = self._channel.stream_stream(
                UPDATE_METADATA,
                request_serializer=bytes,
                response_deserializer=control_pb2.UpdateMetadataResponse.FromString,
            )
            self._stream = method()
        return self._stream
