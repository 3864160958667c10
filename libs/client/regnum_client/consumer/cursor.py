"""Where a consumer stands in one partition. Pure.

``position`` is the next record of the application, ``fetch_offset`` the next one to ask a broker for; between them
lie the chunks that were fetched and not yet read. ``seek`` starts a new generation: what was asked for before it is
not taken any more.
"""

from collections import deque
from typing import Final, NamedTuple

from regnum_model.ids import TopicId
from regnum_records.header import iterate
from regnum_service.errors import RegnumError

from regnum_client.consumer.read_epochs import ReadEpochs
from regnum_client.consumer.read_place import ReadPlace
from regnum_client.errors import NoOffsetForPartitionError
from regnum_client.producer.trouble import Trouble
from regnum_client.records import TopicPartition


class Chunk(NamedTuple):
    """Batches of one answer."""

    buffer: bytes
    """Record batches v2; the first may begin before ``from_offset``."""
    from_offset: int
    """First offset wanted."""
    next_offset: int
    """Offset after the last batch."""


class Cursor:
    """State of one assigned partition."""

    __slots__ = (
        "_chunks",
        "error",
        "fetch_offset",
        "generation",
        "in_flight",
        "partition",
        "paused",
        "place",
        "position",
        "read_epochs",
        "topic_id",
        "trouble",
        "unread_bytes",
    )

    def __init__(
        self, partition: TopicPartition, topic_id: TopicId, offset: int, *, leader_epoch: int | None = None
    ) -> None:
        """``leader_epoch``: of the record before ``offset``, where that is known."""
        self.partition: Final = partition
        self.topic_id: Final = topic_id
        """Life of the topic: offsets mean nothing in another."""
        self.position = offset
        self.fetch_offset = offset
        self.read_epochs: Final = ReadEpochs()
        """Of what was fetched."""
        self.read_epochs.start_over(offset, leader_epoch)
        self.place: Final = ReadPlace()
        """Which replica it is read from."""
        self.generation = 0
        self.in_flight = False
        """A fetch is under way."""
        self.paused = False
        """Neither fetched nor read until it goes on."""
        self.error: RegnumError | None = None
        """Raised to the reader until a ``seek``; nothing is fetched meanwhile."""
        self.trouble: Final = Trouble()
        self.unread_bytes = 0
        """Size of the chunks that nobody has begun to read."""
        self._chunks: deque[Chunk] = deque()

    def wants_more(self, chunks_max: int) -> bool:
        """A fetch should be sent."""
        return not (self.in_flight or self.paused) and self.error is None and len(self._chunks) < chunks_max

    @property
    def has_place(self) -> bool:
        """Its position says something; False: nobody has said yet where it begins."""
        return not isinstance(self.error, NoOffsetForPartitionError)

    @property
    def last_fetched_epoch(self) -> int | None:
        """Leader epoch of the last record before ``fetch_offset``; None: not known."""
        return self.read_epochs.before(self.fetch_offset)

    def seek(self, offset: int, *, leader_epoch: int | None = None) -> None:
        """Go on at an offset, behind a record of that epoch; everything fetched is forgotten."""
        self._go_to(offset)
        self.read_epochs.start_over(offset, leader_epoch)

    def go_back(self, offset: int) -> None:
        """Go on at an offset up to which everything was fetched; what was fetched from there on is forgotten."""
        self._go_to(offset)
        self.read_epochs.cut(offset)

    def _go_to(self, offset: int) -> None:
        self.position = self.fetch_offset = offset
        self.generation += 1
        self.in_flight = False
        self.error = None
        self._chunks.clear()
        self.unread_bytes = 0

    def go_on_at(self, offset: int) -> None:
        """Fetch on at an offset, because the log has nothing at ``fetch_offset``; what was fetched stays to be read."""
        if self.position == self.fetch_offset:
            self.position = offset
        self.fetch_offset = offset
        self.read_epochs.start_over(offset, None)

    def take_in(self, buffer: bytes) -> bool:
        """Batches came from ``fetch_offset`` on. False: there was no record at or after it."""
        next_offset = self.fetch_offset
        for _, header in iterate(buffer):
            if header.next_offset > self.fetch_offset:
                self.read_epochs.saw(header.leader_epoch, max(header.base_offset, self.fetch_offset))
            next_offset = header.next_offset
        if next_offset <= self.fetch_offset:
            return False
        self._chunks.append(Chunk(buffer, self.fetch_offset, next_offset))
        self.unread_bytes += len(buffer)
        self.fetch_offset = next_offset
        return True

    def next_chunk(self) -> Chunk | None:
        """The oldest unread chunk, which is then the reader's."""
        if not self._chunks:
            return None
        chunk = self._chunks.popleft()
        self.unread_bytes -= len(chunk.buffer)
        return chunk

    @property
    def has_chunk(self) -> bool:
        """There is an unread chunk."""
        return bool(self._chunks)
