"""What one log remembers of its idempotent producers: states at its end, marks further up, snapshots on the disk."""

from collections.abc import Sequence
from contextlib import suppress

from immutables import Map
from regnum_records.header import BatchHeader

from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.replica.folder import ReplicaFolder
from regnum_broker.log.replica.producers.marks import ProducerMarks
from regnum_broker.log.replica.producers.rebuilding import cut_producers
from regnum_broker.log.replica.producers.snapshots import (
    INTERVAL_BYTES,
    SMALL_BYTES,
    remove_snapshots,
    save_snapshot,
    snapshots_in,
)
from regnum_broker.log.replica.producers.states import ProducerEntry, ProducerStates
from regnum_broker.log.replica.segment import Segment


class ProducerMemory:
    """Belongs to the writer thread."""

    __slots__ = ("_folder", "_marks", "_pays_after_bytes", "_since_snapshot_bytes", "states")

    def __init__(self, folder: ReplicaFolder, states: ProducerStates, marks: ProducerMarks) -> None:
        self._folder = folder
        self._marks = marks
        self._since_snapshot_bytes = 0
        self._pays_after_bytes = 0
        self.states = states
        """What is remembered at the end of the log."""

    @property
    def entries(self) -> Map[int, ProducerEntry]:
        """The same, by producer id; does not change."""
        return self.states.entries

    def apply(self, headers: Sequence[BatchHeader], *, seen_ms: int) -> None:
        """Remember batches that were appended at that time; their heads carry the assigned offsets."""
        for header in headers:
            self.states.apply(header, seen_ms=seen_ms)
            self._marks.note(1, header.next_offset, self.states.entries)

    def expire(self, before_ms: int) -> tuple[int, ...]:
        """Forget who has appended nothing since then; returns their ids."""
        expired = self.states.expire(before_ms)
        self._marks.forget(expired, self.states.entries)
        return expired

    def cut(self, segments: tuple[Segment, ...], *, now_ms: int) -> None:
        """The log was cut and ends with ``segments`` now."""
        # The newest snapshot may be gone: the next is not put off for its size.
        self._pays_after_bytes = 0
        self.states = cut_producers(
            self.states, self._marks, self._folder.path, self._folder.disk, segments, now_ms=now_ms
        )

    def forget_all(self, offset: int) -> None:
        """The log is empty and begins there."""
        remove_snapshots(self._folder.path, self._folder.disk, above=-1)
        self._pays_after_bytes = 0
        self.states, self._marks = ProducerStates(), ProducerMarks(offset)

    def grew(self, size_bytes: int, end_offset: int, segments: tuple[Segment, ...], *, segment_bytes: int) -> None:
        """The log grew by so much: save a snapshot, if it is time. A full disk has no room for what can be made again.

        Args:
            size_bytes: bytes of what was appended.
            end_offset: the end of the log.
            segments: its segments.
            segment_bytes: size at which one of them is closed.
        """
        self._since_snapshot_bytes += size_bytes
        interval_bytes = max(min(INTERVAL_BYTES, segment_bytes // 4), self._pays_after_bytes)
        if self._since_snapshot_bytes >= interval_bytes and self.entries:
            with suppress(ResourceExhaustedError):
                self.save(end_offset, segments)

    def closed(self, end_offset: int, segments: tuple[Segment, ...]) -> None:
        """The last segment was closed: save a snapshot, but for one that is too large for what was appended since.

        Raises:
            ResourceExhaustedError: no room.
            DirectoryFailedError: the disk failed.
        """
        if self._since_snapshot_bytes >= self._pays_after_bytes:
            self.save(end_offset, segments, at_base=True)

    def outlives(self, first_offset: int, last_offset: int) -> bool:
        """Whether a start still knows them when the first segment begins at ``first_offset``, the last at the other.

        It goes from no snapshot of before the first, and after a kill from none within the last.
        """
        saved = snapshots_in(self._folder.path) if self.entries else ()
        return not self.entries or any(first_offset <= offset <= last_offset for offset in saved)

    def save(self, end_offset: int, segments: tuple[Segment, ...], *, at_base: bool = False) -> None:
        """Save a snapshot of the end of the log, where the next segment begins if ``at_base``.

        Raises:
            ResourceExhaustedError: no room.
            DirectoryFailedError: the disk failed.
        """
        self._since_snapshot_bytes = 0
        bases = {segment.base_offset for segment in segments} | ({end_offset} if at_base else set())
        size_bytes = save_snapshot(self._folder.path, self._folder.disk, end_offset, self.states, bases=bases)
        self._pays_after_bytes = size_bytes if size_bytes > SMALL_BYTES else 0
