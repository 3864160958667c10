"""Reading the records of batches, with aiokafka's compiled codec."""

from collections.abc import Iterator

from regnum_records.header import Buffer
from regnum_records.record import Record


def read_records(buffer: Buffer, *, from_offset: int = 0) -> Iterator[Record]:
    """The records of all complete batches in ``buffer`` with offsets from ``from_offset`` on; a torn tail is left out.

    Raises:
        CorruptBatchError: a batch is bad; ``base_offset`` says which, and reading can go on at ``next_offset``.
    """
    raise NotImplementedError
