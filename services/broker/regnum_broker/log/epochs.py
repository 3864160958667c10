"""Which leader epoch began where in a log (KIP-101, KIP-279). Pure."""

from dataclasses import dataclass
from typing import Final

from regnum_model.ids import NO_EPOCH, LeaderEpoch

UNDEFINED_OFFSET: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """Where an epoch ends: the answer to OffsetForLeaderEpoch."""

    epoch: LeaderEpoch
    """Largest epoch known that is not above the one asked. -1: undefined."""
    end_offset: int
    """Offset after its last record. -1: undefined."""

    @property
    def is_defined(self) -> bool:
        """Whether the epoch is known here."""
        return self.epoch >= 0


UNDEFINED: Final = EpochEnd(epoch=NO_EPOCH, end_offset=UNDEFINED_OFFSET)


@dataclass(frozen=True, slots=True)
class EpochCache:
    """Epochs and their first offsets, both strictly rising. Every change makes a new value, so readers need no lock."""

    entries: tuple[tuple[LeaderEpoch, int], ...] = ()
    """(epoch, start offset), oldest first."""

    @property
    def latest(self) -> LeaderEpoch:
        """The newest epoch; -1 if there is none. It may have no record yet."""
        raise NotImplementedError

    def assign(self, epoch: LeaderEpoch, start_offset: int) -> "EpochCache":
        """With an epoch that begins at ``start_offset``."""
        raise NotImplementedError

    def end_offset_for(self, epoch: LeaderEpoch, *, log_end_offset: int) -> EpochEnd:
        """Where ``epoch`` ends in a log that ends at ``log_end_offset``."""
        raise NotImplementedError

    def truncate_from_end(self, offset: int) -> "EpochCache":
        """Without the epochs that begin at ``offset`` or later. A negative offset is undefined and changes nothing."""
        raise NotImplementedError

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """Epoch of the record at ``offset``; -1 if it is before all entries."""
        raise NotImplementedError
