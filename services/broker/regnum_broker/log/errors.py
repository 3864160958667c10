"""What can go wrong with storage.

StorageError
├── DirectoryUnusableError        open() refuses; fix it and start again
│   ├── DirectoryInUseError       another process holds the directory
│   ├── MalformedDirectoryError   its format file is not readable
│   ├── WrongBrokerError          it belongs to another broker id
│   └── WrongClusterError         it belongs to another cluster
├── DirectoryFailedError          a write or fsync failed: nothing in this directory may be acknowledged any more
│   └── DirectoryHungError        the disk answers no more
├── ResourceExhaustedError        no room or no descriptors for it now: it was refused, and nothing is lost
├── CorruptLogError               one replica's files contradict themselves; the others are not affected
├── NotContiguousError            an append that does not begin at the log end, or whose epoch goes back
├── OffsetOutOfRangeError         a read outside the log
└── UnknownReplicaError           no such replica in this directory
"""

from regnum_model.ids import PartitionKey


class StorageError(Exception):
    """Storage cannot do what was asked. The message says what to do next."""


class DirectoryUnusableError(StorageError):
    """The directory cannot be opened as it is."""


class DirectoryInUseError(DirectoryUnusableError):
    """Another process holds the lock."""


class MalformedDirectoryError(DirectoryUnusableError):
    """The format file cannot be read."""


class WrongBrokerError(DirectoryUnusableError):
    """The directory was formatted for another broker id."""


class WrongClusterError(DirectoryUnusableError):
    """The directory holds data of another cluster."""


class DirectoryFailedError(StorageError):
    """Writing failed once, so what the disk holds is unknown. The broker stops leading and ends; nothing is retried."""


class DirectoryHungError(DirectoryFailedError):
    """A thread waits for the disk and may do so for ever: the process must end without it."""


class ResourceExhaustedError(StorageError):
    """The system has no room, or no descriptor, for it now. What was there before is there still, and nothing else."""

    def __init__(self, message: str, *, space: bool) -> None:
        super().__init__(message)
        self.space = space
        """Whether it is room on the disk that is missing."""


class CorruptLogError(StorageError):
    """A replica's files cannot be what this broker wrote, or cannot be read."""

    def __init__(self, key: PartitionKey, reason: str) -> None:
        super().__init__(
            f"replica {key.topic_id}-{key.partition} is corrupt: {reason}; where another replica is complete,"
            " have this one copied again: `regnum partitions reassign` to the others, and back"
        )
        self.key = key
        """Which replica."""
        self.reason = reason
        """What does not fit."""


class NotContiguousError(StorageError):
    """Batches that do not continue the log."""


class OffsetOutOfRangeError(StorageError):
    """A read before the log start or after the log end."""

    def __init__(self, *, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside the log, which goes from {log_start_offset} to {log_end_offset}")
        self.offset = offset
        """Offset asked for."""
        self.log_start_offset = log_start_offset
        """First offset of the log."""
        self.log_end_offset = log_end_offset
        """Offset after its last record."""


class UnknownReplicaError(StorageError):
    """The directory has no such replica."""

    def __init__(self, key: PartitionKey) -> None:
        super().__init__(f"no replica {key.topic_id}-{key.partition} in this directory: create it first")
        self.key = key
        """Which replica."""
