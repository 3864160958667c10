"""Reassignments in the words of the wire, and back."""

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_LEADER, BrokerId
from regnum_model.wire_times import timestamp_of
from regnum_service.item_errors import item_status
from regnum_service.slices import Turns

from regnum_election.decisions.cluster import Cluster
from regnum_election.decisions.rejection import Rejection
from regnum_election.reassignment.calls import Ongoing, OngoingPage, ReassignmentRequest, waits_for_place

ITEMS_PER_TURN = 1_000
"""Partitions put into other words between two turns of the event loop (safety rule S22)."""


async def requests_of(request: admin_pb2.AlterPartitionReassignmentsRequest) -> list[ReassignmentRequest | Rejection]:
    """What a caller wants, partition by partition."""
    turns = Turns(ITEMS_PER_TURN)
    wanted: list[ReassignmentRequest | Rejection] = []
    for item in request.partitions:
        await turns.took(1 + len(item.replicas))
        if item.cancel == bool(item.replicas):
            wanted.append(
                Rejection(
                    code=errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT,
                    message="say which brokers are to have it, or that it is to be called back; one of the two",
                )
            )
            continue
        target = None if item.cancel else tuple(map(BrokerId, item.replicas))
        wanted.append(ReassignmentRequest(topic=item.topic, partition=item.partition, target=target))
    return wanted


async def alter_response(
    request: admin_pb2.AlterPartitionReassignmentsRequest, outcomes: "list[Rejection | None]"
) -> admin_pb2.AlterPartitionReassignmentsResponse:
    """The answer to it."""
    turns = Turns(ITEMS_PER_TURN)
    response = admin_pb2.AlterPartitionReassignmentsResponse()
    for item, refused in zip(request.partitions, outcomes, strict=True):
        await turns.took()
        response.results.add(
            topic=item.topic,
            partition=item.partition,
            error_code=errors_pb2.ERROR_CODE_NONE if refused is None else refused.code,
            error_message="" if refused is None else refused.message,
            status=None if refused is None else item_status(refused.code, refused.message),
        )
    return response


async def list_response(found: OngoingPage, picture: Cluster) -> admin_pb2.ListPartitionReassignmentsResponse:
    """A page of open reassignments."""
    turns = Turns(ITEMS_PER_TURN)
    response = admin_pb2.ListPartitionReassignmentsResponse(next_page_token=found.next_page_token, total=found.total)
    for one in found.reassignments:
        await turns.took()
        response.reassignments.append(_ongoing(one, picture))
    return response


def _ongoing(one: Ongoing, picture: Cluster) -> admin_pb2.OngoingReassignment:
    partition = one.partition
    move, held = partition.reassignment, partition.held
    if move is None:
        raise AssertionError("only open reassignments are listed")
    isr = () if held is None else held.state.isr
    message = admin_pb2.OngoingReassignment(
        topic=one.topic,
        topic_id=one.key.topic_id,
        partition=one.key.partition,
        replicas=partition.replicas,
        origin=move.origin,
        target=move.target,
        phase=_phase(one),
        waits_for=one.waits_for,
        since=timestamp_of(move.since_ms),
        leader=NO_LEADER if held is None else held.state.leader,
        isr=isr,
        bytes_total=-1 if one.moved.total is None else one.moved.total,
        bytes_done=one.moved.done,
    )
    for id in move.adding:
        size = one.sizes.get(id)
        message.added.add(
            broker_id=id,
            live=id in picture.brokers,
            in_sync=id in isr,
            log_end_offset=-1 if size is None else size.log_end_offset,
            bytes=-1 if size is None else size.size_bytes,
        )
    return message


def _phase(one: Ongoing) -> admin_pb2.ReassignmentPhase.ValueType:
    move = one.partition.reassignment
    if move is not None and move.cancelling:
        return admin_pb2.REASSIGNMENT_PHASE_CANCELLING
    if waits_for_place(one.partition):
        return admin_pb2.REASSIGNMENT_PHASE_WAITING
    return admin_pb2.REASSIGNMENT_PHASE_MOVING
