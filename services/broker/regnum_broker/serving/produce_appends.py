"""How the batch of one partition is checked and appended, and what becomes of it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard, assert_never

from regnum.types.v1 import errors_pb2
from regnum_model.config_definition import LOG_APPEND_TIME
from regnum_model.configs import DEFINITIONS, MAX_MESSAGE_UNPACKED_BYTES, UNPACKED_BYTES_MAX
from regnum_records.check import accepted_batch, verify_crc
from regnum_records.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    KeyMissingError,
    UnpackedTooLargeError,
)
from regnum_records.header import BatchHeader, read_header
from regnum_records.stamping import at_append_time
from regnum_service.errors import Code
from regnum_service.limits.call import OWN, Call
from regnum_telemetry import conventions, tracing

from regnum_broker.log.errors import DirectoryFailedError, ResourceExhaustedError, StorageError
from regnum_broker.log.replica.parts import Appended, AppendOutcome
from regnum_broker.log.replica.producers.states import Duplicate, Fenced, OutOfOrder
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.partition import Partition, Role
from regnum_broker.replication.purgatory import Wait
from regnum_broker.replication.traces.new_leader import record_wait
from regnum_broker.serving.produce_requests import ProducePartition

if TYPE_CHECKING:
    from regnum_broker.serving.produce_answers import PendingAnswer

DEPOSED: Final = "this broker was replaced as leader; refresh metadata and send the batch to the leader again"

LET_GO: Final = ProducePartition("", -1)
"""In place of what the writer has taken, or of what nobody waits for any more before it has."""

UNPACKED_BYTES_DEFAULT: Final = DEFINITIONS[MAX_MESSAGE_UNPACKED_BYTES].default
"""Largest size of decompressed records where the topic has no limit of its own."""


class Rules(NamedTuple):
    """What a topic's settings ask of a batch."""

    bytes_max: int
    """Its largest size."""
    unpacked_bytes_max: int
    """That of its records, once they are decompressed."""
    keys_required: bool
    """Whether every record must have a key."""


def rules_of(partition: Partition, bytes_max: int) -> Rules:
    """The rules at present; ``bytes_max`` where the topic has no limit of its own. Any thread."""
    settings = partition.settings
    own_max, own_unpacked_max = settings.max_message_bytes, settings.max_message_unpacked_bytes
    return Rules(
        bytes_max if own_max is None else own_max,
        UNPACKED_BYTES_DEFAULT if own_unpacked_max is None else own_unpacked_max,
        partition.log.settings.is_compacted,
    )


@dataclass(slots=True, kw_only=True, eq=False)
class Admitted:
    """One admitted partition of a request."""

    pending: "PendingAnswer | None"
    """The request; None: a batch of the broker's own."""
    index: int
    """Its place in the request."""
    leadership: Leadership
    """Under which it is appended."""
    message: ProducePartition
    """What came."""
    came_ms: int = 0
    """When, by the wall clock: the time of plain records that have none."""
    size_bytes: int = 0
    """Its bytes."""
    checked: "Checked | None" = None
    """Its batch, if that was checked beside the writer."""
    in_line: bool = False
    """Whether it waits to be checked beside the writer, or is, and the writer does not have it yet."""
    through: asyncio.Event | None = None
    """Set when it is in line no more; None: nobody waits for that."""
    unpacks_to_more_than: int = 0
    """Bytes of room that were too few to check it."""
    first_unix_nano: int = 0
    """When it was appended, where it is the first under a leadership whose cause is known; 0: it is not."""
    spent_s: float = 0.0
    """For so long a thread was at it that nobody was charged for yet."""
    replicating: Wait | None = None
    """Its wait for the high watermark, once it is appended."""

    @property
    def call(self) -> Call:
        """For whom it is appended."""
        return OWN if self.pending is None else self.pending.call

    def charge(self) -> None:
        """Have its caller pay for what a thread has done."""
        spent_s, self.spent_s = self.spent_s, 0.0
        self.call.worked(spent_s)

    def let_go(self) -> None:
        """Nobody waits for it any more: it is not appended, if the writer does not have it yet."""
        if self.in_line:
            self.message = LET_GO
        if self.replicating is not None:
            self.leadership.partition.acks.give_up(self.replicating)


@dataclass(slots=True, kw_only=True, eq=False)
class Waiting:
    """One partition of a request whose leadership is being recorded: it is admitted, or refused, when that is done."""

    pending: "PendingAnswer"
    """The request."""
    index: int
    """Its place in the request."""
    message: ProducePartition
    """What came."""

    def let_go(self) -> None:
        """Nobody waits for it any more."""
        self.message = LET_GO


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
    append_ms: int | None = None
    """Time that its records have got, milliseconds since 1970; None: they have their own, or were in the log."""


Outcome = Refused | Done


class LacksRoomError(Exception):
    """A batch unpacks to more than there was room for; its topic may allow it."""


class Checked(NamedTuple):
    """A batch that was checked."""

    batch: bytes | Unwelcome
    """As it is appended, or what keeps it out."""
    rules: Rules
    """By which it was checked."""


def check_some(
    items: Sequence[Admitted], *, bytes_max: int, room_bytes: int, now_s: Callable[[], float], piece_s: float
) -> list[Refused | None]:
    """On a thread beside the writer: check batches one after another, the first one and others for ``piece_s``.

    To unpack a batch and to look at each of its records takes as long as all else together, and for one that was made
    to it takes very much longer; the writer has other logs. Returns for each why it is refused; None: it is kept as
    ``checked``, for the writer to append or, where a setting keeps it out, to look whether it came before. One for
    which there is not enough room is left for the next piece (``unpacks_to_more_than``), and all behind it are.

    Args:
        items: those of one caller, in the order in which they came; the last may be left for the next piece.
        bytes_max: largest batch where the topic has no limit of its own.
        room_bytes: to so much a compressed batch may unpack.
        now_s: monotonic time.
        piece_s: as long as a caller may have the thread at a time.
    """
    outcomes: list[Refused | None] = []
    began_s = before_s = now_s()
    for item in items:
        lacks_room = False
        message, rules = item.message, rules_of(item.leadership.partition, bytes_max)
        # Who waited for it may leave at any moment: it is looked at once.
        try:
            found = None if message is LET_GO else _checked(message, item.came_ms, rules, room_bytes)
        except LacksRoomError:
            lacks_room, item.unpacks_to_more_than = True, room_bytes
        else:
            item.checked = None if found is None or isinstance(found, Refused) else Checked(found, rules)
            outcomes.append(found if isinstance(found, Refused) else None)
        ended_s = now_s()
        item.spent_s, before_s = item.spent_s + ended_s - before_s, ended_s
        if lacks_room or ended_s - began_s >= piece_s:
            break
    return outcomes


def _checked(
    message: ProducePartition, came_ms: int, rules: Rules, room_bytes: int = UNPACKED_BYTES_MAX
) -> bytes | Unwelcome | Refused:
    """The batch of a partition as it is appended, or why it is not. Raises LacksRoomError."""
    batch = message.batch(came_ms)
    try:
        return accepted_batch(
            batch,
            bytes_max=rules.bytes_max,
            unpacked_bytes_max=min(rules.unpacked_bytes_max, room_bytes),
            keys_required=rules.keys_required,
        )
    except KeyMissingError as error:
        return _unwelcome(batch, Refused(code=errors_pb2.ERROR_CODE_INVALID_RECORD, message=str(error)))
    except BatchTooLargeError as error:
        return _unwelcome(batch, Refused(code=errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, message=str(error)))
    except UnpackedTooLargeError as error:
        if room_bytes < rules.unpacked_bytes_max:
            raise LacksRoomError from None
        message_text = f"{error}, which is what its topic takes ({MAX_MESSAGE_UNPACKED_BYTES}): send smaller batches"
        return _unwelcome(batch, Refused(code=errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, message=message_text))
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


def append_some(
    items: Sequence[Admitted], *, bytes_max: int, now_s: Callable[[], float], wall_ms: Callable[[], int]
) -> list[Outcome]:
    """On the writer thread: append the batches of partitions, one after another.

    Args:
        items: the partitions.
        bytes_max: largest batch where the topic has no limit of its own.
        now_s: monotonic time.
        wall_ms: milliseconds since 1970, which records get where their topic wants it so.

    Raises:
        DirectoryFailedError: the disk failed.
    """
    outcomes: list[Outcome] = []
    before_s = now_s()
    for item in items:
        outcomes.append(_append(item, bytes_max, wall_ms))
        ended_s = now_s()
        item.spent_s, before_s = item.spent_s + ended_s - before_s, ended_s
    return outcomes


def _append(item: Admitted, bytes_max: int, wall_ms: Callable[[], int]) -> Outcome:
    """Append one; what was not checked beside the writer, or by settings of its topic that are past, is checked."""
    leadership = item.leadership
    partition = leadership.partition
    role = partition.role
    if role is not leadership and item.pending is not None and _leads_on(role, leadership):
        # The next epoch has begun, and what was admitted in it stands behind this: the order is kept only here.
        item.leadership = leadership = role
    elif role is not leadership:
        return Refused(code=errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, message=DEPOSED)
    checked, rules = item.checked, rules_of(partition, bytes_max)
    if checked is not None and checked.rules == rules:
        batch: bytes | Unwelcome = checked.batch
    else:
        found = _checked(item.message, item.came_ms, rules)
        if isinstance(found, Refused):
            return found
        batch = found
    try:
        if isinstance(batch, Unwelcome):
            return _repeated(batch, partition.log)
        append_ms = wall_ms() if partition.settings.message_timestamp_type == LOG_APPEND_TIME else None
        if append_ms is not None:
            batch = at_append_time(batch, append_ms)
        (outcome,) = partition.log.append_as_leader([batch], leader_epoch=leadership.state.leader_epoch)
    except DirectoryFailedError:
        raise
    except StorageError as error:
        # Its own partition's trouble: what was appended to the others is to be told of.
        put_off = isinstance(error, ResourceExhaustedError)
        message = f"broker {leadership.broker}: {error}"
        return Refused(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message=message, put_off=put_off)
    return _translate(outcome, batch, append_ms)


def _repeated(unwelcome: Unwelcome, log: ReplicaLog) -> Outcome:
    """Done, if it came before; what only claims to be that, with a head that fits and other bytes, is refused."""
    repeated = log.appended_before(unwelcome.header)
    if repeated is None:
        return unwelcome.refused
    try:
        verify_crc(unwelcome.batch, unwelcome.header)
    except CorruptBatchError as error:
        return Refused(code=errors_pb2.ERROR_CODE_CORRUPT_MESSAGE, message=str(error))
    return _translate(repeated, unwelcome.batch, None)


def _leads_on(role: Role | None, leadership: Leadership) -> TypeGuard[Leadership]:
    """Whether a broker leads on in the role, with nobody else in between, and commits what it appends."""
    return isinstance(role, Leadership) and role.tenure is leadership.tenure and role.isr_sufficient


def _translate(outcome: AppendOutcome, batch: bytes, append_ms: int | None) -> Outcome:
    match outcome:
        case Appended(base_offset=base, last_offset=last):
            return Done(base_offset=base, last_offset=last, duplicate=False, batch=batch, append_ms=append_ms)
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


def record_first_append(item: Admitted, outcome: Done) -> None:
    """A span from the beginning of a leadership to its first append, for the leadership that still owes one."""
    new, item.leadership.new = item.leadership.new, None
    item.first_unix_nano = tracing.now_unix_nano()
    if new is not None:
        record_wait(conventions.FIRST_APPEND, item.leadership, new.began_unix_nano, outcome.base_offset)


def record_replicated(item: Admitted) -> None:
    """A span from the first append of a leadership to the high watermark that covers it."""
    record_wait(conventions.HIGH_WATERMARK_WAIT, item.leadership, item.first_unix_nano)
