"""Elections, partitions without a leader, and brokers, in the words of the wire."""

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_service.errors import RegnumError
from regnum_service.item_errors import item_status
from regnum_service.slices import Turns

from regnum_election.brokers.description import DescribedBroker
from regnum_election.decisions.partitions import OfflineReason
from regnum_election.dispatch.control_requests import endpoint
from regnum_election.leaders.elections import Elected, Election, ElectionRequest, ElectionType
from regnum_election.leaders.offline import OfflineList
from regnum_election.reign.writability import DiskSaid

ITEMS_PER_TURN: Final = 500
"""Partitions or brokers put into other words between two turns of the event loop (safety rule S22)."""

TYPES: Final = MappingProxyType(
    {
        admin_pb2.ELECTION_TYPE_PREFERRED: ElectionType.PREFERRED,
        admin_pb2.ELECTION_TYPE_UNCLEAN: ElectionType.UNCLEAN,
    }
)
"""How leaders are elected."""

REASONS: Final = MappingProxyType(
    {
        OfflineReason.NOT_CREATED: admin_pb2.OFFLINE_REASON_NOT_CREATED,
        OfflineReason.MEMBERS_AWAY: admin_pb2.OFFLINE_REASON_MEMBERS_AWAY,
        OfflineReason.OTHER_LOG: admin_pb2.OFFLINE_REASON_OTHER_LOG,
        OfflineReason.REPLICA_UNUSABLE: admin_pb2.OFFLINE_REASON_REPLICA_UNUSABLE,
        OfflineReason.STATE_UNUSABLE: admin_pb2.OFFLINE_REASON_STATE_UNUSABLE,
        OfflineReason.ELECTION_UNDER_WAY: admin_pb2.OFFLINE_REASON_ELECTION_UNDER_WAY,
    }
)
"""Why partitions have no leader."""


def election_request(request: admin_pb2.ElectLeadersRequest, *, who: str) -> ElectionRequest:
    """What a client wants. Raises RegnumError: INVALID_REQUEST."""
    type_ = TYPES.get(request.type)
    if type_ is None:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, "which election? Give ELECTION_TYPE_PREFERRED or _UNCLEAN"
        )
    return ElectionRequest(
        type=type_,
        topics=[(topic.topic, topic.partitions) for topic in request.topics],
        validate_only=request.validate_only,
        who=who,
    )


async def election_response(elected: Elected) -> admin_pb2.ElectLeadersResponse:
    """What a client is answered."""
    response = admin_pb2.ElectLeadersResponse(left=elected.left)
    turns = Turns(ITEMS_PER_TURN)
    for one in elected.elections:
        await turns.took()
        response.results.append(_result(one))
    return response


def _result(one: Election) -> admin_pb2.ElectLeadersResult:
    return admin_pb2.ElectLeadersResult(
        topic=one.topic,
        partition=one.partition,
        error_code=one.code,
        error_message=one.message,
        status=item_status(one.code, one.message),
        leader=one.leader,
        leader_epoch=one.leader_epoch,
        may_be_lost="" if one.loss is None else one.loss.may_be_lost,
        unknown=() if one.loss is None else one.loss.unknown,
    )


async def offline_response(found: OfflineList) -> admin_pb2.ListOfflinePartitionsResponse:
    """What a client is answered."""
    response = admin_pb2.ListOfflinePartitionsResponse(total=found.total, next_page_token=found.next_page_token)
    turns = Turns(ITEMS_PER_TURN)
    for one in found.partitions:
        await turns.took()
        held = one.partition.held
        response.partitions.add(
            topic=one.topic,
            partition=one.number,
            reason=REASONS[one.why.reason],
            message=one.why.message,
            replicas=one.partition.replicas,
            isr=() if held is None else held.state.isr,
            elr=() if held is None else held.state.elr,
            unclean_allowed=one.unclean_allowed,
        )
    return response


async def brokers_response(
    found: Sequence[DescribedBroker], disk_of: Callable[[BrokerId], DiskSaid | None]
) -> admin_pb2.DescribeBrokersResponse:
    """What a client is answered."""
    response = admin_pb2.DescribeBrokersResponse()
    turns = Turns(ITEMS_PER_TURN)
    for one in found:
        await turns.took()
        response.brokers.append(_broker(one, disk_of(one.id)))
    return response


def _broker(one: DescribedBroker, disk: DiskSaid | None) -> admin_pb2.DescribedBroker:
    if not one.known:
        return admin_pb2.DescribedBroker(broker_id=one.id, error_code=errors_pb2.ERROR_CODE_BROKER_ID_NOT_REGISTERED)
    message = admin_pb2.DescribedBroker(
        broker_id=one.id,
        leaving=one.leaving,
        draining=one.draining,
        leaders=one.leaders,
        replicas=one.replicas,
        preferred=one.preferred,
        in_sync=one.in_sync,
        offline_replicas=one.offline,
    )
    broker = one.broker
    if broker is not None:
        message.live = True
        message.epoch, message.registration, message.rack = broker.epoch, broker.registration, broker.rack or ""
        message.client.CopyFrom(endpoint(broker.client))
        message.internal.CopyFrom(endpoint(broker.internal))
        message.log_ids.extend(sorted(broker.log_ids))
    if disk is not None:
        message.refuses_writes_because = disk.refuses_because
        if disk.free_bytes is not None and disk.size_bytes is not None:
            message.disk_free_bytes, message.disk_size_bytes = disk.free_bytes, disk.size_bytes
    return message
