"""BrokerStream over gRPC: the standing UpdateMetadata stream to one incarnation of one broker."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import grpc
from regnum.broker.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error

CHANGE_TIMEOUT_S: Final = 10.0
"""Time in which a broker answers a change."""

UPDATE_METADATA: Final = "/regnum.broker.v1.ReplicaControlService/UpdateMetadata"
"""Called by name, since what is sent is already serialised."""


class GrpcBrokerStream:
    """Not connected before the first change; opened again after a failure."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._channel: grpc.aio.Channel | None = None
        self._stream: Any = None

    async def update_metadata(self, parts: Sequence[bytes]) -> control_pb2.UpdateMetadataResponse:
        """All parts of one change; the broker's answer to the last. Raises RegnumError."""
        stream = self._opened()
        answered = False
        try:
            async with asyncio.timeout(CHANGE_TIMEOUT_S):
                for part in parts:
                    await stream.write(part)
                response = await stream.read()
            if not isinstance(response, control_pb2.UpdateMetadataResponse):
                # The broker ended the stream in good order.
                raise RegnumError(
                    errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the metadata stream ended; it is opened again"
                )
            answered = True
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.InvalidStateError as error:
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the metadata stream broke") from error
        except TimeoutError as error:
            raise RegnumError(
                errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "the broker did not answer a metadata change"
            ) from error
        else:
            return response
        finally:
            if not answered:
                self._stream = None
                stream.cancel()

    async def close(self) -> None:
        """Hang up."""
        stream, channel = self._stream, self._channel
        self._stream = self._channel = None
        if stream is not None:
            stream.cancel()
        if channel is not None:
            await channel.close()

    def _opened(self) -> Any:
        if self._channel is None:
            self._channel = open_channel(self._address)
        if self._stream is None:
            method = self._channel.stream_stream(
                UPDATE_METADATA,
                request_serializer=bytes,
                response_deserializer=control_pb2.UpdateMetadataResponse.FromString,
            )
            self._stream = method()
        return self._stream
