"""Which leader epoch began where in a log (KIP-101, KIP-279). Pure.

A follower and a leader compare these lists to find where their logs part. Epochs and start offsets both rise
strictly: a new entry drops every entry that it contradicts, because the newest leader is right about where it began.

Example: entries (1, 11) (2, 13) (3, 15), log end 17. Epoch 2 ends at 15, epoch 3 at 17, epoch 4 is unknown, and epoch
0, which lies before all of them, ends where the first begins.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

from regnum_model.ids import NO_EPOCH, LeaderEpoch

UNDEFINED_OFFSET: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """Where an epoch ends: the answer to OffsetForLeaderEpoch."""

    epoch: LeaderEpoch
    """Largest epoch known that is not above the one asked (below all: the one asked). -1: undefined."""
    end_offset: int
    """Offset after its last record. -1: undefined."""

    @property
    def is_defined(self) -> bool:
        """Whether there is an answer."""
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
        return self.entries[-1][0] if self.entries else NO_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: int) -> "EpochCache":
        """With an epoch that begins at ``start_offset``; unchanged if it is the newest and began no later."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}: neither may be negative")
        if self.entries:
            latest, latest_start = self.entries[-1]
            if latest == epoch and start_offset >= latest_start:
                return self
        kept = tuple(entry for entry in self.entries if entry[0] < epoch and entry[1] < start_offset)
        return EpochCache((*kept, (epoch, start_offset)))

    def end_offset_for(self, epoch: LeaderEpoch, *, log_end_offset: int) -> EpochEnd:
        """Where ``epoch`` ends in a log that ends at ``log_end_offset``."""
        if epoch < 0 or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return EpochEnd(epoch=epoch, end_offset=log_end_offset)
        above = bisect_right(self.entries, epoch, key=lambda entry: entry[0])
        known = epoch if above == 0 else self.entries[above - 1][0]
        return EpochEnd(epoch=known, end_offset=self.entries[above][1])

    def truncate_from_end(self, offset: int) -> "EpochCache":
        """Without the epochs that begin at ``offset`` or later. A negative offset is undefined and changes nothing."""
        if offset < 0 or not self.entries or self.entries[-1][1] < offset:
            return self
        kept = tuple(entry for entry in self.entries if entry[1] < offset)
        return EpochCache(kept) if kept else NO_EPOCHS

    def truncate_from_start(self, offset: int) -> "EpochCache":
        """Without the epochs that a log which begins at ``offset`` holds nothing of.

        The last one that began before stays, and stays where it began: so the cache is what the same cut makes of what
        the journal says, whatever was truncated since. (Kafka has it begin at ``offset``.)
        """
        above = bisect_left(self.entries, offset, key=lambda entry: entry[1])
        return self if above < 2 else EpochCache(self.entries[above - 1 :])

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """Epoch of the record at ``offset``; -1 if it is before all entries."""
        above = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[above - 1][0] if above else NO_EPOCH


NO_EPOCHS: Final = EpochCache()
"""What a log begins with."""
