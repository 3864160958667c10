"""Whose a log directory is, and what proves that its log is complete (safety rule S10)."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from regnum_model.ids import LogId, PartitionKey

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.log.errors import WrongClusterError
from regnum_broker.log.identity import CleanStop, Identity
from regnum_broker.log.life import FILE as LIVES
from regnum_broker.log.life import KnownLives
from regnum_broker.log.replica.starting.recovery import CleanEnd


class Proof:
    """``meta.json``, ``clean-stop`` and ``life`` of an open directory.

    Changed by the writer thread; ``void`` is for any.
    """

    def __init__(self, path: Path, disk: GuardedDisk, identity: Identity, calls: Disk) -> None:
        """``calls``: of the same disk, for what is tried once it has failed."""
        self._path = path
        self._disk = disk
        self._calls = calls
        self._stopped_cleanly = (path / "clean-stop").exists()
        self.identity = identity
        """What the directory says of itself."""
        self.is_void = False
        """Whether the disk failed in a way that may have lost what was written: nothing here proves anything more."""
        self.lives = KnownLives.decode(disk.read_whole(str(path / LIVES)))
        """Lives that it knows of; None: it says nothing that can be read."""

    def bind_cluster(self, cluster_id: str) -> None:
        """Bind the directory to a cluster, once.

        Raises:
            WrongClusterError: it belongs to another one.
        """
        if self.identity.cluster_id == cluster_id:
            return
        if self.identity.cluster_id is not None:
            raise WrongClusterError(
                f"{self._path} holds data of cluster {self.identity.cluster_id}, this is cluster {cluster_id}: point"
                " the broker to its own cluster, or to another data directory"
            )
        self.identity = replace(self.identity, cluster_id=cluster_id)
        self._disk.replace(str(self._path / "meta.json"), self.identity.encode(), sync=True, bookkeeping=True)

    def renew(self, log_id: LogId) -> None:
        """Give the log another id: nothing that was recorded of it may count for what it holds now.

        Raises:
            ResourceExhaustedError: no room; it is as it was.
            DirectoryFailedError: the disk failed.
        """
        renewed = replace(self.identity, log_id=log_id)
        self._disk.replace(str(self._path / "meta.json"), renewed.encode(), sync=True, bookkeeping=True)
        self.identity = renewed

    def note_lives(self, lives: KnownLives) -> None:
        """Write down, durably, which lives the store may know.

        Raises:
            ResourceExhaustedError: no room; it is as it was.
            DirectoryFailedError: the disk failed.
        """
        self._disk.replace(str(self._path / LIVES), lives.encode(), sync=True, bookkeeping=True)
        self.lives = lives

    def take_back(self) -> None:
        """Before the first change after a clean stop: it proves nothing more.

        Raises:
            DirectoryFailedError: the disk failed.
        """
        if self._stopped_cleanly:
            self._disk.delete(str(self._path / "clean-stop"))
            self._disk.sync_directory(str(self._path))
            self._stopped_cleanly = False

    def leave(self, ends: Mapping[PartitionKey, CleanEnd], *, out_of_use: frozenset[PartitionKey]) -> None:
        """After a clean stop: this is where every replica ends that has files.

        Args:
            ends: of those that were in use.
            out_of_use: the others, whose files are on the disk as they are.

        Raises:
            ResourceExhaustedError: no room, and so no proof.
            DirectoryFailedError: the disk failed.
        """
        stop = CleanStop(log_id=self.identity.log_id, ends=ends, out_of_use=out_of_use)
        self._disk.replace(str(self._path / "clean-stop"), stop.encode(), sync=True, bookkeeping=True)

    def void(self) -> None:
        """Best effort after a failure: the kernel may have dropped pages, so the boot id proves nothing more (D32).

        The disk that has just failed may answer no more at all: it is an operation like others, which is not waited for
        without end.
        """
        self.is_void = True
        with self._disk.operations:
            with suppress(OSError):
                self._calls.unlink(str(self._path / "clean-stop"))
            with suppress(OSError):
                self._calls.put(str(self._path / "meta.json"), ".failed", self.identity.failed().encode())
