"""A log directory: one lock, one journal, one identity, many replicas.

``.lock`` is held while it is open; ``meta.json`` says whose it is; ``journal`` and ``journal.copy`` which replicas
there are; ``replicas/<topic id>-<partition>/`` holds their segments; ``high-watermarks`` the last checkpoint;
``log-starts`` says where logs begin that had records removed; ``reserve`` holds room back for a full disk; ``life``
says which lives of the directory the store knows;
``clean-stop`` exists between a clean stop and the first change after it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final, TypeVar

from immutables import Map
from regnum_model.ids import DirectoryId, LeaderEpoch, LogId, PartitionKey

from regnum_broker.log.contents import Contents, nothing
from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.errors import (
    CorruptLogError,
    DirectoryHungError,
    ResourceExhaustedError,
    UnknownReplicaError,
)
from regnum_broker.log.folders import folder_of, synced_as_it_is
from regnum_broker.log.hosting import Host
from regnum_broker.log.journal.begun_files import BegunFiles
from regnum_broker.log.journal.deleted import DeletedReplicas
from regnum_broker.log.journal.entries import EpochBegun, ReplicaCreated, ReplicaDeleted
from regnum_broker.log.journal.file import Journal
from regnum_broker.log.leaving import Leaving
from regnum_broker.log.offset_file import OffsetFile
from regnum_broker.log.proof import Proof
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.log.replica.rolling import LogSettings
from regnum_broker.log.replica.starting.recovery import CleanEnd, Recovered
from regnum_broker.log.starts import LogStarts

T = TypeVar("T")

CLOSING_THREADS: Final = 8
"""Threads that bring logs to the disk at a clean stop."""

_TOPIC_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


class LogDirectory:
    """A directory with the logs of a broker. Writes come from one thread; properties may be read by any.

    Made by ``opening.open_directory``.
    """

    def __init__(
        self,
        *,
        path: Path,
        unlock: Callable[[], None],
        disk: GuardedDisk,
        journal: Journal,
        proof: Proof,
        contents: Contents,
        settings: LogSettings,
        wall_ms: Callable[[], int],
    ) -> None:
        self._path = path
        self._unlock: Callable[[], None] | None = unlock
        self._disk = disk
        self.room: Final = disk.room
        """Free bytes of its disk, and all; None: it does not say. Not for the event loop."""
        self._journal = journal
        self.proof: Final = proof
        """Whose it is, and what proves that its log is complete."""
        self._settings = settings
        self._wall_ms = wall_ms
        self._high_watermarks = OffsetFile(
            str(path / "high-watermarks"), disk, contents.high_watermarks, stale=contents.stale_high_watermarks
        )
        self._start_offsets = OffsetFile(
            str(path / "log-starts"), disk, contents.log_starts, stale=contents.stale_log_starts, durable=True
        )
        self.notes: Final = contents.notes
        """What people should know of the state in which the directory was found."""
        self.foreign: Final = contents.foreign
        """Paths of what is not ours in it, as it was found."""
        self._hung = False
        self._begun_files = BegunFiles(journal)
        self._leaving = Leaving(path, disk, number=contents.number)
        self._host = Host(disk, proof, self._begun_files, starts=self._start_offsets, leaving=self._leaving)
        self.deleted: Final = DeletedReplicas()
        """What was deleted in this run."""
        self._offline: Map[PartitionKey, CorruptLogError] = Map(contents.offline)
        self._replicas: Map[PartitionKey, ReplicaLog] = Map(
            {
                key: self._replica(key, contents.state.replicas[key].topic, recovered)
                for key, recovered in contents.found.items()
            }
        )
        self.remove_files: Final = self._leaving.remove
        """Remove what was moved aside: folders of replicas, files of segments. For one thread, and not the writer's."""
        self.leave_files: Final = self._leaving.stop
        """End ``remove_files`` early; what is left is removed at the next start. From any thread."""
        self.segments_begun: Final = self._host.begun
        """Replicas that have begun a segment; whoever looks after retention takes them out. Any thread."""
        self.segments_closed: Final = self._host.closed
        """Replicas with compaction that have closed a segment; the cleaner takes them out. Any thread."""
        self.unflushed: Final = self._host.unflushed
        """Replicas, and in how many milliseconds they are to be brought to the disk; for the flusher. Any thread."""
        self.take_flushed_now: Final = self._host.take_flushed_now
        """Logs that the present job of the writer has to wait for: call it at the end of each. Writer thread."""
        self.refuse_flushed: Final = self._host.refuse_flushed
        """Whether appends are refused that would have to wait for the disk: it is that far behind. Any thread."""
        self.operations: Final = disk.operations
        """What is being asked of the disk."""
        self.read_cache: Final = disk.cache
        """What is kept of indexes; the writer thread writes what has to be written before it is dropped."""
        self.sync_grown: Final = self._host.sync_grown
        """Bring segments that grew to the disk. For one thread at a time, and that need not be the writer."""
        self.starts: Final = LogStarts(self._start_offsets, lambda: self._replicas)
        """Where the logs begin. For the writer thread, but for its ``sync``."""
        for recovered in contents.found.values():
            self._leaving.left(recovered.before, recovered.set_aside)

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._path

    @property
    def directory_id(self) -> DirectoryId:
        """Its permanent name."""
        return self.proof.identity.directory_id

    @property
    def log_id(self) -> LogId:
        """Name of its content (safety rule S10)."""
        return self.proof.identity.log_id

    @property
    def cluster_id(self) -> str | None:
        """Cluster it belongs to. None: not bound yet."""
        return self.proof.identity.cluster_id

    @property
    def failed(self) -> bool:
        """Whether a write, an fsync or a read failed: nothing in it may be acknowledged any more."""
        return self._disk.failed

    @property
    def full(self) -> bool:
        """Whether appends are refused until there is room for the reserve again."""
        return self._disk.reserve.full

    @property
    def no_room(self) -> str:
        """Why records find no room, in words; empty: they do, as far as anything has been tried. Any thread."""
        return f"the disk of log directory {self._path} is full" if self._disk.reserve.wanting else ""

    @property
    def hung(self) -> bool:
        """Whether the disk answers no more."""
        return self._hung

    @property
    def replicas(self) -> Mapping[PartitionKey, ReplicaLog]:
        """All replicas that can be used.

        Each change makes another mapping, which shares with the one before all that did not change: so iterating needs
        no lock, and an order costs the replicas that it is about.
        """
        return self._replicas

    @property
    def offline(self) -> Mapping[PartitionKey, CorruptLogError]:
        """Replicas that cannot be used, and why. They can only be deleted."""
        return self._offline

    def on_damage(self, callback: Callable[[CorruptLogError], None]) -> None:
        """Call back, in the thread that finds it, when a replica turns out to be damaged; then ``take_offline``."""
        self._host.on_damage = callback

    def take_offline(self, error: CorruptLogError) -> bool:
        """Use a replica no longer, for that reason; returns whether it was in use."""
        if error.key not in self._replicas:
            return False
        self._offline = self._offline.set(error.key, error)
        self._replicas = self._replicas.delete(error.key)
        return True

    def give_up(self, waited_s: float) -> DirectoryHungError:
        """Use the directory no longer, because the disk has not answered for so long. From any thread.

        What was written is not in doubt, so the log keeps its id.
        """
        self._hung = True
        reason = f"log directory {self._path} hangs: an operation has not come back for {waited_s:.0f} s"
        self._disk.fail(reason)
        return DirectoryHungError(f"{reason}; the broker must stop. Check the disk, then start the broker again")

    def make_reserve(self) -> bool:
        """Take the room that is held back for a full disk, unless it is held; returns whether it is."""
        with self._disk.operations:
            return self._disk.reserve.make()

    def create_replicas(self, replicas: Sequence[tuple[PartitionKey, str]], *, sync: bool = True) -> None:
        """Create empty replicas (key, topic name) with one append and one fsync; known ones are left as they are.

        Args:
            replicas: which.
            sync: False leaves the fsync to ``sync_journal``: until that was done, nobody may rely on them.

        Raises:
            CorruptLogError: one of them is offline here; nothing was created.
            ResourceExhaustedError: no room; nothing was created.
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
        self._leaving.make_way(new)
        self._high_watermarks.make_way(new)
        if self._start_offsets.make_way(new):
            self._start_offsets.sync()  # After a loss of power it would be believed of the new one.
        self._host.record([ReplicaCreated(key=key, topic=topic) for key, topic in new.items()], sync=sync)
        made = {key: self._replica(key, topic, nothing()) for key, topic in new.items()}
        self._replicas = self._replicas.update(made)

    def delete_replicas(self, keys: Sequence[PartitionKey]) -> None:
        """Delete replicas and their files, also offline ones and on a full disk; unknown ones are left out.

        Raises:
            ResourceExhaustedError: not even the reserve was there to write it down; nothing was deleted.
            DirectoryFailedError: the disk failed.
        """
        self.retire_replicas(keys)
        while self.move_aside(len(keys)):
            pass
        self.remove_files()
        if self.full:
            self.make_reserve()

    def retire_replicas(self, keys: Sequence[PartitionKey], *, sync: bool = True) -> None:
        """Delete replicas for good with one append and one fsync; then ``move_aside`` and ``remove_files``.

        Args:
            keys: which.
            sync: False leaves the fsync to ``sync_journal``, which then comes before ``move_aside``.

        Raises:
            ResourceExhaustedError: not even the reserve was there to write it down; nothing was deleted.
            DirectoryFailedError: the disk failed.
        """
        doomed = {key for key in keys if key in self._replicas or key in self._offline}
        if not doomed:
            return
        self._host.before_change()
        self._host.record([ReplicaDeleted(key=key) for key in doomed], sync=sync)
        removed = [self._replicas[key] for key in doomed if key in self._replicas]
        self.deleted.note(doomed, self._replicas)
        self._replicas, self._offline = _without(self._replicas, doomed), _without(self._offline, doomed)
        for replica in removed:
            replica.mark_deleted()
        self._leaving.add(doomed)
        self._high_watermarks.forget(doomed)
        self._start_offsets.forget(doomed)

    def move_aside(self, count_max: int) -> bool:
        """Rename so many folders of deleted replicas; returns whether others are left.

        Raises:
            ResourceExhaustedError: no room for a name; the next start removes the folder.
            DirectoryFailedError: the disk failed.
        """
        return self._leaving.rename(count_max)

    @property
    def files_left(self) -> bool:
        """Whether files of deleted records wait for ``remove_files``. From any thread."""
        return self._leaving.files_left

    def record_leader_epochs(
        self, epochs: Sequence[tuple[PartitionKey, LeaderEpoch, int]], *, sync: bool = True
    ) -> None:
        """Record (key, leader epoch, start offset) durably and in the epoch caches, with one append and one fsync.

        Args:
            epochs: which.
            sync: False leaves the fsync to ``sync_journal``: until that was done, nobody may lead in them.

        Raises:
            UnknownReplicaError: there is no such replica; nothing was recorded.
            ResourceExhaustedError: no room; nothing was recorded.
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
            changed = [self._replicas[key] for key in dict.fromkeys(entry.key for entry in new)]
            earlier = [entry for replica in changed for entry in replica.leader_epochs.unjournaled]
            self._host.record([*earlier, *new], sync=sync)
            for replica in changed:
                replica.leader_epochs.journaled()
            for entry in new:
                self._replicas[entry.key].leader_epochs.assign(entry.epoch, entry.start_offset)

    def sync_journal(self) -> None:
        """Bring to the disk what was recorded. For any thread: the writer goes on meanwhile.

        Raises:
            DirectoryFailedError: what was recorded may be lost.
        """
        self._journal.sync()

    def stored_high_watermark(self, key: PartitionKey) -> int:
        """What the checkpoint says of a replica; 0 if nothing. From any thread."""
        return self._high_watermarks.of(key)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[PartitionKey, int]) -> None:
        """Save high watermarks; those of replicas not named stay as they were saved last.

        Not synced: after a loss of power the replica learns its high watermark from its leader.

        Raises:
            ResourceExhaustedError: no room; what was saved last stands.
            DirectoryFailedError: the write failed.
        """
        self._high_watermarks.save({key: value for key, value in high_watermarks.items() if key in self._replicas})

    def close(self, *, clean: bool = True) -> None:
        """Flush, leave the proof that the log is complete, release the lock; ``clean=False``: only release, as a kill.

        Raises:
            DirectoryFailedError: the disk failed; the lock is released and there is no proof.
        """
        if self._unlock is None:
            return
        try:
            if clean and not self._disk.failed:
                # Without room for the proof there is none, and the boot id may still be one.
                with suppress(ResourceExhaustedError):
                    self._stop_cleanly()
        finally:
            self._disk.close()
            self._unlock()
            self._unlock = None

    @property
    def grown(self) -> bool:
        """Whether there are segments for ``sync_grown``."""
        return self._host.grown

    def many_appends(self) -> AbstractContextManager[None]:
        """Around appends to many replicas: what the journal is to say of them is one write. For the writer thread.

        Raises:
            DirectoryFailedError: it could not be written.
        """
        return self._begun_files.gathering()

    def _replica(self, key: PartitionKey, topic: str, recovered: Recovered) -> ReplicaLog:
        return ReplicaLog(
            key=key,
            topic=topic,
            folder=folder_of(self._path, key),
            disk=self._disk,
            host=self._host,
            recovered=recovered,
            high_watermark=self._high_watermarks.of(key),
            settings=self._settings,
            wall_ms=self._wall_ms,
        )

    def _stop_cleanly(self) -> None:
        ends, epochs, out_of_use = _closed(self._replicas, self._offline, self._disk)
        self._host.record(epochs, sync=True)
        self._journal.sync_copy()
        self._high_watermarks.save_all()
        if self._start_offsets.is_used:
            self._start_offsets.save_all()
        self._disk.sync_directory(str(self._path / "replicas"))
        if all(synced_as_it_is(folder_of(self._path, key), self._disk) for key in out_of_use):
            self.proof.leave(ends, out_of_use=out_of_use)


def _closed(
    replicas: Mapping[PartitionKey, ReplicaLog], offline: Iterable[PartitionKey], disk: GuardedDisk
) -> tuple[dict[PartitionKey, CleanEnd], list[EpochBegun], frozenset[PartitionKey]]:
    """Close replicas cleanly: where those end that have files, what the journal lacks, and which are out of use.

    By several threads: it is three fsyncs for each that was written to, and file systems take those of many together.
    """

    def close(replica: ReplicaLog) -> CleanEnd | None:
        try:
            return replica.close_cleanly()
        except CorruptLogError:
            return None

    written = [key for key, replica in replicas.items() if replica.has_files]
    with disk.threads("log-closing", CLOSING_THREADS) as pool:
        found = dict(zip(written, pool.map(close, [replicas[key] for key in written]), strict=True))
    ends: dict[PartitionKey, CleanEnd] = {}
    epochs: list[EpochBegun] = []
    out_of_use = set(offline)
    for key, replica in replicas.items():
        if replica.fault is not None:
            out_of_use.add(key)
            continue
        epochs += replica.leader_epochs.unjournaled
        if (end := found.get(key)) is not None:
            ends[key] = end
    return ends, epochs, frozenset(out_of_use)


def _without(present: Map[PartitionKey, T], doomed: Iterable[PartitionKey]) -> Map[PartitionKey, T]:
    """The mapping without some of its keys; costs what goes."""
    left = present.mutate()
    for key in doomed:
        left.pop(key, None)
    return left.finish()
