"""Reading logs for one answer, on a reader thread: batches as they are stored, or records one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_records.errors import CorruptBatchError
from regnum_records.header import count_records, iterate
from regnum_records.read import read_records
from regnum_records.record import Record

from regnum_broker.log.errors import OffsetOutOfRangeError, StorageError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.serving.fetching.admission import out_of_range

RECORD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Largest record that an answer of single records carries."""

RECORD_OVERHEAD_BYTES: Final = 48
"""At most so many bytes does an answer add to the content of a record, or of a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a reader thread is to read."""

    log: ReplicaLog
    offset: int
    bytes_max: int
    end_offset: int
    result: log_pb2.FetchResult
    """Where it goes; the thread's alone until it has finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one round of reading found."""

    size_bytes: int = 0
    records: int = 0
    """Records in it; of batches as a whole, so a few before the wanted offset may be among them."""
    failed: bool = False
    """Whether there is an error among the results."""
    by_topic: tuple[tuple[str, int, int], ...] = ()
    """Topic, records and bytes of each log in which something was found."""


def read_logs(reads: Sequence[Read], *, form: log_pb2.RecordForm.ValueType, total_max: int) -> Found:
    """On a reader thread: read one log after another until the answer is full; the first always gets its batch."""
    room = total_max
    size = records = 0
    by_topic: list[tuple[str, int, int]] = []
    for index, item in enumerate(reads):
        result = item.result
        result.ClearField("records")
        result.ClearField("record_batches")
        if index and room <= 0:
            continue
        try:
            batches = item.log.read(
                item.offset, bytes_max=max(1, min(item.bytes_max, room)), end_offset=item.end_offset
            )
        except OffsetOutOfRangeError:
            refusal = out_of_range(item.offset, item.log)
            result.error_code, result.error_message = refusal.code, refusal.message
            continue
        except StorageError as error:
            result.error_code, result.error_message = errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, str(error)
            continue
        if form == log_pb2.RECORD_FORM_RECORDS:
            _decode_some(item, batches, bytes_max=min(item.bytes_max, room))
            found = result.ByteSize() if result.records else 0
            read = len(result.records)
        else:
            result.record_batches = batches
            found = len(batches)
            read = count_records(batches)
        if found:
            by_topic.append((item.log.topic, read, found))
        records += read
        room -= found
        size += found
    failed = any(item.result.error_code for item in reads)
    return Found(size_bytes=size, records=records, failed=failed, by_topic=tuple(by_topic))


def _decode_some(item: Read, batches: bytes, *, bytes_max: int) -> None:
    """Records of ``batches``, or of those behind them where compaction has left none: else they are asked for again."""
    result = item.result
    while batches:
        _decode(batches, item.offset, result, bytes_max=bytes_max)
        if result.records or result.error_code:
            return
        following = max(header.next_offset for _, header in iterate(batches))
        try:
            batches = item.log.read(following, bytes_max=max(1, item.bytes_max), end_offset=item.end_offset)
        except StorageError:
            # It begins later now, or was deleted: the next request finds that.
            return


def _decode(batches: bytes, offset: int, result: log_pb2.FetchResult, *, bytes_max: int) -> None:
    """Single records, about ``bytes_max`` of them and at least one, however many a batch decompresses to.

    A bad batch, or a record larger than any answer, is an error only where no record comes before it, so that a reader
    gets up to it; the answer says where to read on.
    """
    size = 0
    try:
        for record in read_records(batches, from_offset=offset):
            size += _answered_bytes(record)
            if result.records and size > bytes_max:
                return
            if size > RECORD_BYTES_MAX:
                result.error_code, result.next_offset = errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, record.offset + 1
                result.error_message = (
                    f"the record at offset {record.offset} is larger than an answer; read it as a batch, or skip it:"
                    f" read on at offset {record.offset + 1}"
                )
                return
            message = result.records.add(timestamp_ms=record.timestamp_ms, offset=record.offset)
            if record.key is not None:
                message.key = record.key
            if record.value is not None:
                message.value = record.value
            for name, value in record.headers:
                header = message.headers.add(key=name)
                if value is not None:
                    header.value = value
    except CorruptBatchError as error:
        if not result.records:
            result.error_code, result.error_message = errors_pb2.ERROR_CODE_CORRUPT_MESSAGE, str(error)
            result.next_offset = error.next_offset or 0


def _answered_bytes(record: Record) -> int:
    """About the bytes of a record in an answer, and never fewer."""
    headers = sum(len(name) * 4 + len(value or b"") + RECORD_OVERHEAD_BYTES for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + RECORD_OVERHEAD_BYTES
