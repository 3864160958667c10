"""Recoveries between messages of AdminService and the controller's own words."""

from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import NO_EPOCH, NO_LEADER, BrokerId
from regnum_model.nodes import LeaderAndIsr
from regnum_service.item_errors import item_status
from regnum_service.slices import Turns

from regnum_election.recovery.calls import Recovered, Recovery, RecoveryRequest
from regnum_election.recovery.decisions import Answer, NoLog, is_recorded

PARTITIONS_PER_TURN: Final = 100
"""Partitions put into words between two turns of the event loop (safety rule S22)."""


def recovery_request(request: admin_pb2.RecoverPartitionsRequest, *, who: str) -> RecoveryRequest:
    """What a client wants."""
    return RecoveryRequest(
        topic=request.topic,
        partitions=tuple(request.partitions),
        first_partition=request.first_partition,
        accept_loss=request.accept_loss,
        who=who,
    )


async def recovery_response(recovered: Recovered) -> admin_pb2.RecoverPartitionsResponse:
    """What a client is answered."""
    results: list[admin_pb2.PartitionRecovery] = []
    turns = Turns(PARTITIONS_PER_TURN)
    for recovery in recovered.recoveries:
        await turns.took()
        results.append(_recovery(recovery))
    return admin_pb2.RecoverPartitionsResponse(results=results, next_partition=recovered.next_partition)


def _recovery(recovery: Recovery) -> admin_pb2.PartitionRecovery:
    rejection, found, assessment = recovery.rejection, recovery.found, recovery.assessment
    message = admin_pb2.PartitionRecovery(
        partition=recovery.partition,
        error_code=errors_pb2.ERROR_CODE_NONE if rejection is None else rejection.code,
        error_message="" if rejection is None else rejection.message,
        status=None if rejection is None else item_status(rejection.code, rejection.message),
        chosen=NO_LEADER,
        recovered=recovery.leader_epoch != NO_EPOCH,
        leader_epoch=recovery.leader_epoch,
    )
    if found is not None and assessment is not None:
        message.reason = found.reason
        message.replicas.extend(_replica(id, answer, found.state) for id, answer in assessment.answers.items())
        message.chosen = NO_LEADER if assessment.chosen is None else assessment.chosen
        message.may_be_lost = assessment.may_be_lost
        message.unknown.extend(assessment.unknown)
        message.lost_from_offset = assessment.lost_from_offset
        message.known_end_offset = assessment.known_end_offset
    return message


def _replica(id: BrokerId, answer: Answer, state: LeaderAndIsr | None) -> admin_pb2.RecoverableReplica:
    if isinstance(answer, NoLog):
        return admin_pb2.RecoverableReplica(
            broker_id=id,
            error_code=answer.code,
            error_message=answer.message,
            last_written_leader_epoch=NO_EPOCH,
            current_leader_epoch=NO_EPOCH,
        )
    return admin_pb2.RecoverableReplica(
        broker_id=id,
        error_message="" if answer.present else "no records: there is no such replica",
        last_written_leader_epoch=answer.last_written_epoch,
        current_leader_epoch=answer.current_epoch,
        log_start_offset=answer.log_start_offset,
        high_watermark=answer.high_watermark,
        log_end_offset=answer.log_end_offset,
        recorded_log=is_recorded(id, answer, state),
        leading=answer.leading,
        log_id=answer.log_id,
    )
