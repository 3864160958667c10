"""A log directory: one lock, one journal, one identity, many replicas."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from regnum_broker.log.errors import CorruptLogError
from regnum_broker.log.replica import ReplicaLog
from regnum_model.ids import BrokerId, DirectoryId, LeaderEpoch, LogId, PartitionKey


class LogDirectory:
    """A directory with the logs of a broker. Writes come from one thread; properties may be read by any."""

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        broker_id: BrokerId,
        mint_id: Callable[[], str],
        boot_id: str,
        segment_bytes: int = 256 * 1024 * 1024,
    ) -> Self:
        """Lock, format or recover the directory. Blocking.

        Args:
            path: the directory; created if it is missing.
            broker_id: whose it is.
            mint_id: makes new directory ids and log ids.
            boot_id: content of /proc/sys/kernel/random/boot_id (safety rule S10).
            segment_bytes: size at which a segment is closed and the next one begun.

        Raises:
            DirectoryUnusableError: it is in use, not readable, or another broker's.
        """
        raise NotImplementedError

    @property
    def path(self) -> Path:
        """Where it is."""
        raise NotImplementedError

    @property
    def directory_id(self) -> DirectoryId:
        """Its permanent name."""
        raise NotImplementedError

    @property
    def log_id(self) -> LogId:
        """Name of its content (safety rule S10)."""
        raise NotImplementedError

    @property
    def cluster_id(self) -> str | None:
        """Cluster it belongs to. None: not bound yet."""
        raise NotImplementedError

    @property
    def failed(self) -> bool:
        """Whether a write, an fsync or a read failed: nothing in it may be acknowledged any more."""
        raise NotImplementedError

    @property
    def replicas(self) -> Mapping[PartitionKey, ReplicaLog]:
        """All replicas that can be used. Each change makes a new mapping, so iterating needs no lock."""
        raise NotImplementedError

    @property
    def offline(self) -> Mapping[PartitionKey, CorruptLogError]:
        """Replicas that could not be opened, and why."""
        raise NotImplementedError

    def bind_cluster(self, cluster_id: str) -> None:
        """Bind the directory to a cluster, once.

        Raises:
            WrongClusterError: it belongs to another one.
        """
        raise NotImplementedError

    def create_replicas(self, replicas: Sequence[tuple[PartitionKey, str]]) -> None:
        """Create empty replicas (key, topic name) with one journal append and one fsync; known ones are left as they are."""
        raise NotImplementedError

    def delete_replicas(self, keys: Sequence[PartitionKey]) -> None:
        """Delete replicas and their files, also offline ones; unknown ones are left out."""
        raise NotImplementedError

    def record_leader_epochs(self, epochs: Sequence[tuple[PartitionKey, LeaderEpoch, int]]) -> None:
        """Record (key, leader epoch, start offset) durably and in the epoch caches, with one append and one fsync.

        Raises:
            UnknownReplicaError: there is no such replica; nothing was recorded.
        """
        raise NotImplementedError

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[PartitionKey, int]) -> None:
        """Save high watermarks; those of replicas not named stay as they were saved last."""
        raise NotImplementedError

    def close(self, *, clean: bool = True) -> None:
        """Flush, leave the proof that the log is complete, and release the lock. ``clean=False``: only release, as a kill does."""
        raise NotImplementedError
