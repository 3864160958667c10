"""QuotaChannel over gRPC: one channel to one incarnation of a quota process."""

from typing import Final

from regnum.quota.v1 import quota_pb2, quota_pb2_grpc
from regnum_model.nodes import Address
from regnum_service import addressee
from regnum_service.channel import Open, PeerChannel, open_channel


class GrpcQuotaChannel:
    """Calls one quota process. Not connected before the first call."""

    def __init__(self, process: int, address: Address, open_one: Open = open_channel) -> None:
        """Only assigns; ``open_one`` opens the channel."""
        self._channel: Final = PeerChannel(
            address, addressee.quota(process), gone="that quota process decides no more", open_one=open_one
        )

    async def admit(self, request: quota_pb2.AdmitRequest, *, timeout_s: float) -> quota_pb2.AdmitResponse:
        """One Admit."""
        stub = quota_pb2_grpc.QuotaServiceStub(self._channel.get())
        return await self._channel.answer(stub.Admit(request, timeout=timeout_s))

    async def describe(
        self, request: quota_pb2.DescribeBucketsRequest, *, timeout_s: float
    ) -> quota_pb2.DescribeBucketsResponse:
        """One DescribeBuckets."""
        stub = quota_pb2_grpc.QuotaServiceStub(self._channel.get())
        return await self._channel.answer(stub.DescribeBuckets(request, timeout=timeout_s))

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()
