"""A log that is compacted at once, in the test's own thread."""

from collections.abc import Callable

from regnum_broker.compaction.work import Noting, Work, look
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_records.build import CodecName, build_batch
from regnum_records.header import iterate
from regnum_records.read import read_records
from regnum_records.record import NewRecord, Record

from regnum_testing.batches import TIMESTAMP_MS


def _nothing() -> None:
    """A test does not rest."""


def keyed_batch(
    *records: tuple[bytes | None, bytes | None],
    codec: CodecName = "none",
    producer_id: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch of (key, value), as a producer sends it; a producer id comes with epoch 0."""
    return build_batch(
        [NewRecord(key=key, value=value) for key, value in records],
        timestamp_ms=TIMESTAMP_MS,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
    )


def prepared(log: ReplicaLog, *, now_ms: int, high_watermark: int | None = None, keys_max: int = 1000) -> Work | None:
    """What is to be done to compact a log now; None: nothing, it is not time."""
    committed = log.log_end_offset if high_watermark is None else high_watermark
    closed, found = look(log, high_watermark=committed, now_ms=now_ms, by_age=True)
    if not found.is_due:
        return None
    noting = Noting(log, closed, found, keys_max=keys_max)
    while not noting.step(went_on=_nothing):
        pass
    return noting.work(now_ms=now_ms)


def compact(
    log: ReplicaLog,
    *,
    now_ms: int,
    high_watermark: int | None = None,
    keys_max: int = 1000,
    before_swap: Callable[[], None] = _nothing,
) -> bool:
    """Compact a log, all of which is committed unless told otherwise; returns whether it was time, and done."""
    work = prepared(log, now_ms=now_ms, high_watermark=high_watermark, keys_max=keys_max)
    if work is None:
        return False
    for group in work.groups:
        made = work.rewrite(group, went_on=_nothing)
        before_swap()
        if made is not None and not log.swap(group, made, cuts=work.cuts):
            return False
    log.note_cleaned(work.until, now_ms=now_ms, cuts=work.cuts)
    return True


def records_of(log: ReplicaLog, offset: int | None = None) -> list[Record]:
    """All records from an offset on, the log's start unless told otherwise, read as a consumer does: on and on."""
    at, found = log.log_start_offset if offset is None else offset, list[Record]()
    while data := log.read(at, bytes_max=300):
        found += read_records(data, from_offset=at)
        at = end_of(data)
    return found


def end_of(batches: bytes) -> int:
    """Offset after the last of some batches."""
    return max(header.next_offset for _, header in iterate(batches))
