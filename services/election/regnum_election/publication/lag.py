"""How far the news of the controller has come, in the words of the wire."""

from typing import Final, Protocol

from regnum.admin.v1 import admin_pb2
from regnum.propagation.v1 import propagation_pb2
from regnum_model.ids import ControllerEpoch
from regnum_model.picture_line import PictureVersion
from regnum_service.cluster_image.held import to_wire

from regnum_election.decisions.cluster import Cluster
from regnum_election.dispatch.control_requests import endpoint
from regnum_election.publication.subscriber import MetadataProcess

UNKNOWN: Final = -1
"""Versions behind where nobody can say."""


class Lags(Protocol):
    """Metadata processes of a reign."""

    @property
    def journal(self) -> "Published":
        """What was published."""

    async def lags(self) -> list[tuple[MetadataProcess, int | None, propagation_pb2.DescribeLagResponse | None]]:
        """Each process, how far it is behind, and what it says of its brokers."""


class Published(Protocol):
    """What was published."""

    @property
    def head(self) -> PictureVersion:
        """The last version."""


async def describe_propagation(metadata: Lags, picture: Cluster) -> admin_pb2.DescribePropagationResponse:
    """All metadata processes of a reign and the brokers that they serve."""
    lags = await metadata.lags()
    head = metadata.journal.head
    return admin_pb2.DescribePropagationResponse(
        version=to_wire(head),
        inter_broker_protocol=picture.settings.inter_broker_protocol,
        metadata_processes=[_process(head, *lag) for lag in lags],
    )


def _process(
    head: PictureVersion,
    process: MetadataProcess,
    behind: int | None,
    answer: propagation_pb2.DescribeLagResponse | None,
) -> admin_pb2.MetadataProcessLag:
    told = admin_pb2.MetadataProcessLag(
        metadata_id=process.id,
        client=endpoint(process.client),
        versions_behind=UNKNOWN if behind is None else behind,
        answered=answer is not None,
    )
    if answer is None:
        return told
    told.version = to_wire(PictureVersion(ControllerEpoch(answer.controller_epoch), answer.version))
    told.payload_serialisations = answer.payload_serialisations
    told.bytes_serialised, told.bytes_sent = answer.bytes_serialised, answer.bytes_sent
    told.stale_refusals = answer.stale_refusals
    current = answer.controller_epoch == head.epoch
    for broker in answer.brokers:
        acknowledged = broker.acknowledged_version if current else 0
        told.brokers.add(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            versions_behind=max(head.number - acknowledged, 0) if acknowledged else UNKNOWN,
            behind_ms=broker.behind_ms,
        )
    return told
