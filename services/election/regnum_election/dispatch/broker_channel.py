"""ControlChannel over gRPC: one channel to one incarnation of one broker."""

from typing import Final

from regnum.replication.v1 import control_pb2, control_pb2_grpc
from regnum_model.ids import BrokerId
from regnum_model.nodes import Address
from regnum_service import addressee
from regnum_service.channel import Open, PeerChannel, open_channel

LEADER_AND_ISR: Final = "/regnum.replication.v1.ReplicaControlService/LeaderAndIsr"
"""Full name of the call, whose messages are encoded elsewhere."""

CALL_TIMEOUT_S: Final = 10.0
"""Deadline of LeaderAndIsr and StopReplica."""


class GrpcControlChannel:
    """Calls one broker. Not connected before the first call."""

    def __init__(self, broker: BrokerId, address: Address, open_one: Open = open_channel) -> None:
        """Only assigns; ``open_one`` opens the channel."""
        self._channel: Final = PeerChannel(
            address, addressee.broker(broker), gone="that life of the broker is told no more", open_one=open_one
        )

    async def leader_and_isr(self, request: bytes) -> control_pb2.LeaderAndIsrResponse:
        """One LeaderAndIsr, which is encoded."""
        call = self._channel.get().unary_unary(
            LEADER_AND_ISR,
            request_serializer=bytes,
            response_deserializer=control_pb2.LeaderAndIsrResponse.FromString,
        )
        answer: control_pb2.LeaderAndIsrResponse = await self._channel.answer(call(request, timeout=CALL_TIMEOUT_S))
        return answer

    async def stop_replica(self, request: control_pb2.StopReplicaRequest) -> control_pb2.StopReplicaResponse:
        """One StopReplica."""
        stub = control_pb2_grpc.ReplicaControlServiceStub(self._channel.get())
        return await self._channel.answer(stub.StopReplica(request, timeout=CALL_TIMEOUT_S))

    async def get_replica_log_info(
        self, request: control_pb2.GetReplicaLogInfoRequest, *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """One GetReplicaLogInfo."""
        stub = control_pb2_grpc.ReplicaControlServiceStub(self._channel.get())
        return await self._channel.answer(stub.GetReplicaLogInfo(request, timeout=timeout_s))

    async def describe_settings(
        self, request: control_pb2.DescribeBrokerSettingsRequest, *, timeout_s: float
    ) -> control_pb2.DescribeBrokerSettingsResponse:
        """One DescribeBrokerSettings."""
        stub = control_pb2_grpc.ReplicaControlServiceStub(self._channel.get())
        return await self._channel.answer(stub.DescribeBrokerSettings(request, timeout=timeout_s))

    async def close(self) -> None:
        """Hang up, for good."""
        await self._channel.close()
