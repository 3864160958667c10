"""What a log remembers of idempotent producers. Pure.

Goals: a batch that a producer sends again is stored once and answered with its first offset; a gap in the sequence is
seen; a producer that was replaced (newer epoch of the same id) cannot write.

Constraints: the memory of a producer is bounded, and so is the number of producers, which are whoever clients say that
they are; followers build the same state from the same batches.

Algorithm: the last five batches of each producer id in its newest epoch. Same first and last sequence as one of them:
a duplicate. Else the sequence must go on where the newest one ended (after 2147483647 comes 0); a new epoch begins
at 0. A producer that is not known may begin anywhere: its state may have been forgotten.

Expiry: a producer that has appended nothing for long is forgotten (Kafka's producer.id.expiration.ms). That goes by
this broker's clock at the append, not by the timestamps of records, which clients choose; what was found on disk
without a snapshot counts from the start on.

Bound: of more than ``PRODUCERS_MAX`` those are forgotten whose last batches lie furthest back in the log, as if they
had expired. That goes by offsets alone, so replicas with the same batches forget the same producers; one that began
later, or had some expire, still knows the last ``PRODUCERS_KEPT`` of those that it has seen and that have not expired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from immutables import Map
from regnum_records.header import SEQUENCE_MAX, BatchHeader

BATCHES_KEPT: Final = 5
"""Batches remembered for each producer: as many as a producer may have in flight."""
PRODUCERS_MAX: Final = 20_000
"""Producers remembered of one log: some twenty megabytes of memory with those of marks, and up to a tenth of a second
of the writer thread, which all logs of a directory share, for a snapshot of them."""
PRODUCERS_KEPT: Final = 15_000
"""So many stay when there are more than that. To find the oldest is to look at all: once for each five thousand. Nobody
retries that late: so many others come in two minutes, which is how long a producer tries, only where 125 new ones begin
each second in one partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The batch continues its producer's sequence, or has no producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """The batch was appended before: answer with its old offsets, once they are committed."""

    base_offset: int
    """Offset of its first record."""
    last_offset: int
    """Offset of its last record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfOrder:
    """A batch before this one is missing, or an old one comes again too late (OUT_OF_ORDER_SEQUENCE_NUMBER)."""

    expected: int
    """Sequence number that would continue."""
    found: int
    """Base sequence of the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """The producer id has a newer epoch (INVALID_PRODUCER_EPOCH)."""

    current: int
    """Newest epoch of the producer id."""
    found: int
    """Epoch of the batch."""


SequenceDecision = Accepted | Duplicate | OutOfOrder | Fenced


@dataclass(frozen=True, slots=True)
class KeptBatch:
    """A batch that is remembered."""

    first_sequence: int
    """Sequence number of its first record."""
    last_sequence: int
    """Sequence number of its last record."""
    base_offset: int
    """Offset of its first record."""
    last_offset: int
    """Offset of its last record."""


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """What is remembered of one producer id."""

    epoch: int
    """Its newest epoch."""
    batches: tuple[KeptBatch, ...]
    """Its newest batches, oldest first; one to five."""
    seen_ms: int
    """When the newest was appended here, milliseconds since 1970."""


def next_sequence(last: int) -> int:
    """The sequence number after ``last``."""
    return 0 if last == SEQUENCE_MAX else last + 1


ACCEPTED: Final = Accepted()
NOBODY: Final[Map[int, ProducerEntry]] = Map()


class ProducerStates:
    """The newest batches of each producer id. Belongs to the writer thread.

    What is remembered at a moment costs nothing to keep: the map is persistent, and looking ahead begins from it.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[int, ProducerEntry] = NOBODY) -> None:
        self._entries: Map[int, ProducerEntry] = entries if isinstance(entries, Map) else Map(entries)

    @property
    def entries(self) -> Map[int, ProducerEntry]:
        """By producer id; does not change."""
        return self._entries

    def check(self, header: BatchHeader) -> SequenceDecision:
        """Whether a leader may append the batch."""
        entry = self._entries.get(header.producer_id) if header.producer_id >= 0 else None
        if entry is None:
            return ACCEPTED
        if header.producer_epoch < entry.epoch:
            return Fenced(current=entry.epoch, found=header.producer_epoch)
        if header.producer_epoch > entry.epoch:
            return ACCEPTED if header.base_sequence == 0 else OutOfOrder(expected=0, found=header.base_sequence)
        for batch in entry.batches:
            if (batch.first_sequence, batch.last_sequence) == (header.base_sequence, header.last_sequence):
                return Duplicate(base_offset=batch.base_offset, last_offset=batch.last_offset)
        expected = next_sequence(entry.batches[-1].last_sequence)
        if header.base_sequence == expected:
            return ACCEPTED
        return OutOfOrder(expected=expected, found=header.base_sequence)

    def apply(self, header: BatchHeader, *, seen_ms: int) -> None:
        """Remember a batch that was appended at that time; its head carries the assigned offset.

        Batches without a producer change nothing, nor do those of an older epoch, which only replication can bring.
        """
        if header.producer_id < 0:
            return
        batch = KeptBatch(header.base_sequence, header.last_sequence, header.base_offset, header.last_offset)
        entry = self._entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.epoch:
            return
        earlier = entry.batches if entry is not None and entry.epoch == header.producer_epoch else ()
        kept = (*earlier, batch)[-BATCHES_KEPT:]
        self._entries = self._entries.set(header.producer_id, ProducerEntry(header.producer_epoch, kept, seen_ms))
        if len(self._entries) > PRODUCERS_MAX:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget all but ``PRODUCERS_KEPT``."""
        # No two share an offset: each has the last batch of its own.
        first_kept = sorted(last_offset(entry) for entry in self._entries.values())[-PRODUCERS_KEPT]
        self._entries = without(
            self._entries, [id for id, entry in self._entries.items() if last_offset(entry) < first_kept]
        )

    def expire(self, before_ms: int) -> tuple[int, ...]:
        """Forget who has appended nothing since; returns their ids."""
        expired = tuple(id for id, entry in self._entries.items() if entry.seen_ms < before_ms)
        self._entries = without(self._entries, expired)
        return expired

    def trial(self) -> "ProducerStates":
        """States that begin as these, for looking ahead: what is remembered there is not remembered here."""
        return ProducerStates(self._entries)

    def reaches(self, offset: int) -> bool:
        """Whether a remembered batch has a record at ``offset`` or later."""
        return any(last_offset(entry) >= offset for entry in self._entries.values())


def last_offset(entry: ProducerEntry) -> int:
    """Offset of the last record that the producer has appended."""
    return entry.batches[-1].last_offset


def without(entries: Map[int, ProducerEntry], ids: Sequence[int]) -> Map[int, ProducerEntry]:
    """``entries`` but for some producer ids, which need not be there."""
    gone = [id for id in ids if id in entries]
    if not gone:
        return entries
    fewer = entries.mutate()
    for id in gone:
        del fewer[id]
    return fewer.finish()
