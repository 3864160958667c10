"""Where the logs of a directory begin: moved forward, and never back behind what anybody was told.

Goals: a log start that was told to anyone holds after a kill and after a loss of power; a log never begins beyond what
it holds, else the next start would take records for deleted that are acknowledged; appends wait for no fsync of it, and
one fsync is enough for any number of replicas.

Algorithm: three steps. ``record`` writes, on the writer thread, for all replicas at once; ``sync`` brings that to the
disk, on another thread; ``apply``, on the writer thread again, shows the new start and frees the names of the segments
that lie before it, whose files another thread removes. Because the writer thread records, a truncation, which is its
own, comes before or after: before, and nothing beyond the new end is recorded; after, and it lowers what is recorded
(``ReplicaHost.lower_start``) before it cuts.

A kill between two steps leaves a start that is recorded and was not told: the next start of the process begins there.
That is allowed: only what is committed and may be deleted is ever recorded. A loss of power may leave the end of a log
before its start: then the log begins anew, empty, at its start, and has another id (safety rule S10).

The first segment file says where a log begins that nobody moved: so only starts that were moved are in the file.
"""

from collections.abc import Callable, Mapping
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_broker.log.errors import CorruptLogError, ResourceExhaustedError, UnknownReplicaError
from regnum_broker.log.offset_file import OffsetFile
from regnum_broker.log.replica.replica import ReplicaLog


class LogStarts:
    """Moves log starts forward. For the writer thread, but for ``sync``."""

    def __init__(self, file: OffsetFile, replicas: Callable[[], Mapping[PartitionKey, ReplicaLog]]) -> None:
        """Only assigns.

        Args:
            file: what was recorded.
            replicas: all that can be used.
        """
        self._file: Final = file
        self._replicas: Final = replicas

    def recorded(self, key: PartitionKey) -> int:
        """What the file says of a replica; 0: nothing. From any thread."""
        return self._file.of(key)

    def record(self, starts: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
        """Write down where logs are to begin; returns which of it may be applied once it is on the disk.

        A start that is not beyond the present one, or lies beyond the end of the log, is left out. Where a later one is
        recorded that was not applied yet, it is that one: two that ask at a time do not undo one another.

        Raises:
            ResourceExhaustedError: not even the reserve was there to write it down; no start moves.
            DirectoryFailedError: the disk failed.
        """
        replicas = self._replicas()
        moving = {
            key: max(offset, self._file.of(key))
            for key, offset in starts.items()
            if (log := replicas.get(key)) is not None
            and log.fault is None
            and log.log_start_offset < offset <= log.log_end_offset
        }
        self._file.save(moving, bookkeeping=True)
        return moving

    def sync(self) -> None:
        """Bring what was recorded to the disk. For one thread at a time, and that need not be the writer.

        Raises:
            ResourceExhaustedError: no descriptor for it now.
            DirectoryFailedError: it failed.
        """
        self._file.sync()

    def save_all(self) -> None:
        """Make the file anew and bring it to the disk, before anybody is told what a former process had written.

        Raises:
            ResourceExhaustedError: no room; what was saved last stands.
            DirectoryFailedError: the disk failed.
        """
        self._file.save_all()

    def apply(self, starts: Mapping[PartitionKey, int]) -> dict[PartitionKey, int]:
        """Begin logs where it was recorded, and synced, that they do; returns where those begin now that moved.

        Raises:
            DirectoryFailedError: the disk failed.
        """
        replicas = self._replicas()
        moved: dict[PartitionKey, int] = {}
        for key, offset in starts.items():
            log = replicas.get(key)
            # It may have been deleted, and created anew, or truncated since.
            if log is None or self._file.of(key) < offset:
                continue
            try:
                if log.begin_at(offset):
                    moved[key] = log.log_start_offset
            except (CorruptLogError, UnknownReplicaError, ResourceExhaustedError):
                # It goes offline by itself, is gone, or there is no room for its next segment: another time.
                continue
        return moved
