"""Leader epochs of one replica, and what of them the journal lacks."""

from collections.abc import Sequence

from regnum_model.ids import LeaderEpoch, PartitionKey

from regnum_broker.log.epochs import EpochCache
from regnum_broker.log.journal.entries import EpochBegun, Truncated
from regnum_broker.log.replica.host import ReplicaHost


class LeaderEpochs:
    """Which leader epoch began where. Changed by the writer thread; what is public may be read by any.

    Batches show epochs as they are appended; the journal is told of those when their segment is closed.
    """

    __slots__ = ("_host", "_key", "cache", "highest", "unjournaled")

    def __init__(self, key: PartitionKey, host: ReplicaHost, cache: EpochCache, highest: LeaderEpoch) -> None:
        self._key = key
        self._host = host
        self.cache = cache
        """Which epoch began where."""
        self.highest = highest
        """Highest epoch ever recorded here, also if its records were truncated; -1: none (safety rule S11)."""
        self.unjournaled: Sequence[EpochBegun] = ()
        """Epochs that batches showed and the journal lacks."""

    def assign(self, epoch: LeaderEpoch, start_offset: int) -> None:
        """Note an epoch that the journal has."""
        self.cache = self.cache.assign(epoch, start_offset)
        self.highest = max(self.highest, epoch)

    def show(self, epoch: LeaderEpoch, start_offset: int) -> None:
        """Note the epoch of a batch."""
        if epoch != self.cache.latest:
            self.assign(epoch, start_offset)
            self.unjournaled = (*self.unjournaled, EpochBegun(key=self._key, epoch=epoch, start_offset=start_offset))

    def cut(self, offset: int) -> None:
        """Forget epochs that begin at ``offset`` or later.

        Raises:
            ResourceExhaustedError: no room to write it down; nothing was forgotten.
            DirectoryFailedError: the write failed.
        """
        self.journal_cut(offset)
        self.cut_journaled(offset)

    def journal_cut(self, offset: int) -> None:
        """Have the journal forget epochs that begin at ``offset`` or later; ``cut_journaled`` has to follow.

        Raises:
            ResourceExhaustedError: no room to write it down; nothing was forgotten.
            DirectoryFailedError: the write failed.
        """
        if self.cache.truncate_from_end(offset) is not self.cache:
            self._host.record([Truncated(key=self._key, offset=offset)], sync=False)

    def cut_journaled(self, offset: int) -> None:
        """Forget them here."""
        self.unjournaled = tuple([entry for entry in self.unjournaled if entry.start_offset < offset])
        self.cache = self.cache.truncate_from_end(offset)

    def begin_at(self, offset: int) -> None:
        """Forget epochs of which a log that begins at ``offset`` now has nothing.

        The journal is not told: where the log begins is known without it, and a start cuts what it says.
        """
        self.cache = self.cache.truncate_from_start(offset)

    def write(self, *, sync: bool = True) -> None:
        """Tell the journal what it lacks.

        Raises:
            ResourceExhaustedError: no room; the journal lacks it still.
            DirectoryFailedError: the write or the fsync failed.
        """
        self._host.record(self.unjournaled, sync=sync)
        self.journaled()

    def journaled(self) -> None:
        """Take up that the journal lacks none."""
        self.unjournaled = ()
