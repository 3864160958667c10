"""Which records stay when a log is compacted, and what becomes of batches. Pure.

Goals: of each key the newest committed record stays, with its offset; a deletion (a record without a value) stays until
everybody has had ``delete.retention.ms`` to see it; what a repeat of an idempotent producer is known by stays.

Algorithm: records of the dirty part are noted by key (``Newest``), as far as there is memory for keys: up to ``end``.
Then each record below ``end`` goes that has a later one of its key, and each deletion below ``deletions_done``. Records
without a key, from before the topic was compacted, stay: nothing says that another replaces them. (Kafka drops them.) A
batch that loses all of its records becomes part of a filler (``regnum_records.compacted``), but for the newest one of a
producer that is still known: its numbers are what a follower that copies the log knows the producer by. Fillers do not
go beyond a leader epoch, so that a log's epochs begin where they did.

A batch with the right checksum that no reader can decode (from before produce refused them) stays as it is, and so does
one that would become too large: it replaces nothing, and nothing replaces what is in it. Only a wrong checksum, which a
copy of the log has not, ends a compaction.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from regnum_records.check import verify_crc
from regnum_records.compacted import filler, is_filler, retaining
from regnum_records.errors import CorruptBatchError
from regnum_records.header import MAGIC, BatchHeader
from regnum_records.read import decode_records

from regnum_broker.compaction.offset_map import OffsetMap, digest
from regnum_broker.log.replica.producers.states import ProducerEntry
from regnum_broker.log.replica.rolling import OFFSETS_IN_SEGMENT_MAX

LEFT_MAX: Final = 10
"""So many batches that are left as they are have their offsets told."""


class Keyed(NamedTuple):
    """What of a record decides."""

    offset: int
    """Its offset."""
    timestamp_ms: int
    """Milliseconds since 1970."""
    digest: bytes | None
    """Hash of its key; None: it has none."""
    is_deletion: bool
    """Whether it has no value."""


def _keyed(offset: int, timestamp_ms: int, key: bytes | None, value: bytes | None, _headers: object) -> Keyed:
    return Keyed(offset, timestamp_ms, None if key is None else digest(key), value is None)


def keyed_records(batch: bytes, header: BatchHeader) -> Sequence[Keyed] | None:
    """The records of a batch; None: they cannot be decoded, and that is how the batch was produced.

    Raises:
        CorruptBatchError: the checksum is wrong: it is not what was produced.
    """
    # First, and of a batch without records too: one bit makes a batch with a record one without.
    verify_crc(batch, header)
    if header.magic != MAGIC:
        raise CorruptBatchError(f"the batch at offset {header.base_offset} has magic {header.magic}")
    try:
        return list(decode_records(batch, _keyed)) if header.record_count else ()
    except CorruptBatchError:
        return None


class Newest:
    """The newest records of the dirty part of a log: by key, and batches by producer."""

    def __init__(self, *, begin: int, keys_max: int, producers: Mapping[int, ProducerEntry], salt: int = 1) -> None:
        """Nothing is known yet.

        Args:
            begin: offset where the dirty part begins.
            keys_max: so many keys fit in.
            producers: who is known at the end of the log.
            salt: of the map of keys.
        """
        self._offsets: Final = OffsetMap(keys_max=keys_max, salt=salt)
        self._producers: Final = producers
        self._batches: Final[dict[int, tuple[int, int]]] = {}
        self._begin: Final = begin
        self.end = begin
        """Below here, all is known."""

    @property
    def keys(self) -> int:
        """How many keys are known."""
        return len(self._offsets)

    def note(self, header: BatchHeader, records: Sequence[Keyed] | None) -> bool:
        """Note the next batch of the dirty part (None: it cannot be decoded); False: there is no room for it."""
        # The first batch may begin before the dirty part, with more records than that has offsets.
        new = [
            (record.digest, record.offset)
            for record in records or ()
            if record.digest is not None and record.offset >= self._begin
        ]
        if len(new) > self._offsets.room:
            return False
        for of_key, offset in new:
            self._offsets.put(of_key, offset)
        if header.producer_id in self._producers:
            standing = (header.producer_epoch, header.base_offset)
            self._batches[header.producer_id] = max(self._batches.get(header.producer_id, standing), standing)
        self.end = header.next_offset
        return True

    def replaces(self, record: Keyed) -> bool:
        """Whether there is a later record of its key."""
        return record.digest is not None and self._offsets.get(record.digest) > record.offset

    def is_needed(self, header: BatchHeader) -> bool:
        """Whether a producer that is known would be known by less without the numbers of this batch."""
        if header.producer_id not in self._producers:
            return False
        newest = self._batches.get(header.producer_id)
        return newest is None or newest <= (header.producer_epoch, header.base_offset)


@dataclass(slots=True)
class _Gone:
    """Offsets that follow one another and have no record any more."""

    base_offset: int
    last_offset: int
    epoch: int


class Retention:
    """Goes through the batches of a log, from its first to its last, and says what stands in their place."""

    def __init__(self, newest: Newest, *, deletions_done: int) -> None:
        """Only assigns.

        Args:
            newest: what goes before what.
            deletions_done: below this offset, deletions have done their work.
        """
        self._newest: Final = newest
        self._deletions_done: Final = deletions_done
        self._gone: _Gone | None = None
        self.changed = False
        """Whether anything was taken out so far, or put together."""
        self.left: Final[list[int]] = []
        """Where batches begin that are left as they are, whatever is in them: the first LEFT_MAX."""
        self.left_count = 0
        """How many there are."""

    def take(self, header: BatchHeader, batch: bytes) -> Iterable[bytes]:
        """The next batch; returns what is to be written now: none, or one, and a filler before it.

        Raises:
            CorruptBatchError: it is damaged.
        """
        if header.base_offset >= self._newest.end:
            verify_crc(batch, header)
            return (*self.rest(), batch)
        records = keyed_records(batch, header)
        if is_filler(header):
            self.changed = self.changed or self._gone is not None
            return self._skip(header)
        kept = None if records is None else [self._stays(record) for record in records]
        if kept is not None and not any(kept) and not self._newest.is_needed(header):
            self.changed = True
            return self._skip(header)
        return (*self.rest(), self._left_of(header, batch, records or (), kept))

    def _left_of(
        self, header: BatchHeader, batch: bytes, records: Sequence[Keyed], kept: Sequence[bool] | None
    ) -> bytes:
        """The batch with the records that are kept; None: nothing is known of them."""
        if kept is None:
            return self._as_it_is(header, batch)
        if all(kept):
            return batch
        latest = max((record.timestamp_ms for record, stays in zip(records, kept, strict=True) if stays), default=0)
        try:
            left = retaining(batch, header, kept, max_timestamp_ms=latest)
        except CorruptBatchError:
            # It would become larger than any batch may be.
            return self._as_it_is(header, batch)
        self.changed = True
        return left

    def _as_it_is(self, header: BatchHeader, batch: bytes) -> bytes:
        self.left_count += 1
        if len(self.left) < LEFT_MAX:
            self.left.append(header.base_offset)
        return batch

    def rest(self) -> tuple[bytes, ...]:
        """What stands in place of batches that are gone and for which nothing was written yet."""
        gone, self._gone = self._gone, None
        if gone is None:
            return ()
        return (filler(base_offset=gone.base_offset, last_offset=gone.last_offset, leader_epoch=gone.epoch),)

    def _stays(self, record: Keyed) -> bool:
        if record.offset >= self._newest.end or record.digest is None:
            return True
        if record.is_deletion and record.offset < self._deletions_done:
            return False
        return not self._newest.replaces(record)

    def _skip(self, header: BatchHeader) -> tuple[bytes, ...]:
        gone = self._gone
        if (
            gone is not None
            and gone.epoch == header.leader_epoch
            and header.last_offset - gone.base_offset <= OFFSETS_IN_SEGMENT_MAX
        ):
            gone.last_offset = header.last_offset
            return ()
        written = self.rest()
        self._gone = _Gone(header.base_offset, header.last_offset, header.leader_epoch)
        return written
