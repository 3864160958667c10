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
from regnum_service.addressee import who_answered
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
        return await self._answered(self._leader_and_isr(request, timeout=CALL_TIMEOUT_S))

    async def stop_replica(self, request: control_pb2.StopReplicaRequest) -> control_pb2.StopReplicaResponse:
        """One StopReplica."""
        return await self._answered(self._stub().StopReplica(request, timeout=CALL_TIMEOUT_S))

    async def get_replica_log_info(
        self, request: control_pb2.GetReplicaLogInfoRequest, *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """One GetReplicaLogInfo."""
        return await self._answered(self._stub().GetReplicaLogInfo(request, timeout=timeout_s))

    async def describe_settings(
        self, request: control_pb2.DescribeBrokerSettingsRequest, *, timeout_s: float
    ) -> control_pb2.DescribeBrokerSettingsResponse:
        """One DescribeBrokerSettings."""
        return await self._answered(self._stub().DescribeBrokerSettings(request, timeout=timeout_s))

    async def close(self) -> None:
        """Hang up, for good."""
        await self._channel.close()

    def _stub(self) -> Any:
        return control_pb2_grpc.ReplicaControlServiceStub(self._channel.get())

    async def _answered(self, call: Awaitable[A]) -> A:
        """The answer. A call that is refused, or whose channel is closed under it, ends nothing but itself."""
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            refused = from_rpc_error(error)
            if who_answered(refused) is not None:
                # A connection stays with who took it, wherever the address leads by now.
                self._leader_and_isr = None
                await self._channel.renew()
            raise refused from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RegnumError(
                errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "the connection was given up while the broker was asked"
            ) from None
