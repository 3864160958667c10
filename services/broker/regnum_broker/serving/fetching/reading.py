"""Reading logs for one answer, on a reader thread: batches as they are stored, or records one by one.

Goals: a call makes no more work, and takes no more memory, than was reserved for it, whatever its batches unpack to;
and none once its caller has left.

Algorithm: an answer of records pays for what was unpacked for it, and not only for what it carries: bytes as they are
without compression, and at least so much for each record as it adds to an answer. What is left is for the next
partition. The first batch of a call may be larger than all that was reserved: then nothing is unpacked beyond that,
and the call is told how much to reserve before it comes again (``Found.lacks_bytes``), which is more each time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_records.decompress import DECOMPRESSED_BYTES_MAX
from regnum_records.errors import CorruptBatchError, UnpackingError
from regnum_records.header import BatchHeader, count_records, iterate
from regnum_records.read import records_of, unpack
from regnum_records.record import Record

from regnum_broker.log.errors import OffsetOutOfRangeError, StorageError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.serving.fetching.admission import out_of_range
from regnum_broker.serving.fetching.requests import FetchResult, RecordForm

RECORD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Largest record that an answer of single records carries."""

RECORD_OVERHEAD_BYTES: Final = 48
"""At most so many bytes does an answer add to the content of a record, or of a header."""

GROWTH: Final = 4
"""So many times as much is reserved where a batch unpacks to more than was: most codecs do not say to how much."""

UNPACKED_BYTES_MAX: Final = DECOMPRESSED_BYTES_MAX + DECOMPRESSED_BYTES_MAX // 16
"""As much as any batch unpacks to, with its head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a reader thread is to read."""

    log: ReplicaLog
    offset: int
    bytes_max: int
    end_offset: int
    result: FetchResult
    """Where it goes, with its content; the thread's alone until it has finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one round of reading found."""

    size_bytes: int = 0
    """Bytes of the answer."""
    held_bytes: int = 0
    """Bytes of memory that it takes: more than on the wire, where it has many small records."""
    lacks_bytes: int = 0
    """Nothing was found: a batch needs more memory than was reserved. Try with so much; 0: that was not so."""
    records: int = 0
    """Records in it; of batches as a whole, so a few before the wanted offset may be among them."""
    failed: bool = False
    """Whether there is an error among the results."""
    by_topic: tuple[tuple[str, int, int], ...] = ()
    """Topic, records and bytes of each log in which something was found."""


class LacksMemoryError(Exception):
    """The first batch of a call needs more than was reserved."""

    def __init__(self, size_bytes: int) -> None:
        """With how much to try again."""
        super().__init__(f"{size_bytes} bytes are to be reserved")
        self.size_bytes = size_bytes


@dataclass(slots=True, kw_only=True)
class _Answer:
    """What was found so far, and how much of what was reserved is left."""

    room: int
    """Bytes of answer."""
    memory: int
    """Bytes of work; an answer that pays for batches as they are stored leaves it alone."""
    size: int = 0
    held: int = 0
    records: int = 0
    by_topic: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return self.memory <= 0 or (self.size > 0 and self.room <= 0)

    def add(self, topic: str, records: int, size_bytes: int, held_bytes: int) -> None:
        self.by_topic.append((topic, records, size_bytes))
        self.records += records
        self.size += size_bytes
        self.held += held_bytes
        self.room -= held_bytes


def read_logs(
    reads: Sequence[Read],
    *,
    form: int,
    total_max: int,
    memory_max: int,
    abandoned: Callable[[], bool] = bool,
) -> Found:
    """On a reader thread: read one log after another until the answer is full; the first always gets its batch.

    Args:
        reads: the logs.
        form: of the answer.
        total_max: about the bytes of the answer.
        memory_max: bytes that were reserved, for it and for what is unpacked for it.
        abandoned: whether the caller has left; then the rest is not read.
    """
    answer = _Answer(room=total_max, memory=memory_max)
    for index, item in enumerate(reads):
        result = item.result
        result.content.begin(result)
        if (index and answer.room <= 0) or answer.is_full or abandoned():
            continue
        try:
            batches = item.log.read(
                item.offset, bytes_max=max(1, min(item.bytes_max, answer.room)), end_offset=item.end_offset
            )
            if form == RecordForm.RECORDS:
                _add_records(answer, item, batches, abandoned)
            else:
                _add_batches(answer, item, batches)
        except OffsetOutOfRangeError:
            refusal = out_of_range(item.offset, item.log)
            result.error_code, result.error_message = refusal.code, refusal.message
        except StorageError as error:
            result.error_code, result.error_message = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, str(error)
        except LacksMemoryError as error:
            # Where it would have been enough, it was spent on a log before it that ended in an error: that is answered.
            if not answer.size and error.size_bytes > memory_max:
                return Found(lacks_bytes=error.size_bytes)
            answer.memory = 0
    failed = any(item.result.error_code for item in reads)
    return Found(
        size_bytes=answer.size,
        held_bytes=answer.held,
        records=answer.records,
        failed=failed,
        by_topic=tuple(answer.by_topic),
    )


def _add_batches(answer: _Answer, item: Read, batches: bytes) -> None:
    if answer.held + len(batches) > answer.memory:
        raise LacksMemoryError(len(batches))
    if batches:
        item.result.content.put(batches)
        answer.add(item.log.topic, count_records(batches), len(batches), len(batches))


def _add_records(answer: _Answer, item: Read, batches: bytes, abandoned: Callable[[], bool]) -> None:
    """Records of ``batches``, or of those behind them where compaction has left none: else they are asked for again."""
    result, content = item.result, item.result.content
    while batches and not abandoned():
        held = _decode(answer, batches, item.offset, result, bytes_max=min(item.bytes_max, answer.room))
        if content:
            answer.add(item.log.topic, len(content), content.size_bytes, held)
        if content or result.error_code or answer.memory <= 0:
            return
        following = max(header.next_offset for _, header in iterate(batches))
        try:
            batches = item.log.read(following, bytes_max=max(1, item.bytes_max), end_offset=item.end_offset)
        except StorageError:
            # It begins later now, or was deleted: the next request finds that.
            return


def _decode(answer: _Answer, batches: bytes, offset: int, result: FetchResult, *, bytes_max: int) -> int:
    """Single records, about ``bytes_max`` of them and at least one, however many a batch decompresses to.

    A bad batch, or a record larger than any answer, is an error only where no record comes before it, so that a reader
    gets up to it; the answer says where to read on. Returns about the bytes of memory that they take.
    """
    size, content = 0, result.content
    try:
        for record in _records(answer, batches, offset):
            taken = _answered_bytes(record)
            if content and size + taken > bytes_max:
                break
            if taken > RECORD_BYTES_MAX:
                _refuse_large(result, record.offset)
                break
            size += taken
            content.add(record)
    except CorruptBatchError as error:
        if not content:
            result.error_code, result.error_message = errors_pb2.ERROR_CODE_CORRUPT_MESSAGE, str(error)
            result.next_offset = error.next_offset or 0
    except LacksMemoryError:
        if not content:
            raise
        answer.memory = 0
    return size


def _records(answer: _Answer, batches: bytes, offset: int) -> Iterator[Record]:
    for position, header in iterate(batches):
        if header.next_offset <= offset:
            continue
        before, plain = answer.memory, _unpacked(answer, batches, position, header)
        none = True
        for record in records_of(plain, header, from_offset=offset) if plain else ():
            none = False
            yield record
        if none:
            # It is let go of at once: what compaction has emptied is passed, however much of it there is.
            answer.memory = before


def _unpacked(answer: _Answer, batches: bytes, position: int, header: BatchHeader) -> bytes:
    """A batch without compression, paid for; raises LacksMemoryError for one that is more than is left."""
    least = header.record_count * RECORD_OVERHEAD_BYTES
    try:
        plain = unpack(batches, position, header, bytes_max=min(max(0, answer.memory), DECOMPRESSED_BYTES_MAX))
    except UnpackingError:
        if answer.memory >= DECOMPRESSED_BYTES_MAX:
            raise
        raise LacksMemoryError(min(max(1, answer.memory) * GROWTH, UNPACKED_BYTES_MAX)) from None
    cost = min(max(len(plain), least), UNPACKED_BYTES_MAX)
    if cost > answer.memory:
        raise LacksMemoryError(cost)
    answer.memory -= cost
    return plain


def _refuse_large(result: FetchResult, offset: int) -> None:
    if not result.content:
        result.error_code, result.next_offset = errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, offset + 1
        result.error_message = (
            f"the record at offset {offset} is larger than an answer; read it as a batch, or skip it: read on at"
            f" offset {offset + 1}"
        )


def _answered_bytes(record: Record) -> int:
    """About the bytes of a record in an answer, and never fewer."""
    headers = sum(len(name) * 4 + len(value or b"") + RECORD_OVERHEAD_BYTES for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES
