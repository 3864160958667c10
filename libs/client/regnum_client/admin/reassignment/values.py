"""Open reassignments as callers see them, and the rest of a call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.wire_times import unix_ms_of
from regnum_service.errors import RegnumError

PARTITIONS_PER_CALL: Final = 10_000
"""Partitions of one call; more are split."""

PHASES: Final[Mapping[int, str]] = {
    admin_pb2.REASSIGNMENT_PHASE_WAITING: "waiting",
    admin_pb2.REASSIGNMENT_PHASE_MOVING: "moving",
    admin_pb2.REASSIGNMENT_PHASE_CANCELLING: "cancelling",
}

Target = Sequence[int] | None
"""Brokers that are to have a partition; None: call the open reassignment back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedReplica:
    """A replica that a reassignment brings in."""

    broker: int
    """Broker id."""
    live: bool
    """Whether the broker is live."""
    in_sync: bool
    """Whether the replica is in the ISR."""
    log_end_offset: int | None
    """Offset after its last record; None: it has not said yet."""
    bytes: int | None
    """Bytes of its records; None: it has not said yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OngoingReassignment:
    """An open reassignment."""

    topic: str
    """Topic name."""
    partition: int
    """Partition number."""
    replicas: tuple[int, ...]
    """Replicas at present: the old ones, and the new ones once it has begun."""
    origin: tuple[int, ...]
    """Replicas before it began."""
    target: tuple[int, ...]
    """Replicas afterwards; the same as ``origin`` while it is being cancelled."""
    phase: str
    """``waiting``, ``moving`` or ``cancelling``."""
    waits_for: str
    """What it waits for, in words; empty: nothing."""
    since_ms: int
    """When it was asked for, milliseconds since 1970."""
    leader: int | None
    """Broker that leads the partition now; None: nobody does."""
    isr: tuple[int, ...]
    """In-sync replicas."""
    bytes_total: int | None
    """Bytes that the new replicas have to have; None: their leader has not said yet."""
    bytes_done: int
    """Bytes of these that they have."""
    added: tuple[AddedReplica, ...]
    """New replicas, one by one."""

    @property
    def percent(self) -> float | None:
        """How far it is, 0 to 100; None: not known yet. New replicas that are in sync count as whole."""
        if not self.added:
            return 100.0
        if all(replica.in_sync for replica in self.added):
            return 100.0
        if self.bytes_total is None:
            return None
        if self.bytes_total == 0:
            return 100.0 * sum(replica.in_sync for replica in self.added) / len(self.added)
        return min(100.0, 100.0 * self.bytes_done / self.bytes_total)


def requests_of(targets: Mapping[tuple[str, int], Target]) -> list[list[admin_pb2.ReassignablePartition]]:
    """What is wanted, in parts of one call each."""
    items = [
        admin_pb2.ReassignablePartition(
            topic=topic, partition=partition, replicas=() if wanted is None else wanted, cancel=wanted is None
        )
        for (topic, partition), wanted in targets.items()
    ]
    return [items[start : start + PARTITIONS_PER_CALL] for start in range(0, len(items), PARTITIONS_PER_CALL)]


def failure_of_result(result: admin_pb2.ReassignedPartition) -> RegnumError | None:
    """Why a partition is not moved; None: it is."""
    if result.error_code == errors_pb2.ERROR_CODE_NONE:
        return None
    metadata = {"topic": result.topic, "partition": str(result.partition)}
    return RegnumError(
        result.error_code, f"{result.topic}/{result.partition}: {result.error_message}", metadata=metadata
    )


def ongoing_from_wire(message: admin_pb2.OngoingReassignment) -> OngoingReassignment:
    """Read one."""
    return OngoingReassignment(
        topic=message.topic,
        partition=message.partition,
        replicas=tuple(message.replicas),
        origin=tuple(message.origin),
        target=tuple(message.target),
        phase=PHASES.get(message.phase, "unknown"),
        waits_for=message.waits_for,
        since_ms=unix_ms_of(message.since),
        leader=message.leader if message.leader >= 0 else None,
        isr=tuple(message.isr),
        bytes_total=message.bytes_total if message.bytes_total >= 0 else None,
        bytes_done=message.bytes_done,
        added=tuple(
            AddedReplica(
                broker=replica.broker_id,
                live=replica.live,
                in_sync=replica.in_sync,
                log_end_offset=replica.log_end_offset if replica.log_end_offset >= 0 else None,
                bytes=replica.bytes if replica.bytes >= 0 else None,
            )
            for replica in message.added
        ),
    )
