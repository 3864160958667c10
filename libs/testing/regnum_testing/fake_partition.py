"""A partition of the fake cluster: its leadership, and one log that all its brokers share."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from regnum.types.v1 import errors_pb2
from regnum_records.header import SEQUENCE_MAX, BatchHeader, assign, read_header
from regnum_records.read import first_at_or_after, read_records
from regnum_service.errors import Code

NONE = errors_pb2.ERROR_CODE_NONE


@dataclass(slots=True)
class FakePartition:
    """One partition: its leadership and its only log."""

    topic: str
    topic_id: str
    number: int
    leader: int
    leader_epoch: int = 0
    adding: tuple[int, ...] = ()
    """Replicas that brokers say an open reassignment brings in."""
    log_start: int = 0
    batches: list[tuple[BatchHeader, bytes]] = field(default_factory=list)
    known: dict[int, deque[BatchHeader]] = field(default_factory=dict)
    """Last five batches of each producer id."""
    grown: asyncio.Event = field(default_factory=asyncio.Event)
    bytes_max: int = 2**31
    """Larger batches are refused (``max.message.bytes``)."""
    end_questions_refused: int = 0
    """How many more questions for the end a new leader refuses: it does not know what is committed yet."""

    @property
    def end(self) -> int:
        """Log end offset, which is the high watermark too."""
        return self.batches[-1][0].next_offset if self.batches else self.log_start

    def truncate(self, offset: int) -> None:
        """Records from an offset on are lost, as in an unclean election; whole batches only."""
        self.batches = [(header, batch) for header, batch in self.batches if header.next_offset <= offset]

    def diverging(self, epoch: int, offset: int) -> tuple[int, int] | None:
        """Largest epoch up to that one and where it ends, for whoever read up to ``offset`` with it, and wrongly."""
        end = next((header.base_offset for header, _ in self.batches if header.leader_epoch > epoch), self.end)
        known = max((header.leader_epoch for header, _ in self.batches if header.leader_epoch <= epoch), default=epoch)
        return (known, end) if end < offset or known != epoch else None

    def offset_for(self, timestamp_ms: int) -> int:
        """Offset of the first record at or after a moment; -1: none is so young."""
        found = (first_at_or_after(batch, timestamp_ms, from_offset=self.log_start) for _, batch in self.batches)
        return next((one.offset for one in found if one is not None), -1)

    def newest(self) -> tuple[int, int] | None:
        """Offset and timestamp of the first record with the largest timestamp; None: there is none."""
        records = [one for _, batch in self.batches for one in read_records(batch) if one.offset >= self.log_start]
        record = max(records, key=lambda one: one.timestamp_ms, default=None)
        return None if record is None else (record.offset, record.timestamp_ms)

    def append(self, batch: bytes) -> tuple[Code, int]:
        """The check of sequence numbers, and the append."""
        header = read_header(batch)
        last_five: deque[BatchHeader] = deque()
        if header.producer_id >= 0:
            last_five = self.known.setdefault(header.producer_id, deque(maxlen=5))
            for earlier in last_five:
                if (earlier.base_sequence, earlier.last_sequence) == (header.base_sequence, header.last_sequence):
                    return NONE, earlier.base_offset
        if len(batch) > self.bytes_max:
            return errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE, -1
        if last_five and header.base_sequence != (last_five[-1].last_sequence + 1) & SEQUENCE_MAX:
            return errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        stored = bytes(assign(batch, base_offset=self.end, leader_epoch=self.leader_epoch))
        header = read_header(stored)
        self.batches.append((header, stored))
        if header.producer_id >= 0:
            self.known[header.producer_id].append(header)
        self.grown.set()
        self.grown = asyncio.Event()
        return NONE, header.base_offset
