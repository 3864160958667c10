"""What can be wrong with record batches.

RecordBatchError
├── CorruptBatchError     the bytes are not one valid batch (or one of several is not)
│   ├── InvalidRecordError    the checksum is right, and a record is none that readers can decode
│   └── UnpackingError        its records do not decompress, or to more than was allowed
│       └── UnpackedTooLargeError    they decompress to more than was allowed
├── KeyMissingError       the batch is valid, but has a record without a key, and its topic takes none
└── BatchTooLargeError    the batch is valid as far as it was read, but larger than allowed
"""


class RecordBatchError(ValueError):
    """A batch that cannot be taken. The message says what is wrong with it."""


class CorruptBatchError(RecordBatchError):
    """Bytes that are not a valid batch."""

    def __init__(self, message: str, *, base_offset: int | None = None, next_offset: int | None = None) -> None:
        super().__init__(message)
        self.base_offset = base_offset
        """Offset at which the bad batch begins. None: not readable."""
        self.next_offset = next_offset
        """Where a reader that skips the bad batch goes on. None: its extent is not known."""


class UnpackingError(CorruptBatchError):
    """A batch whose records do not decompress, or to more bytes than there was room for."""


class UnpackedTooLargeError(UnpackingError):
    """A batch whose records decompress to more bytes than are allowed; no more of them was decompressed."""


class InvalidRecordError(CorruptBatchError):
    """A batch with the right checksum and a malformed record: so it was made. The message says which and how."""


class KeyMissingError(RecordBatchError):
    """A batch with a record without a key, for a topic in which every record has one."""


class BatchTooLargeError(RecordBatchError):
    """A batch above the size that the receiver allows."""

    def __init__(self, *, size_bytes: int, bytes_max: int) -> None:
        super().__init__(f"the batch has {size_bytes} bytes, at most {bytes_max} are allowed: send smaller batches")
        self.size_bytes = size_bytes
        """Size of the batch."""
        self.bytes_max = bytes_max
        """Largest size allowed."""
