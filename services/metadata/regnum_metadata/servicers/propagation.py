"""PropagationService: what the controller publishes, and how far the brokers are."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from regnum.propagation.v1 import propagation_pb2, propagation_pb2_grpc
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.configs import MAX_BROKER_EPOCH
from regnum_model.ids import BrokerId, ControllerEpoch
from regnum_model.picture_line import PictureVersion
from regnum_service.errors import RegnumError
from regnum_service.letting_go import items_gone

from regnum_metadata.image import Change, Head
from regnum_metadata.propagation import Propagation

PARTS_MAX: Final = 100_000
"""Parts of one change, at most."""

VERSION_MAX: Final = 2**31 - 1
"""Largest version within one controller epoch: the epoch stands above it in what clients see."""

MESSAGES_PER_TURN: Final = 10_000
"""Messages let go of between two turns of the event loop, whose partitions the image holds (safety rule S22)."""

WAIT_S_MAX: Final = 10.0
"""Longest wait of DescribeLag."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class PropagationServicer(propagation_pb2_grpc.PropagationServiceServicer):
    """Hands changes in, answers versions."""

    def __init__(self, propagation: Propagation) -> None:
        self._propagation: Final = propagation

    async def PublishChanges(  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[propagation_pb2.PublishChangesRequest],
        context: Context,  # noqa: ARG002
    ) -> propagation_pb2.PublishChangesResponse:
        """One change."""
        head: propagation_pb2.PublishChangesRequest | None = None
        topics: list[types_pb2.TopicState] = []
        complete = False
        parts = 0
        async for part in request_iterator:
            await self._propagation.admit(ControllerEpoch(part.controller_epoch))
            head = part if head is None else head
            if complete or part.part != parts or parts == PARTS_MAX or not _belongs_to(head, part):
                raise RegnumError(
                    errors_pb2.ERROR_CODE_INVALID_REQUEST, "the parts of the change are out of order; send it again"
                )
            topics.extend(part.topics)
            complete = part.last
            parts += 1
        if head is None or not complete or not _is_possible(head):
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "the change is not complete; send all its parts")
        await self._propagation.take(_change(head, topics))
        await items_gone(topics, size=MESSAGES_PER_TURN)
        return propagation_pb2.PublishChangesResponse(
            controller_epoch=self._propagation.highest_epoch,
            version=self._propagation.image.version,
            version_epoch=self._propagation.image.controller_epoch,
        )

    async def DescribeLag(  # noqa: N802 - gRPC's name
        self,
        request: propagation_pb2.DescribeLagRequest,
        context: Context,  # noqa: ARG002
    ) -> propagation_pb2.DescribeLagResponse:
        """How far the brokers are."""
        propagation = self._propagation
        if request.version > 0 and request.wait_ms > 0:
            wait_s = min(request.wait_ms / 1000, WAIT_S_MAX)
            await propagation.reached(ControllerEpoch(request.controller_epoch), request.version, wait_s)
        return propagation_pb2.DescribeLagResponse(
            controller_epoch=propagation.image.controller_epoch,
            version=propagation.image.version,
            payload_serialisations=propagation.payload_serialisations,
            bytes_serialised=sum(made.size_bytes for made in propagation.payloads_made.values()),
            bytes_sent=propagation.payload_bytes_sent,
            stale_refusals=propagation.stale_refusals,
            inter_broker_protocol=propagation.inter_broker_protocol,
            brokers=[
                propagation_pb2.BrokerLag(
                    broker_id=lane.receiver.id,
                    broker_epoch=lane.receiver.epoch,
                    acknowledged_version=lane.acknowledged,
                    behind_ms=lane.behind_ms,
                )
                for lane in propagation.lanes
            ],
        )


def _is_possible(head: propagation_pb2.PublishChangesRequest) -> bool:
    if head.from_version == 0:
        return head.base_epoch == 0 and 0 < head.to_version <= VERSION_MAX
    if head.base_epoch == 0:
        return 0 < head.from_version < head.to_version <= VERSION_MAX
    earlier = 0 < head.base_epoch < head.controller_epoch
    return earlier and head.all_brokers and 0 < head.from_version <= head.base_version < head.to_version <= VERSION_MAX


def _belongs_to(first: propagation_pb2.PublishChangesRequest, part: propagation_pb2.PublishChangesRequest) -> bool:
    return (first.controller_epoch, first.from_version, first.to_version) == (
        part.controller_epoch,
        part.from_version,
        part.to_version,
    )


def _change(head: propagation_pb2.PublishChangesRequest, topics: Sequence[types_pb2.TopicState]) -> Change:
    return Change(
        controller_epoch=ControllerEpoch(head.controller_epoch),
        from_version=head.from_version,
        to_version=head.to_version,
        base=PictureVersion(ControllerEpoch(head.base_epoch), head.base_version) if head.base_epoch else None,
        all_brokers=head.all_brokers,
        removed_brokers=frozenset(BrokerId(id) for id in head.removed_brokers),
        head=Head(
            controller_id=head.controller_id,
            controller=head.controller,
            cluster_id=head.cluster_id,
            max_broker_epoch=head.max_broker_epoch,
            inter_broker_protocol=head.inter_broker_protocol or MAX_BROKER_EPOCH,
            brokers=tuple(sorted(head.brokers, key=lambda broker: broker.id)),
        ),
        traceparent=head.traceparent,
        topics=topics,
    )
