"""What a produce request says and what becomes of it, as plain values: by whichever door it came.

Constraints: several of these are made for each batch, so they are slotted, and nothing is read or copied twice.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol

from regnum.types.v1 import errors_pb2
from regnum_service.errors import Code, RegnumError

from regnum_broker.serving.current_leaders import CurrentLeader

PARTITIONS_MAX: Final = 10_000
"""Partitions of one request."""


class Acks(IntEnum):
    """What has to be true of records before the answer; the numbers are those of gRPC's wire."""

    UNSPECIFIED = 0
    """As ALL."""
    ALL = -1
    """Every in-sync replica has them."""
    LEADER = 1
    """The leader has them."""
    NONE = 2
    """Nothing."""


class PlainRecords(Protocol):
    """Records that are no batch yet."""

    @property
    def size_bytes(self) -> int:
        """About their bytes; at least one."""

    def batch(self, now_ms: int) -> bytes:
        """The batch that they become; ``now_ms``: the time of those that have none, milliseconds since 1970."""


@dataclass(slots=True, eq=False)
class ProducePartition:
    """What to append to one partition."""

    topic: str
    partition: int
    record_batch: bytes = field(default=b"", repr=False)
    """One record batch, as it came."""
    topic_id: str = ""
    """Topic id the client knows; empty: any."""
    plain: PlainRecords | None = None
    """What is to become a batch; None: it is one."""
    wrong: str = ""
    """What is wrong with its form; empty: nothing."""

    @property
    def size_bytes(self) -> int:
        """Bytes of what is to be appended; 0 where there is nothing."""
        return len(self.record_batch) if self.plain is None else self.plain.size_bytes

    def batch(self, now_ms: int) -> bytes:
        """The batch that is to be appended; ``now_ms`` as of ``PlainRecords.batch``."""
        return self.record_batch if self.plain is None else self.plain.batch(now_ms)


@dataclass(slots=True, eq=False)
class ProduceRequest:
    """Asks to append."""

    partitions: list[ProducePartition]
    """Each at most once."""
    acks: int = Acks.UNSPECIFIED
    """One of ``Acks``; any other number is refused."""
    timeout_ms: int = 0
    """For so long acks are waited for; 0: the default."""
    client_id: str = ""
    """What its client calls itself."""
    size_bytes: int = 0
    """On the wire, for quotas; 0 where nobody has one."""


@dataclass(slots=True)
class ProduceResult:
    """Outcome for one partition."""

    topic: str
    partition: int
    error_code: Code = errors_pb2.ERROR_CODE_NONE
    error_message: str = ""
    """What is wrong and what to do next."""
    base_offset: int = -1
    """Of the first record appended (of the first appearance, for a duplicate)."""
    log_start_offset: int = 0
    """First offset of the log."""
    current_leader: CurrentLeader | None = None
    """Who leads instead; None: nobody does, or it is not known."""
    isr_change: str = ""
    """Place in the trace of the change that freed the records, which waited for a replica; empty: they did not."""
    log_append_time_ms: int | None = None
    """Time that all records have got, milliseconds since 1970; None: they have their own."""


@dataclass(slots=True)
class ProduceResponse:
    """Answers a produce request."""

    results: list[ProduceResult] = field(default_factory=list)
    """One for each partition, in the order of the request."""
    throttle_time_ms: int = 0
    """For so long the caller is to wait before its next request."""


_ACKS: Final = frozenset(Acks)


def check_request(request: ProduceRequest) -> None:
    """Raise RegnumError when a request contradicts itself: nothing of it is appended."""
    if request.acks not in _ACKS:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUIRED_ACKS,
            f"acks is {request.acks}; give ACKS_ALL (all in-sync replicas; so does leaving it out), ACKS_LEADER or"
            " ACKS_NONE (do not wait)",
        )
    if request.timeout_ms < 0:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, "timeout_ms is negative; give a positive one, or 0 for the default"
        )
    if len(request.partitions) > PARTITIONS_MAX:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {PARTITIONS_MAX} partitions: split the request"
        )
    named = {(item.topic, item.partition) for item in request.partitions}
    if len(named) != len(request.partitions):
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            "a partition is named twice; nothing was appended: send one batch for each partition",
        )


def wrong_in(item: ProducePartition, size_bytes: int) -> str:
    """What is wrong with the form of what is to be appended, which has so many bytes; empty where nothing is."""
    if not item.wrong and not size_bytes:
        return "there is nothing to append: give record_batch or plain.records"
    return item.wrong
