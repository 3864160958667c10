"""Whom the delivery of orders talks to: brokers on one side, the reign that hears what they answer on the other."""

from typing import Protocol

from regnum.replication.v1 import control_pb2
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, PartitionKey, TopicId


class ControlChannel(Protocol):
    """How one broker is reached. Every method raises RegnumError, and is bounded in time."""

    async def leader_and_isr(self, request: bytes) -> control_pb2.LeaderAndIsrResponse:
        """One LeaderAndIsr: an encoded LeaderAndIsrRequest."""

    async def stop_replica(self, request: control_pb2.StopReplicaRequest) -> control_pb2.StopReplicaResponse:
        """One StopReplica."""

    async def get_replica_log_info(
        self, request: control_pb2.GetReplicaLogInfoRequest, *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """One GetReplicaLogInfo."""

    async def describe_settings(
        self, request: control_pb2.DescribeBrokerSettingsRequest, *, timeout_s: float
    ) -> control_pb2.DescribeBrokerSettingsResponse:
        """One DescribeBrokerSettings."""

    async def close(self) -> None:
        """Hang up."""


class DispatchListener(Protocol):
    """Who hears what brokers answer. Called on the controller's loop; must not block."""

    def superseded(self, seen: ControllerEpoch) -> None:
        """A broker knows a later controller epoch."""

    def broker_outdated(self, broker: BrokerId) -> None:
        """A broker says that it has registered anew."""

    def replicas_deleted(self, broker: BrokerId, topics: tuple[tuple[TopicId, bool], ...]) -> None:
        """A broker answered orders to delete: topics, and whether each is deleted there."""

    def partitions_deleted(self, broker: BrokerId, partitions: tuple[tuple[PartitionKey, bool], ...]) -> None:
        """A broker answered orders to delete single replicas: each, and whether it is deleted there."""

    def replicas_offline(self, broker: BrokerId, epoch: BrokerEpoch, keys: frozenset[PartitionKey]) -> None:
        """A broker refused replicas because it cannot use them."""

    def leaderships_fenced(self, broker: BrokerId, epoch: BrokerEpoch, keys: frozenset[PartitionKey]) -> None:
        """A broker refused to lead in leader epochs that its logs know already."""

    def replicas_usable(self, broker: BrokerId, epoch: BrokerEpoch, keys: frozenset[PartitionKey]) -> None:
        """A broker took up replicas that it could not use before."""
