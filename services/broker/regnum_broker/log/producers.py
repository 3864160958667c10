"""What a log remembers of idempotent producers. Pure."""

from dataclasses import dataclass
from typing import Final

from regnum_records.header import BatchHeader

BATCHES_KEPT: Final = 5
"""Batches remembered for each producer: as many as a producer may have in flight."""


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


class ProducerStates:
    """The newest batches of each producer id. Belongs to the writer thread."""

    def check(self, header: BatchHeader) -> SequenceDecision:
        """Whether a leader may append the batch."""
        raise NotImplementedError

    def apply(self, header: BatchHeader) -> None:
        """Remember a batch that was appended; its head carries the assigned offset. Batches without producer change nothing."""
        raise NotImplementedError
