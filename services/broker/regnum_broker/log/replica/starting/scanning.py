"""Batch after batch of a segment file, as a start finds it.

Two ways. ``scan`` computes every checksum: after a loss of power anything may be there. ``follow`` goes from head to
head: in the same boot of the machine what was written is there as it was written, and a kill in the middle of a write
leaves the beginning of it, so that only the end can be wrong. It reads little besides heads where batches are large,
and where they are small it looks closer at few of them: those that begin a leader epoch, and the last of each producer.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from regnum_model.ids import NO_EPOCH
from regnum_records.check import verify_crc
from regnum_records.errors import CorruptBatchError
from regnum_records.header import HEADER, HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, read_header

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.replica.index import INTERVAL_BYTES, NO_TIMESTAMP, SegmentIndex
from regnum_broker.log.replica.producers.states import BATCHES_KEPT

CHUNK_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one read, where checksums are computed, and at most where they are not."""
AHEAD_BYTES_MIN: Final = 16 * 1024
"""Bytes of one read, at least, where they are not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanEnd:
    """Where whole, right batches end."""

    size_bytes: int
    """Bytes of them."""
    next_offset: int
    """Offset after them."""
    cut_off: bool
    """Whether bytes of an unfinished batch follow."""
    fault: str | None
    """What is wrong with the whole batch that follows; None: none does."""
    last_epoch: int = NO_EPOCH
    """Leader epoch of the last of them; -1: there is none."""
    timestamp_ms_max: int = NO_TIMESTAMP
    """Largest timestamp of them."""


def scan(
    disk: GuardedDisk,
    path: str,
    *,
    base_offset: int,
    size_bytes: int,
    visit: Callable[[int, BatchHeader], None],
    behind: ScanEnd | None = None,
) -> ScanEnd:
    """Verify a segment file batch by batch, and visit (position, head) of those that are right.

    Args:
        disk: where it is.
        path: the file.
        base_offset: its first offset.
        size_bytes: its size.
        visit: called for each batch.
        behind: begin behind batches that are known to be right; None: at the beginning.
    """
    position, offset, epoch, timestamp = 0, base_offset, int(NO_EPOCH), NO_TIMESTAMP
    if behind is not None:
        position, offset = behind.size_bytes, behind.next_offset
        epoch, timestamp = behind.last_epoch, behind.timestamp_ms_max
    chunk, chunk_start = b"", position

    def ended(*, cut_off: bool = False, fault: str | None = None) -> ScanEnd:
        return ScanEnd(
            size_bytes=position,
            next_offset=offset,
            cut_off=cut_off,
            fault=fault,
            last_epoch=epoch,
            timestamp_ms_max=timestamp,
        )

    while size_bytes - position >= HEADER_BYTES:
        if position - chunk_start + HEADER_BYTES > len(chunk):
            chunk, chunk_start = disk.read(path, position, min(CHUNK_BYTES, size_bytes - position)), position
        try:
            header = read_header(chunk, position - chunk_start)
            if header.magic != MAGIC or header.base_offset != offset or header.leader_epoch < epoch:
                return ended(fault=f"byte {position} of {path} is not the batch at offset {offset}")
            if position + header.size_bytes > size_bytes:
                return ended(cut_off=True)
            if position - chunk_start + header.size_bytes > len(chunk):
                want = min(max(CHUNK_BYTES, header.size_bytes), size_bytes - position)
                chunk, chunk_start = disk.read(path, position, want), position
            verify_crc(chunk, header, position - chunk_start)
        except CorruptBatchError as error:
            return ended(fault=f"byte {position} of {path}: {error}")
        if header.last_offset_delta < 0 or header.leader_epoch < 0:
            return ended(fault=f"the batch at byte {position} of {path} has impossible fields")
        visit(position, header)
        timestamp = max(timestamp, header.max_timestamp_ms)
        position += header.size_bytes
        offset, epoch = header.next_offset, header.leader_epoch
    return ended(cut_off=position < size_bytes)


def fault_in_cut(disk: GuardedDisk, path: str, end: ScanEnd, *, size_bytes: int) -> str | None:
    """Why bytes that seem to be of an unfinished batch are not; None: they may well be.

    A kill leaves the beginning of one batch there and nothing behind it. A length that is damaged makes a batch that
    is whole seem to go on beyond the end of the file, and all behind it be parts of it.
    """
    position = end.size_bytes
    if size_bytes - position < HEADER_BYTES:
        return None
    header = read_header(disk.read(path, position, HEADER_BYTES))
    sought = header.next_offset.to_bytes(8, "big", signed=True)
    fault = f"the batch at byte {position} of {path} does not end where it says: its length is damaged"
    at = position + HEADER_BYTES
    while size_bytes - at >= HEADER_BYTES:
        chunk = disk.read(path, at, min(CHUNK_BYTES, size_bytes - at))
        found = chunk.find(sought)
        while found >= 0:
            if _is_batch(disk, path, at + found, size_bytes=size_bytes, epoch=header.leader_epoch):
                return fault
            found = chunk.find(sought, found + 1)
        # What is sought may lie across the end of what was read.
        at += max(len(chunk) - len(sought) + 1, 1)
    whole = disk.read(path, position, size_bytes - position)
    try:
        verify_crc(whole, header)
    except CorruptBatchError:
        return None
    return fault


def _is_batch(disk: GuardedDisk, path: str, position: int, *, size_bytes: int, epoch: int) -> bool:
    """Whether a whole, right batch of that leader epoch or a later one stands there."""
    try:
        header = read_header(disk.read(path, position, HEADER_BYTES))
        if header.magic != MAGIC or header.leader_epoch < epoch or position + header.size_bytes > size_bytes:
            return False
        verify_crc(disk.read(path, position, header.size_bytes), header)
    except CorruptBatchError:
        return False
    return True


def follow(
    disk: GuardedDisk,
    path: str,
    *,
    base_offset: int,
    until: int,
    index: SegmentIndex,
    take: Callable[[Sequence[BatchHeader], int, int], None],
) -> ScanEnd:
    """Go from head to head over the batches that end at or before a position; whatever does not fit ends it there.

    Args:
        disk: where it is.
        path: the file.
        base_offset: its first offset.
        until: the position.
        index: notes where they stand.
        take: called now and then with heads that say something of leader epochs and producers, in order, with how many
            batches there were since the last call, and the offset after them.
    """
    position, offset, epoch, timestamp = 0, base_offset, int(NO_EPOCH), NO_TIMESTAMP
    indexed, batches = -INTERVAL_BYTES, 0
    chunk, chunk_start, ahead = b"", 0, AHEAD_BYTES_MIN // 2
    telling = _Telling()
    while until - position >= HEADER_BYTES:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            if batches:
                take(telling.heads(chunk, chunk_start), batches, offset)
                batches = 0
            # More of them in one read, the closer together heads lie.
            ahead = min(ahead * 2, CHUNK_BYTES) if at <= len(chunk) else AHEAD_BYTES_MIN
            chunk, chunk_start, at = disk.read(path, position, min(ahead, until - position)), position, 0
            if len(chunk) < HEADER_BYTES:
                break
        base, length, leader_epoch, magic, _, _, delta, _, max_timestamp, producer, producer_epoch, _, _ = (
            HEADER.unpack_from(chunk, at)
        )
        size = LENGTH_PREFIX_BYTES + length
        follows = base == offset and leader_epoch >= max(epoch, 0)
        if not (follows and magic == MAGIC and delta >= 0 and size >= HEADER_BYTES and position + size <= until):
            break
        if position - indexed >= INTERVAL_BYTES:
            index.append(base_offset=base, position=position, timestamp_ms_max_before=timestamp)
            indexed = position
        if leader_epoch != epoch:
            telling.begins.append(position)
            epoch = leader_epoch
        if producer >= 0:
            telling.newest[producer, producer_epoch].append(position)
        timestamp = max(timestamp, max_timestamp)
        batches += 1
        position += size
        offset = base + delta + 1
    if batches:
        take(telling.heads(chunk, chunk_start), batches, offset)
    return ScanEnd(
        size_bytes=position,
        next_offset=offset,
        cut_off=False,
        fault=None,
        last_epoch=epoch,
        timestamp_ms_max=timestamp,
    )


class _Telling:
    """Positions of heads that say something: those that begin an epoch, and the last of each producer in its epochs.

    What is known of a producer is its last batches in its newest epoch, whatever came before them.
    """

    def __init__(self) -> None:
        self.begins: list[int] = []
        self.newest: defaultdict[tuple[int, int], deque[int]] = defaultdict(partial(deque, maxlen=BATCHES_KEPT))

    def heads(self, chunk: bytes, chunk_start: int) -> list[BatchHeader]:
        """The heads, in order; the next ones are of another chunk."""
        positions = sorted({*self.begins, *chain.from_iterable(self.newest.values())})
        self.begins.clear()
        self.newest.clear()
        return [read_header(chunk, position - chunk_start) for position in positions]
