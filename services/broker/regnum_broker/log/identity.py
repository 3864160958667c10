"""What a log directory says about itself: whose it is, and whether its log is complete (safety rule S10). Pure.

The directory id is permanent. The log id names the content: it stays as long as every start can prove that nothing
written is gone, and is minted anew otherwise. Proof is the marker of a clean stop in the directory, or the boot id
under which the log was last open, because a killed process loses nothing that it wrote.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from regnum_model.ids import BrokerId, DirectoryId, LogId, PartitionKey, TopicId

from regnum_broker.log.errors import MalformedDirectoryError
from regnum_broker.log.replica.starting.recovery import CleanEnd

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Content of ``meta.json``."""

    broker_id: BrokerId
    """Broker whose directory it is."""
    directory_id: DirectoryId
    """Permanent name of the directory."""
    log_id: LogId
    """Name of its content."""
    boot_id: str
    """Boot of the machine in which the log was last open; empty after a failure, which proves nothing."""
    cluster_id: str | None
    """Cluster it belongs to; None: none yet."""
    further: Mapping[str, Any] = field(default_factory=dict)
    """What a later release says besides; it stays."""

    def encode(self) -> bytes:
        """JSON that a person can read."""
        content = {
            **self.further,
            "version": FORMAT_VERSION,
            "broker_id": self.broker_id,
            "directory_id": self.directory_id,
            "cluster_id": self.cluster_id,
            "log_id": self.log_id,
            "boot_id": self.boot_id,
        }
        return json.dumps(content, indent=2).encode("utf-8") + b"\n"

    @classmethod
    def decode(cls, data: bytes, *, where: str) -> "Identity":
        """Read it.

        Raises:
            MalformedDirectoryError: it is not what was written.
        """
        value = _json(data)
        match value:
            case {
                "version": 1,
                "broker_id": int(broker_id),
                "directory_id": str(directory_id),
                "log_id": str(log_id),
                "boot_id": str(boot_id),
                "cluster_id": str() | None as cluster_id,
                **further,
            }:
                return cls(
                    broker_id=BrokerId(broker_id),
                    directory_id=DirectoryId(directory_id),
                    log_id=LogId(log_id),
                    boot_id=boot_id,
                    cluster_id=cluster_id,
                    further={str(name): value for name, value in further.items()},
                )
            case {"version": int(found)} if found > FORMAT_VERSION:
                raise MalformedDirectoryError(
                    f"{where} says that the directory has format {found}, and this release reads {FORMAT_VERSION}: a"
                    " later release wrote it. Start that release, and see docs/operations/upgrades.md; do not format it"
                )
            case _:
                raise MalformedDirectoryError(
                    f"{where} cannot be read as the format file of a log directory: restore it, or start with an empty"
                    " directory and let the replicas be copied from their leaders"
                )

    def failed(self) -> "Identity":
        """As it is after a failure of the disk: the next start must not take the log for complete."""
        return replace(self, boot_id="")


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanStop:
    """Content of the marker that a clean stop leaves."""

    log_id: LogId
    """Name of the content that it proves complete."""
    ends: Mapping[PartitionKey, CleanEnd]
    """Where the replicas ended that have files."""
    out_of_use: frozenset[PartitionKey] = frozenset()
    """Replicas of which nobody knows where they end, and whose files were brought to the disk as they are."""

    def encode(self) -> bytes:
        """JSON."""
        ends = [
            [key.topic_id, key.partition, end.base_offset, end.size_bytes, end.log_end_offset]
            for key, end in self.ends.items()
        ]
        content = {
            "version": FORMAT_VERSION,
            "log_id": self.log_id,
            "ends": ends,
            "out_of_use": [[key.topic_id, key.partition] for key in self.out_of_use],
        }
        return json.dumps(content).encode("utf-8") + b"\n"

    @classmethod
    def decode(cls, data: bytes | None) -> "CleanStop | None":
        """Read it; None if it is not there or not what was written: then it proves nothing."""
        content = _json(data or b"")
        if isinstance(content, dict):
            # Release 0.1.0 left no marker where it would say something of this.
            content = {"out_of_use": [], **content}
        match content:
            case {"version": 1, "log_id": str(log_id), "ends": list(rows), "out_of_use": list(others)}:
                ends: dict[PartitionKey, CleanEnd] = {}
                for row in rows:
                    match row:
                        case [str(id), int(partition), int(base), int(size), int(end)]:
                            ends[PartitionKey(TopicId(id), partition)] = CleanEnd(
                                base_offset=base, size_bytes=size, log_end_offset=end
                            )
                        case _:
                            return None
                out_of_use: set[PartitionKey] = set()
                for row in others:
                    match row:
                        case [str(id), int(partition)]:
                            out_of_use.add(PartitionKey(TopicId(id), partition))
                        case _:
                            return None
                return cls(log_id=LogId(log_id), ends=ends, out_of_use=frozenset(out_of_use))
            case _:
                return None


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
