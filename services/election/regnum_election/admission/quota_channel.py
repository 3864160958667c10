"""QuotaChannel over gRPC: one channel to one incarnation of a quota process."""

import grpc
from regnum.quota.v1 import quota_pb2, quota_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error


class GrpcQuotaChannel:
    """Calls one quota process. Not connected before the first call."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._channel: grpc.aio.Channel | None = None
        self._closed = False

    async def admit(self, request: quota_pb2.AdmitRequest, *, timeout_s: float) -> quota_pb2.AdmitResponse:
        """One Admit."""
        stub = quota_pb2_grpc.QuotaServiceStub(self._connected())
        try:
            return await stub.Admit(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def close(self) -> None:
        """Hang up."""
        self._closed = True
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _connected(self) -> grpc.aio.Channel:
        if self._closed:
            # Whoever still had it would open one that nobody closes.
            raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "that quota process decides no more")
        if self._channel is None:
            self._channel = open_channel(self._address)
        return self._channel
