"""A log directory that is opened, killed and opened again."""

from collections.abc import Sequence
from pathlib import Path

from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.log.opening import open_directory
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_model.ids import BrokerId, LeaderEpoch, LogId, PartitionKey, TopicId

from regnum_testing.batches import batch_of

KEY = PartitionKey(TopicId("AAAAAAAAAAAAAAAAAAAAAA"), 0)
"""The replica that most tests need."""


class ReopenedDirectory:
    """A log directory at a path, with ids that count up and a boot id that a loss of power changes."""

    def __init__(self, path: Path, *, segment_bytes: int = 1 << 20, disk: Disk | None = None) -> None:
        self.path = path
        self.boot_id = "boot-1"
        self.wall_ms = 1_700_000_000_000
        self.segment_bytes = segment_bytes
        self.disk = disk
        self.open_files_max = 8
        self.reserve_bytes = 64 * 1024
        self.index_cache_bytes = 1024 * 1024
        self._minted = 0
        self._directory: LogDirectory | None = None

    def mint_id(self) -> str:
        """The next id."""
        self._minted += 1
        return f"id-{self._minted}"

    def open(self, *, broker_id: int = 1) -> LogDirectory:
        """Open it; it must not be open."""
        self._directory = open_directory(
            self.path,
            broker_id=BrokerId(broker_id),
            mint_id=self.mint_id,
            boot_id=self.boot_id,
            wall_ms=lambda: self.wall_ms,
            segment_bytes=self.segment_bytes,
            open_files_max=self.open_files_max,
            reserve_bytes=self.reserve_bytes,
            index_cache_bytes=self.index_cache_bytes,
            disk=self.disk,
        )
        return self._directory

    @property
    def now(self) -> LogDirectory:
        """The open directory."""
        assert self._directory is not None
        return self._directory

    def replica(self, key: PartitionKey = KEY) -> ReplicaLog:
        """A replica of the open directory; created if it is not there."""
        self.now.create_replicas([(key, "topic")])
        return self.now.replicas[key]

    def kill(self) -> None:
        """Leave the files as a killed process leaves them."""
        if self._directory is not None:
            self._directory.close(clean=False)

    def kill_and_open(self) -> ReplicaLog:
        """Kill, open, and the replica."""
        self.kill()
        return self.open().replicas[KEY]

    def stop_and_open(self) -> ReplicaLog:
        """Stop cleanly, open, and the replica."""
        self.now.close()
        return self.open().replicas[KEY]

    def kill_and_open_all(self) -> LogDirectory:
        """Kill and open."""
        self.kill()
        return self.open()

    def stop_and_open_all(self) -> LogDirectory:
        """Stop cleanly and open."""
        self.now.close()
        return self.open()

    def lose_power_and_open(self) -> ReplicaLog:
        """As a kill, and the machine starts anew."""
        self.kill()
        self.boot_id += "+"
        return self.open().replicas[KEY]

    @property
    def log_id(self) -> LogId:
        """Log id of the open directory."""
        return self.now.log_id

    def flush(self) -> int:
        """Bring to the disk what the last job waits for, as other threads do; returns how many logs that was."""
        logs = self.now.take_flushed_now()
        for log in logs:
            log.flush_beside()
        return len(logs)

    def folder(self, key: PartitionKey = KEY) -> Path:
        """Folder of a replica's files."""
        return self.path / "replicas" / f"{key.topic_id}-{key.partition}"

    def flip(self, name: str, line: bytes) -> None:
        """Flip a bit in the first line of a file that contains ``line``; the directory must be closed."""
        file = self.path / name
        data = bytearray(file.read_bytes())
        data[data.index(line) + len(line) // 2] ^= 1
        file.write_bytes(data)

    def segments(self, key: PartitionKey = KEY) -> Sequence[Path]:
        """Its segment files, oldest first."""
        return sorted(self.folder(key).glob("*.log"))


def lead(replica: ReplicaLog, *values: bytes, epoch: int = 0, timestamp_ms: int = 1000) -> int:
    """Append one batch of ``values`` as the leader; returns its base offset. What it has to wait for is not flushed."""
    base = replica.written_end_offset
    replica.append_as_leader([batch_of(*values, timestamp_ms=timestamp_ms)], leader_epoch=LeaderEpoch(epoch))
    return base


def offset_at(log: ReplicaLog, timestamp_ms: int) -> int | None:
    """Offset of the first record at or after a moment."""
    found = log.record_at_or_after(timestamp_ms)
    return None if found is None else found.offset
