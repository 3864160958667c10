"""A way to a broker whose orders a failpoint may be about."""

from typing import Final

from regnum.replication.v1 import control_pb2
from regnum_model.ids import BrokerId
from regnum_service.failpoints.failpoint import Order
from regnum_service.failpoints.trigger import FailpointTrigger

from regnum_election.dispatch.ports import ControlChannel


class FailpointChannel:
    """A ControlChannel like the one it is made of, until it is the failpoint's turn."""

    def __init__(self, channel: ControlChannel, broker: BrokerId, trigger: FailpointTrigger) -> None:
        """Only assigns.

        Args:
            channel: the way there.
            broker: whom it leads to.
            trigger: the process's.
        """
        self._channel: Final = channel
        self._broker: Final = broker
        self._trigger: Final = trigger

    async def leader_and_isr(self, request: bytes) -> control_pb2.LeaderAndIsrResponse:
        """See ControlChannel."""
        read = control_pb2.LeaderAndIsrRequest.FromString(request)
        order = self._order("LeaderAndIsr", [one.topic for one in read.partitions])
        return await self._trigger.send(order, lambda: self._channel.leader_and_isr(request))

    async def stop_replica(self, request: control_pb2.StopReplicaRequest) -> control_pb2.StopReplicaResponse:
        """See ControlChannel."""
        order = self._order("StopReplica", [one.topic for one in request.partitions])
        return await self._trigger.send(order, lambda: self._channel.stop_replica(request))

    async def get_replica_log_info(
        self, request: control_pb2.GetReplicaLogInfoRequest, *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """See ControlChannel. It changes nothing, so no failpoint is about it."""
        return await self._channel.get_replica_log_info(request, timeout_s=timeout_s)

    async def describe_settings(
        self, request: control_pb2.DescribeBrokerSettingsRequest, *, timeout_s: float
    ) -> control_pb2.DescribeBrokerSettingsResponse:
        """See ControlChannel. It changes nothing either."""
        return await self._channel.describe_settings(request, timeout_s=timeout_s)

    async def close(self) -> None:
        """See ControlChannel."""
        await self._channel.close()

    def _order(self, kind: str, topics: list[str]) -> Order:
        return Order(kind, self._broker, tuple(dict.fromkeys(topics)))
