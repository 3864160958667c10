"""One replica: the log of one partition in one directory."""

from collections.abc import Sequence
from dataclasses import dataclass

from regnum_broker.log.epochs import EpochCache
from regnum_broker.log.producers import Accepted, Duplicate, Fenced, OutOfOrder, ProducerStates
from regnum_model.ids import LeaderEpoch, PartitionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """What an append added."""

    base_offset: int
    """Offset of the first record."""
    last_offset: int
    """Offset of the last record."""


AppendOutcome = Appended | Duplicate | OutOfOrder | Fenced
"""What became of one batch that a leader was asked to append."""


class ReplicaLog:
    """One replica. Properties, ``read`` and ``offset_for_timestamp`` are for any thread; all else is for the directory's writer
    thread alone. Created by LogDirectory only.
    """

    @property
    def key(self) -> PartitionKey:
        """Topic id and partition."""
        raise NotImplementedError

    @property
    def topic(self) -> str:
        """Topic name."""
        raise NotImplementedError

    @property
    def log_start_offset(self) -> int:
        """First offset of the log."""
        raise NotImplementedError

    @property
    def log_end_offset(self) -> int:
        """Offset after the last record."""
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        """The high watermark as the checkpoint had it when the directory was opened, within start and end of the log."""
        raise NotImplementedError

    @property
    def epochs(self) -> EpochCache:
        """Which leader epoch began where."""
        raise NotImplementedError

    @property
    def highest_leader_epoch(self) -> LeaderEpoch:
        """Highest leader epoch ever recorded for this replica, also where truncation took its records; -1: none (S11)."""
        raise NotImplementedError

    @property
    def last_record_epoch(self) -> LeaderEpoch:
        """Leader epoch of the last record; -1 for an empty log."""
        raise NotImplementedError

    @property
    def producers(self) -> ProducerStates:
        """What is known of idempotent producers. For the writer thread."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        raise NotImplementedError

    def append_as_leader(self, batches: Sequence[bytes], *, leader_epoch: LeaderEpoch) -> list[AppendOutcome]:
        """Append what a leader accepted (``check_batch``): checks sequences, assigns offsets and epoch, writes all in one call.

        One outcome for each batch, in order. A batch that is refused or a duplicate is not written; the others are.

        Raises:
            DirectoryFailedError: the write failed.
        """
        raise NotImplementedError

    def append(self, batches: Sequence[bytes | bytearray]) -> Appended:
        """Append batches that have their offsets and leader epoch already, in one write. Sequences are not checked.

        Raises:
            NotContiguousError: they do not continue the log.
            DirectoryFailedError: the write failed.
        """
        raise NotImplementedError

    def append_replicated(self, buffer: bytes) -> Appended | None:
        """Append what a follower fetched: verifies checksums and continuity first, records new epochs. None: nothing in it.

        A torn batch at the end is left out (it will be fetched again).

        Raises:
            CorruptBatchError: a checksum or a field is wrong; nothing was appended.
            NotContiguousError: they do not continue the log; nothing was appended.
            DirectoryFailedError: the write failed.
        """
        raise NotImplementedError

    def read(self, offset: int, *, bytes_max: int, end_offset: int | None = None) -> bytes:
        """Whole batches from the one that contains ``offset`` on, up to about ``bytes_max``, at least one if there is one.

        Nothing at or after ``end_offset`` is returned (None: the log end); empty if nothing is there. One call may return
        less than is there: the next one goes on.

        Raises:
            OffsetOutOfRangeError: ``offset`` is before the log start or after the log end.
            CorruptLogError: the files contradict themselves.
            DirectoryFailedError: reading failed.
        """
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: int) -> int | None:
        """Base offset of the first batch with a timestamp at or after ``timestamp_ms``; None: no batch is that young."""
        raise NotImplementedError

    def truncate(self, offset: int) -> int:
        """Remove records from ``offset`` on (from the batch on that contains it); returns the new log end.

        Epochs that begin at ``offset`` or later go too, also where no record does.
        """
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything; the log is then empty and begins at ``offset``."""
        raise NotImplementedError

    def flush(self) -> None:
        """fsync what was appended.

        Raises:
            DirectoryFailedError: it failed.
        """
        raise NotImplementedError
