"""ReplicaControlService: orders of the controller."""

from collections.abc import AsyncIterator
from typing import Any, Final, Protocol

import structlog
from regnum.replication.v1 import control_pb2, control_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, PartitionKey, TopicId
from regnum_service.errors import RegnumError

from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.lives.went_back import WentBack
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.configs.dynamic import DynamicConfigs
from regnum_broker.replication.replicas import Replicas
from regnum_broker.servicers.replica_logs import QUERIES_MAX, ReplicaLogs

PARTITIONS_MAX: Final = 500
"""Partitions of one message."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class TakesMetadata(Protocol):
    """Where changes of metadata go: ``MetadataCache``."""

    async def take(
        self, request: control_pb2.UpdateMetadataRequest, parts: list[control_pb2.UpdateMetadataRequest]
    ) -> control_pb2.UpdateMetadataResponse | None:
        """Take one message of a change; one answer for each change, None for all messages but one."""


class ReplicaControlServicer(control_pb2_grpc.ReplicaControlServiceServicer):
    """Checks epochs, hands orders in, answers."""

    def __init__(
        self,
        *,
        fence: Fence,
        orders: Orders,
        replicas: Replicas,
        logs: ReplicaLogs,
        cache: TakesMetadata,
        configs: DynamicConfigs,
        went_back: WentBack,
    ) -> None:
        self._went_back: Final = went_back
        self._configs: Final = configs
        self._fence: Final = fence
        self._orders: Final = orders
        self._replicas: Final = replicas
        self._logs: Final = logs
        self._cache: Final = cache
        self._full_set: _FullSet | None = None

    async def LeaderAndIsr(  # noqa: N802 - gRPC's name
        self,
        request: control_pb2.LeaderAndIsrRequest,
        context: Context,  # noqa: ARG002
    ) -> control_pb2.LeaderAndIsrResponse:
        """Leadership of partitions."""
        _check_size(len(request.partitions), PARTITIONS_MAX)
        await self._admit(request.controller_epoch, request.broker_epoch)
        self._went_back.refuse_orders()
        self._replicas.learn_listeners(request.live_leaders)
        results = await self._orders.lead_and_follow(request.partitions, broker_epoch=BrokerEpoch(request.broker_epoch))
        if request.init:
            self._note_full_set(request)
        return control_pb2.LeaderAndIsrResponse(
            results=[
                control_pb2.ReplicaResult(
                    topic_id=item.topic_id,
                    partition=item.state.partition,
                    error_code=code,
                    acknowledgement_follows=self._replicas.first_acknowledgements.follows(
                        PartitionKey(TopicId(item.topic_id), item.state.partition), LeaderEpoch(item.state.leader_epoch)
                    ),
                )
                for item, code in zip(request.partitions, results, strict=True)
            ]
        )

    async def StopReplica(  # noqa: N802 - gRPC's name
        self,
        request: control_pb2.StopReplicaRequest,
        context: Context,  # noqa: ARG002
    ) -> control_pb2.StopReplicaResponse:
        """Replicas to stop."""
        await self._admit(request.controller_epoch, request.broker_epoch)
        self._went_back.refuse_orders()
        results = await self._orders.stop(request.partitions, broker_epoch=BrokerEpoch(request.broker_epoch))
        return control_pb2.StopReplicaResponse(
            results=[
                control_pb2.ReplicaResult(topic_id=item.topic_id, partition=item.partition, error_code=code)
                for item, code in zip(request.partitions, results, strict=True)
            ]
        )

    async def GetReplicaLogInfo(  # noqa: N802 - gRPC's name
        self,
        request: control_pb2.GetReplicaLogInfoRequest,
        context: Context,  # noqa: ARG002
    ) -> control_pb2.GetReplicaLogInfoResponse:
        """What logs hold."""
        _check_size(len(request.queries), QUERIES_MAX)
        await self._admit(request.controller_epoch, request.broker_epoch)
        identity = await self._fence.wait_registered()
        # The epoch first: what is said below is true of this life or of a later one, which the asker refuses.
        if request.all:
            after = PartitionKey(TopicId(request.after.topic_id), request.after.partition)
            replicas, more = await self._logs.describe_all(after if request.HasField("after") else None)
            return control_pb2.GetReplicaLogInfoResponse(
                broker_epoch=identity.broker_epoch, replicas=replicas, listed=True, more=more
            )
        return control_pb2.GetReplicaLogInfoResponse(
            broker_epoch=identity.broker_epoch, replicas=await self._logs.describe(request.queries)
        )

    async def DescribeBrokerSettings(  # noqa: N802 - gRPC's name
        self,
        request: control_pb2.DescribeBrokerSettingsRequest,
        context: Context,  # noqa: ARG002
    ) -> control_pb2.DescribeBrokerSettingsResponse:
        """What the broker runs with."""
        await self._admit(request.controller_epoch, request.broker_epoch)
        return control_pb2.DescribeBrokerSettingsResponse(settings=self._configs.described())

    async def UpdateMetadata(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[control_pb2.UpdateMetadataRequest],
        context: Context,  # noqa: ARG002
    ) -> AsyncIterator[control_pb2.UpdateMetadataResponse]:
        """Metadata changes."""
        parts: list[control_pb2.UpdateMetadataRequest] = []
        async for request in request_iterator:
            answer = await self._cache.take(request, parts)
            if answer is not None:
                yield answer

    async def _admit(self, controller_epoch: int, broker_epoch: int) -> None:
        await self._fence.admit_controller(ControllerEpoch(controller_epoch))
        await self._fence.check_broker(BrokerEpoch(broker_epoch))
        # While the broker registered, a newer controller may have spoken.
        self._fence.check_controller(ControllerEpoch(controller_epoch))

    def _note_full_set(self, request: control_pb2.LeaderAndIsrRequest) -> None:
        """Parts of the full set, applied as they come; what all of them leave out is a stray (safety rule S12)."""
        life = (request.controller_epoch, request.broker_epoch, request.parts)
        if self._full_set is None or self._full_set.life != life:
            self._full_set = _FullSet(life)
        full_set = self._full_set
        full_set.parts.add(request.part)
        full_set.keys.update(PartitionKey(TopicId(item.topic_id), item.state.partition) for item in request.partitions)
        if len(full_set.parts) < request.parts:
            return
        strays = [partition for partition in self._replicas if partition.key not in full_set.keys]
        structlog.get_logger("control").info(
            "full set taken", controller_epoch=request.controller_epoch, named=len(full_set.keys), strays=len(strays)
        )
        self._full_set = None


class _FullSet:
    """The parts of a full set that have come."""

    def __init__(self, life: tuple[int, int, int]) -> None:
        self.life: Final = life
        self.parts: Final[set[int]] = set()
        self.keys: Final[set[PartitionKey]] = set()


def _check_size(count: int, limit: int) -> None:
    if count > limit:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"{count} partitions in one message; send at most {limit} and the rest in further messages",
        )
