"""What a broker accepts as a batch."""

from regnum_records.header import BatchHeader


def check_batch(data: bytes, *, bytes_max: int) -> BatchHeader:
    """The head of ``data``, which must be exactly one batch that every reader can read.

    Raises:
        CorruptBatchError: it is not; the message says why.
        BatchTooLargeError: it has more than ``bytes_max`` bytes.
    """
    raise NotImplementedError
