"""A log directory: one lock, one journal, one identity, many replicas.

``.lock`` is held while it is open; ``meta.json`` says whose it is; ``journal`` which replicas there are;
``replicas/<topic id>-<partition>/`` holds their segments; ``high-watermarks`` the last checkpoint; ``clean-stop``
exists between a clean stop and the first change after it.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, Self

from regnum_model.ids import NO_EPOCH, BrokerId, DirectoryId, LeaderEpoch, LogId, PartitionKey

from regnum_broker.log.checkpoint import decode_checkpoint, encode_checkpoint
from regnum_broker.log.disk import Disk, GuardedDisk
from regnum_broker.log.epochs import EpochCache
from regnum_broker.log.errors import (
    CorruptLogError,
    DirectoryUnusableError,
    UnknownReplicaError,
    WrongClusterError,
)
from regnum_broker.log.folders import folder_of, tidy
from regnum_broker.log.formatting import read_or_format
from regnum_broker.log.identity import CleanStop, Identity
from regnum_broker.log.journal import (
    EpochBegun,
    Journal,
    JournaledReplica,
    JournalEntry,
    JournalState,
    ReplicaCreated,
    ReplicaDeleted,
)
from regnum_broker.log.lock import acquire_lock
from regnum_broker.log.producers import ProducerStates
from regnum_broker.log.recovery import Circumstances, CleanEnd, Recovered, recover
from regnum_broker.log.replica import ReplicaLog

SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""Size at which a segment is closed, unless told otherwise."""
OPEN_FILES_MAX: Final = 256
"""Segment files held open, unless told otherwise."""

_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class LogDirectory:
    """A directory with the logs of a broker. Writes come from one thread; properties may be read by any."""

    def __init__(
        self,
        *,
        path: Path,
        lock: int,
        disk: GuardedDisk,
        journal: Journal,
        identity: Identity,
        segment_bytes: int,
        high_watermarks: Mapping[PartitionKey, int],
        clean_stop_present: bool,
    ) -> None:
        self._path = path
        self._lock: int | None = lock
        self._disk = disk
        self._journal = journal
        self._identity = identity
        self._segment_bytes = segment_bytes
        self._high_watermarks = dict(high_watermarks)
        self._clean_stop_present = clean_stop_present
        self._replicas: Mapping[PartitionKey, ReplicaLog] = MappingProxyType({})
        self._offline: Mapping[PartitionKey, CorruptLogError] = MappingProxyType({})

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        broker_id: BrokerId,
        mint_id: Callable[[], str],
        boot_id: str,
        segment_bytes: int = SEGMENT_BYTES,
        open_files_max: int = OPEN_FILES_MAX,
        disk: Disk | None = None,
    ) -> Self:
        """Lock, format or recover the directory. Blocking.

        Args:
            path: the directory; created if it is missing.
            broker_id: whose it is.
            mint_id: makes new directory ids and log ids.
            boot_id: content of /proc/sys/kernel/random/boot_id (safety rule S10); empty: unknown, which proves nothing.
            segment_bytes: size at which a segment is closed and the next one begun.
            open_files_max: segment files held open.
            disk: system calls; tests inject faults here.

        Raises:
            DirectoryUnusableError: it is in use, not readable, or another broker's.
            DirectoryFailedError: the disk failed.
        """
        try:
            (path / "replicas").mkdir(parents=True, exist_ok=True)
            lock = acquire_lock(path / ".lock")
        except OSError as error:
            raise DirectoryUnusableError(f"{path} cannot be used as a log directory: {error}") from error
        guarded = GuardedDisk(path, disk if disk is not None else Disk(), open_files_max=open_files_max)
        try:
            identity = read_or_format(path, guarded, broker_id, mint_id)
            return cls._opened(path, lock, guarded, identity, mint_id, boot_id, segment_bytes)
        except BaseException:
            guarded.close()
            os.close(lock)
            raise

    @classmethod
    def _opened(
        cls,
        path: Path,
        lock: int,
        disk: GuardedDisk,
        identity: Identity,
        mint_id: Callable[[], str],
        boot_id: str,
        segment_bytes: int,
    ) -> Self:
        """Recover the replicas, decide whether the log is complete, and write down what holds from now on."""
        journal = Journal(path / "journal", disk)
        state = journal.load()
        stop = CleanStop.decode(disk.read_whole(str(path / "clean-stop")))
        if stop is not None and stop.log_id != identity.log_id:
            stop = None
        same_boot = bool(boot_id) and identity.boot_id == boot_id
        high_watermarks = decode_checkpoint(disk.read_whole(str(path / "high-watermarks")) or b"")
        strays = tidy(path / "replicas", disk, state)

        found: dict[PartitionKey, Recovered] = {}
        offline: dict[PartitionKey, CorruptLogError] = {}
        for key, journaled in state.replicas.items():
            circumstances = Circumstances(
                same_boot=same_boot,
                clean_end=stop.ends.get(key) if stop is not None else None,
                journal_damaged=state.damaged_lines > 0,
            )
            try:
                found[key] = recover(folder_of(path, key), key, journaled, disk, circumstances)
            except CorruptLogError as error:
                offline[key] = error

        complete = (
            (stop is not None or same_boot)
            and not strays
            and state.damaged_lines == 0
            and all(_is_whole(found[key], high_watermarks.get(key, 0), stop, key) for key in found)
        )
        renewed = replace(identity, log_id=identity.log_id if complete else LogId(mint_id()), boot_id=boot_id)
        if renewed != identity:
            disk.replace(str(path / "meta.json"), renewed.encode(), sync=True)
        journal.rewrite(_recovered_state(state, found))
        directory = cls(
            path=path,
            lock=lock,
            disk=disk,
            journal=journal,
            identity=renewed,
            segment_bytes=segment_bytes,
            high_watermarks={key: value for key, value in high_watermarks.items() if key in state.replicas},
            clean_stop_present=(path / "clean-stop").exists(),
        )
        directory._offline = MappingProxyType(offline)
        directory._replicas = MappingProxyType(
            {key: directory._replica(key, state.replicas[key].topic, recovered) for key, recovered in found.items()}
        )
        disk.on_failure(directory._void_proof)
        return directory

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._path

    @property
    def directory_id(self) -> DirectoryId:
        """Its permanent name."""
        return self._identity.directory_id

    @property
    def log_id(self) -> LogId:
        """Name of its content (safety rule S10)."""
        return self._identity.log_id

    @property
    def cluster_id(self) -> str | None:
        """Cluster it belongs to. None: not bound yet."""
        return self._identity.cluster_id

    @property
    def failed(self) -> bool:
        """Whether a write, an fsync or a read failed: nothing in it may be acknowledged any more."""
        return self._disk.failed

    @property
    def replicas(self) -> Mapping[PartitionKey, ReplicaLog]:
        """All replicas that can be used. Each change makes a new mapping, so iterating needs no lock."""
        return self._replicas

    @property
    def offline(self) -> Mapping[PartitionKey, CorruptLogError]:
        """Replicas that could not be opened, and why. They can only be deleted."""
        return self._offline

    def bind_cluster(self, cluster_id: str) -> None:
        """Bind the directory to a cluster, once.

        Raises:
            WrongClusterError: it belongs to another one.
        """
        if self._identity.cluster_id == cluster_id:
            return
        if self._identity.cluster_id is not None:
            raise WrongClusterError(
                f"{self._path} holds data of cluster {self._identity.cluster_id}, this is cluster {cluster_id}: point"
                " the broker to its own cluster, or to another data directory"
            )
        self._identity = replace(self._identity, cluster_id=cluster_id)
        self._disk.replace(str(self._path / "meta.json"), self._identity.encode(), sync=True)

    def create_replicas(self, replicas: Sequence[tuple[PartitionKey, str]]) -> None:
        """Create empty replicas (key, topic name) with one append and one fsync; known ones are left as they are.

        Raises:
            CorruptLogError: one of them is offline here; nothing was created.
            DirectoryFailedError: the write failed.
        """
        new: dict[PartitionKey, str] = {}
        for key, topic in replicas:
            if (error := self._offline.get(key)) is not None:
                raise error
            if _TOPIC_ID.fullmatch(key.topic_id) is None or key.partition < 0:
                raise ValueError(f"{key} is not a topic id and a partition number")
            if key not in self._replicas:
                new[key] = topic
        if not new:
            return
        self.record([ReplicaCreated(key=key, topic=topic) for key, topic in new.items()], sync=True)
        created = {key: self._replica(key, topic, _nothing()) for key, topic in new.items()}
        self._replicas = MappingProxyType({**self._replicas, **created})

    def delete_replicas(self, keys: Sequence[PartitionKey]) -> None:
        """Delete replicas and their files, also offline ones; unknown ones are left out.

        Raises:
            DirectoryFailedError: the disk failed.
        """
        doomed = {key for key in keys if key in self._replicas or key in self._offline}
        if not doomed:
            return
        self.before_change()
        self.record([ReplicaDeleted(key=key) for key in doomed], sync=True)
        removed = [replica for key, replica in self._replicas.items() if key in doomed]
        self._replicas = MappingProxyType({key: log for key, log in self._replicas.items() if key not in doomed})
        self._offline = MappingProxyType({key: error for key, error in self._offline.items() if key not in doomed})
        for replica in removed:
            replica.mark_deleted()
        if any(self._high_watermarks.pop(key, None) is not None for key in doomed):
            self._save_high_watermarks(sync=False)
        for key in doomed:
            self._disk.remove_tree(folder_of(self._path, key))

    def record_leader_epochs(self, epochs: Sequence[tuple[PartitionKey, LeaderEpoch, int]]) -> None:
        """Record (key, leader epoch, start offset) durably and in the epoch caches, with one append and one fsync.

        Raises:
            UnknownReplicaError: there is no such replica; nothing was recorded.
            DirectoryFailedError: the write failed.
        """
        for key, _, _ in epochs:
            if key not in self._replicas:
                raise UnknownReplicaError(key)
        new = [
            EpochBegun(key=key, epoch=epoch, start_offset=start)
            for key, epoch, start in epochs
            if self._replicas[key].epochs.assign(epoch, start) is not self._replicas[key].epochs
        ]
        if new:
            # The journal is folded in order, so what earlier batches showed goes first.
            earlier = [
                entry for key in {entry.key for entry in new} for entry in self._replicas[key].take_unjournaled()
            ]
            self.record([*earlier, *new], sync=True)
            for entry in new:
                self._replicas[entry.key].assign_epoch(entry.epoch, entry.start_offset)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[PartitionKey, int]) -> None:
        """Save high watermarks; those of replicas not named stay as they were saved last.

        Not synced: after a loss of power the replica learns its high watermark from its leader.

        Raises:
            DirectoryFailedError: the write failed.
        """
        known = {
            key: value
            for key, value in high_watermarks.items()
            if key in self._replicas and self._high_watermarks.get(key) != value
        }
        if known:
            self._high_watermarks.update(known)
            self._save_high_watermarks(sync=False)

    def close(self, *, clean: bool = True) -> None:
        """Flush, leave the proof that the log is complete, release the lock; ``clean=False``: only release, as a kill.

        Raises:
            DirectoryFailedError: the disk failed; the lock is released and there is no proof.
        """
        if self._lock is None:
            return
        try:
            if clean and not self._disk.failed:
                self._stop_cleanly()
        finally:
            self._disk.close()
            os.close(self._lock)
            self._lock = None

    def before_change(self) -> None:
        """Take back the proof of a clean stop (safety rule S10). For replicas."""
        if self._clean_stop_present:
            self._disk.delete(str(self._path / "clean-stop"))
            self._disk.sync_directory(str(self._path))
            self._clean_stop_present = False

    def record(self, entries: Iterable[JournalEntry], *, sync: bool) -> None:
        """Write to the journal. For replicas."""
        self._journal.append(entries, sync=sync)

    def _replica(self, key: PartitionKey, topic: str, recovered: Recovered) -> ReplicaLog:
        return ReplicaLog(
            key=key,
            topic=topic,
            folder=folder_of(self._path, key),
            disk=self._disk,
            host=self,
            recovered=recovered,
            high_watermark=self._high_watermarks.get(key, 0),
            segment_bytes=self._segment_bytes,
        )

    def _stop_cleanly(self) -> None:
        ends: dict[PartitionKey, CleanEnd] = {}
        epochs: list[EpochBegun] = []
        for key, replica in self._replicas.items():
            end, unjournaled = replica.close_cleanly()
            epochs += unjournaled
            if end is not None:
                ends[key] = end
        self.record(epochs, sync=True)
        self._save_high_watermarks(sync=True)
        self._disk.sync_directory(str(self._path / "replicas"))
        if not self._offline:
            stop = CleanStop(log_id=self._identity.log_id, ends=ends)
            self._disk.replace(str(self._path / "clean-stop"), stop.encode(), sync=True)

    def _save_high_watermarks(self, *, sync: bool) -> None:
        path = str(self._path / "high-watermarks")
        self._disk.replace(path, encode_checkpoint(self._high_watermarks), sync=sync)

    def _void_proof(self) -> None:
        """Best effort after a failure: the kernel may have dropped pages, so the boot id proves nothing more (D32)."""
        with suppress(OSError):
            (self._path / "clean-stop").unlink(missing_ok=True)
        with suppress(OSError):
            temporary = self._path / "meta.json.failed"
            temporary.write_bytes(self._identity.failed().encode())
            temporary.replace(self._path / "meta.json")


def _is_whole(recovered: Recovered, high_watermark: int, stop: CleanStop | None, key: PartitionKey) -> bool:
    """Whether a replica holds all that its directory says it held."""
    if recovered.lost is not None:
        return False
    end = recovered.segments[-1].next_offset if recovered.segments else 0
    if stop is not None and recovered.segments and key not in stop.ends:
        return False
    return end >= high_watermark


def _recovered_state(state: JournalState, found: Mapping[PartitionKey, Recovered]) -> JournalState:
    """The journal's state with what the files showed; offline replicas keep what it said."""

    def seen(key: PartitionKey, journaled: JournaledReplica) -> JournaledReplica:
        recovered = found.get(key)
        if recovered is None:
            return journaled
        return replace(
            journaled,
            has_files=bool(recovered.segments),
            epochs=recovered.epochs,
            highest_epoch=recovered.highest_epoch,
        )

    return JournalState(replicas={key: seen(key, journaled) for key, journaled in state.replicas.items()})


def _nothing() -> Recovered:
    """What a replica begins with; made for each, because producer states change in place."""
    return Recovered(segments=(), epochs=EpochCache(), highest_epoch=NO_EPOCH, producers=ProducerStates(), lost=None)
