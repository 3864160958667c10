"""Partitions without an eligible leader: what can be recovered of them, page by page."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code, RegnumError

PARTITIONS_PER_PAGE: Final = 1_000
"""Partitions of one call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverableReplica:
    """One assigned replica of a partition without a leader.

    >>> def usable(one: RecoverableReplica) -> bool:
    ...     return not one.error and one.recorded_log
    """

    broker: int
    """Broker id."""
    error: str
    """Why nothing is known of it, or why it has no records; empty when neither is so."""
    code: Code
    """The same for programs; NONE when its log can be chosen."""
    last_written_leader_epoch: int
    """Leader epoch of its last record; -1: its log is empty."""
    current_leader_epoch: int
    """Highest leader epoch that it has heard of; -1: none."""
    log_start_offset: int
    """First offset."""
    high_watermark: int
    """High watermark, as far as it knows."""
    log_end_offset: int
    """Offset after its last record."""
    recorded_log: bool
    """Whether its log is the one that the store records for it; False also when nothing is recorded."""
    leading: bool
    """Whether it leads still, without the store knowing it."""
    log_id: str
    """Log that it answered with; empty when it did not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecovery:
    """What was found of a partition without a leader, and what was done.

    >>> def lost(one: PartitionRecovery) -> str:
    ...     return f"partition {one.partition}: {one.may_be_lost or 'nothing'} is lost by {one.chosen}"
    """

    partition: int
    """Partition number."""
    failure: RegnumError | None
    """Why it cannot be recovered, or was not; None when it can be, or was."""
    reason: str
    """Why it has no leader; empty when it was not looked at."""
    replicas: tuple[RecoverableReplica, ...]
    """Every assigned replica."""
    chosen: int | None
    """Broker that is, or would be, elected."""
    may_be_lost: str
    """What may be lost, in a sentence."""
    unknown: tuple[int, ...]
    """Brokers whose records, as they were recorded, nobody knows."""
    lost_from_offset: int
    """Offset from which on records may be lost."""
    known_end_offset: int
    """Highest log end offset or high watermark that a replica knows."""
    recovered: bool
    """Whether the chosen broker was elected."""
    leader_epoch: int | None
    """Its leader epoch."""


AskPage = Callable[[admin_pb2.RecoverPartitionsRequest], Awaitable[admin_pb2.RecoverPartitionsResponse]]
"""Sends one page to the controller."""


async def in_pages(
    ask: AskPage, *, topic: str, partitions: Sequence[int], accept_loss: bool
) -> AsyncIterator[PartitionRecovery]:
    """All partitions, page after page. Raises RegnumError."""
    named = sorted(set(partitions))
    pages = [named[start : start + PARTITIONS_PER_PAGE] for start in range(0, len(named), PARTITIONS_PER_PAGE)]
    for page in pages or [[]]:
        first = 0
        while True:
            answer = await ask(
                admin_pb2.RecoverPartitionsRequest(
                    topic=topic, partitions=page, first_partition=first, accept_loss=accept_loss
                )
            )
            for result in answer.results:
                yield recovery_from_wire(topic, result)
            if answer.next_partition <= first:
                break
            first = answer.next_partition


def recovery_from_wire(topic: str, result: admin_pb2.PartitionRecovery) -> PartitionRecovery:
    """Read one result."""
    failure = None
    if result.error_code != errors_pb2.ERROR_CODE_NONE:
        metadata = {"topic": topic, "partition": str(result.partition)}
        failure = RegnumError(
            result.error_code, f"{topic}/{result.partition}: {result.error_message}", metadata=metadata
        )
    return PartitionRecovery(
        partition=result.partition,
        failure=failure,
        reason=result.reason,
        replicas=tuple(_replica(replica) for replica in result.replicas),
        chosen=result.chosen if result.chosen >= 0 else None,
        may_be_lost=result.may_be_lost,
        unknown=tuple(result.unknown),
        lost_from_offset=result.lost_from_offset,
        known_end_offset=result.known_end_offset,
        recovered=result.recovered,
        leader_epoch=result.leader_epoch if result.recovered else None,
    )


def _replica(replica: admin_pb2.RecoverableReplica) -> RecoverableReplica:
    return RecoverableReplica(
        broker=replica.broker_id,
        error=replica.error_message,
        code=replica.error_code,
        last_written_leader_epoch=replica.last_written_leader_epoch,
        current_leader_epoch=replica.current_leader_epoch,
        log_start_offset=replica.log_start_offset,
        high_watermark=replica.high_watermark,
        log_end_offset=replica.log_end_offset,
        recorded_log=replica.recorded_log,
        leading=replica.leading,
        log_id=replica.log_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedNumber:
    """A partition number of which what is recorded cannot be read, and what was done about it."""

    partition: int
    reason: str
    """What is wrong; empty: nothing that can be given up."""
    may_be_lost: str
    """What giving it up does."""
    given_up: bool
    """Whether it was."""
    failure: RegnumError | None
    """What stands against it."""


def damaged_from_wire(message: admin_pb2.GivenUpPartition) -> DamagedNumber:
    """What was answered of one."""
    failed = message.error_code != errors_pb2.ERROR_CODE_NONE
    return DamagedNumber(
        partition=message.partition,
        reason=message.reason,
        may_be_lost=message.may_be_lost,
        given_up=message.given_up,
        failure=RegnumError(message.error_code, message.error_message) if failed else None,
    )
