"""ControlChannel over gRPC: one channel to one incarnation of one broker."""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import grpc
from regnum.replication.v1 import control_pb2, control_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_model.nodes import Address
from regnum_service import addressee
from regnum_service.channel import Open, PeerChannel, open_channel
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error

A = TypeVar("A")

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
        self._leader_and_isr: Any = None

    async def leader_and_isr(self, request: bytes) -> control_pb2.LeaderAndIsrResponse:
        """One LeaderAndIsr, which is encoded."""
        channel = self._channel.get()
        if self._leader_and_isr is None:
            self._leader_and_isr = channel.unary_unary(
                LEADER_AND_ISR,
                request_serializer=bytes,
                response_deserializer=control_pb2.LeaderAndIsrResponse.FromString,
            )
        try:
            answer: control_pb2.LeaderAndIsrResponse = await self._leader_and_isr(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        else:
            return answer

    async def stop_replica(self, request: control_pb2.StopReplicaRequest) -> control_pb2.StopReplicaResponse:
        """One StopReplica."""
        stub = control_pb2_grpc.ReplicaControlServiceStub(self._channel.get())
        try:
            return await stub.StopReplica(request, timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def get_replica_log_info(
        self, request: control_pb2.GetReplicaLogInfoRequest, *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """One GetReplicaLogInfo."""
        stub = control_pb2_grpc.ReplicaControlServiceStub(self._channel.get())
        return await _asked(stub.GetReplicaLogInfo(request, timeout=timeout_s))

    async def describe_settings(
        self, request: control_pb2.DescribeBrokerSettingsRequest, *, timeout_s: float
    ) -> control_pb2.DescribeBrokerSettingsResponse:
        """One DescribeBrokerSettings."""
        stub = control_pb2_grpc.ReplicaControlServiceStub(self._channel.get())
        return await _asked(stub.DescribeBrokerSettings(request, timeout=timeout_s))

    async def close(self) -> None:
        """Hang up, for good."""
        await self._channel.close()


async def _asked(call: Awaitable[A]) -> A:
    """The answer to a question, which ends nothing but itself."""
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
    except asyncio.CancelledError:
        # Also what a call ends with when the broker goes and its channel is closed under it.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the broker went while it was asked") from None
