"""What the writer does with the batch of one partition, and what becomes of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard, assert_never

from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_records.check import accepted_batch, verify_crc
from regnum_records.errors import BatchTooLargeError, CorruptBatchError, InvalidRecordError, KeyMissingError
from regnum_records.header import BatchHeader, read_header
from regnum_service.errors import Code
from regnum_telemetry import conventions, tracing

from regnum_broker.log.errors import DirectoryFailedError, ResourceExhaustedError, StorageError
from regnum_broker.log.replica.parts import Appended, AppendOutcome
from regnum_broker.log.replica.producers.states import Duplicate, Fenced, OutOfOrder
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Role
from regnum_broker.serving.produce_requests import batch_in

if TYPE_CHECKING:
    from regnum_broker.serving.produce_answers import PendingAnswer

DEPOSED: Final = "this broker was replaced as leader; refresh metadata and send the batch to the leader again"


@dataclass(slots=True, kw_only=True, eq=False)
class Admitted:
    """One admitted partition of a request."""

    pending: "PendingAnswer | None"
    """The request; None: a batch of the broker's own."""
    index: int
    """Its place in the request."""
    leadership: Leadership
    """Under which it is appended."""
    message: log_pb2.ProducePartition
    """What came."""
    checked: "bytes | Unwelcome | None" = None
    """Its batch, if that was checked beside the writer, keys included."""


@dataclass(slots=True, kw_only=True, eq=False)
class Waiting:
    """One partition of a request whose leadership is being recorded: it is admitted, or refused, when that is done."""

    pending: "PendingAnswer"
    """The request."""
    index: int
    """Its place in the request."""
    message: log_pb2.ProducePartition
    """What came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why nothing was appended."""

    code: Code
    message: str
    put_off: bool = False
    """The same may be taken later: there is no room now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwelcome:
    """A batch that a setting of its topic keeps out: unless it is in the log, from before the setting."""

    refused: Refused
    """Why it is not appended."""
    batch: bytes
    """What came."""
    header: BatchHeader
    """Its head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was appended, now or at the first appearance of a duplicate."""

    base_offset: int
    last_offset: int
    duplicate: bool
    batch: bytes
    """As it is stored, but for the offset and the leader epoch."""


Outcome = Refused | Done


def check_keyed(items: Sequence[Admitted], *, bytes_max: int, now_ms: int) -> list[Refused | None]:
    """Beside the writer thread: check batches of logs that are compacted, in which every record must have a key.

    To find its key is to go through each record, which takes as long as all else together and more; the writer has
    other logs. Returns for each why it is refused; None: it is kept as ``checked``, for the writer to append or, where
    a setting keeps it out, to look whether it came before.
    """
    outcomes: list[Refused | None] = []
    for item in items:
        batch = _checked(item, bytes_max=bytes_max, now_ms=now_ms, keys_required=True)
        if isinstance(batch, Refused):
            outcomes.append(batch)
        else:
            item.checked = batch
            outcomes.append(None)
    return outcomes


def _checked(
    item: Admitted, *, bytes_max: int, now_ms: int, keys_required: bool = False
) -> bytes | Unwelcome | Refused:
    """The batch of a partition as it is appended, or why it is not."""
    partition = item.leadership.partition
    if partition.settings.max_message_bytes is not None:
        bytes_max = partition.settings.max_message_bytes
    try:
        batch = batch_in(item.message, now_ms)
        return accepted_batch(
            batch, bytes_max=bytes_max, keys_required=keys_required or partition.log.settings.is_compacted
        )
    except KeyMissingError as error:
        return _unwelcome(batch, Refused(code=errors_pb2.ERROR_CODE_INVALID_RECORD, message=str(error)))
    except BatchTooLargeError as error:
        return _unwelcome(batch, Refused(code=errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, message=str(error)))
    except InvalidRecordError as error:
        return Refused(code=errors_pb2.ERROR_CODE_INVALID_RECORD, message=str(error))
    except CorruptBatchError as error:
        return Refused(code=errors_pb2.ERROR_CODE_CORRUPT_MESSAGE, message=str(error))


def _unwelcome(batch: bytes, refused: Refused) -> Unwelcome | Refused:
    """The head says whose it is and which: no more of a batch that is too large is looked at, unless it came before.

    Without a producer id it cannot be known again, and is refused without a turn of the writer; so is what is not
    exactly one batch, of which the head would speak for a part only.
    """
    try:
        header = read_header(batch)
    except CorruptBatchError:
        return refused
    if header.producer_id < 0 or header.size_bytes != len(batch):
        return refused
    return Unwelcome(refused=refused, batch=batch, header=header)


def append_one(item: Admitted, *, bytes_max: int, now_ms: int) -> Outcome:
    """On the writer thread: check and append one partition's batch.

    Args:
        item: the partition.
        bytes_max: largest batch where the topic has no limit of its own.
        now_ms: time of plain records that have none.

    Raises:
        DirectoryFailedError: the disk failed.
    """
    leadership = item.leadership
    partition = leadership.partition
    role = partition.role
    if role is not leadership and item.pending is not None and _leads_on(role, leadership):
        # The next epoch has begun, and what was admitted in it stands behind this: the order is kept only here.
        item.leadership = leadership = role
    elif role is not leadership:
        return Refused(code=errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, message=DEPOSED)
    batch = item.checked or _checked(item, bytes_max=bytes_max, now_ms=now_ms)
    if isinstance(batch, Refused):
        return batch
    try:
        if isinstance(batch, Unwelcome):
            return _repeated(batch, partition.log)
        (outcome,) = partition.log.append_as_leader([batch], leader_epoch=leadership.state.leader_epoch)
    except DirectoryFailedError:
        raise
    except StorageError as error:
        # Its own partition's trouble: what was appended to the others is to be told of.
        put_off = isinstance(error, ResourceExhaustedError)
        message = f"broker {leadership.broker}: {error}"
        return Refused(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message=message, put_off=put_off)
    return _translate(outcome, batch)


def _repeated(unwelcome: Unwelcome, log: ReplicaLog) -> Outcome:
    """Done, if it came before; what only claims to be that, with a head that fits and other bytes, is refused."""
    repeated = log.appended_before(unwelcome.header)
    if repeated is None:
        return unwelcome.refused
    try:
        verify_crc(unwelcome.batch, unwelcome.header)
    except CorruptBatchError as error:
        return Refused(code=errors_pb2.ERROR_CODE_CORRUPT_MESSAGE, message=str(error))
    return _translate(repeated, unwelcome.batch)


def _leads_on(role: Role | None, leadership: Leadership) -> TypeGuard[Leadership]:
    """Whether a broker leads on in the role, with nobody else in between, and commits what it appends."""
    return isinstance(role, Leadership) and role.tenure is leadership.tenure and role.isr_sufficient


def _translate(outcome: AppendOutcome, batch: bytes) -> Outcome:
    match outcome:
        case Appended(base_offset=base, last_offset=last):
            return Done(base_offset=base, last_offset=last, duplicate=False, batch=batch)
        case Duplicate(base_offset=base, last_offset=last):
            return Done(base_offset=base, last_offset=last, duplicate=True, batch=batch)
        case OutOfOrder(expected=expected, found=found):
            return Refused(
                code=errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER,
                message=f"sequence {found} does not follow: {expected} is next; start the producer anew",
            )
        case Fenced(current=current, found=found):
            return Refused(
                code=errors_pb2.ERROR_CODE_INVALID_PRODUCER_EPOCH,
                message=f"producer epoch {found} is past: {current} has been seen; start the producer anew",
            )
        case _:
            assert_never(outcome)


def record_first_append(leadership: Leadership, outcome: Done) -> None:
    """A span from the beginning of a leadership to its first append."""
    leadership.cause_pending = False
    tracing.between(
        conventions.FIRST_APPEND,
        leadership.began_unix_nano,
        tracing.now_unix_nano(),
        parent=leadership.cause,
        attributes={
            conventions.BROKER: leadership.broker,
            conventions.TOPIC: leadership.partition.topic,
            conventions.PARTITION: str(leadership.partition.key.partition),
            conventions.LEADER_EPOCH: leadership.state.leader_epoch,
            conventions.OFFSET: outcome.base_offset,
        },
    )
