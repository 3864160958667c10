"""What leaders appended last, for followers that wait at the end of their logs.

Goals: a record on its way to a follower that keeps up is not read from its file, by another thread, when it is in
memory already; memory is bounded by bytes, however many partitions are led.

Algorithm: for each leadership the newest batches, one after another without a gap. Who asks for an offset at which one
of them begins gets it and those behind it; who asks for any other reads the log. A leader never truncates, so what was
appended under a leadership is in the log for as long as it lasts; whoever sends it makes sure that it still does. The
leaderships that have not appended for longest make room.
"""

from collections import OrderedDict, deque
from typing import Final, NamedTuple

from regnum_records.header import ASSIGNED_BYTES, assigned_prefix

from regnum_broker.replication.leader import Leadership

BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of all batches that are kept."""

EACH_BYTES_MAX: Final = 2 * 1024 * 1024
"""The same of one leadership; a batch that has more alone is not kept."""


class Batches(NamedTuple):
    """Whole batches, one after another."""

    data: bytes
    """They themselves; empty: none."""
    end_offset: int
    """Offset after their last record; where there are none, the one that was asked for."""


NO_BATCHES: Final = Batches(b"", -1)
"""Where nothing was asked for."""


class _Fresh(NamedTuple):
    """One batch as it is in the log."""

    base_offset: int
    next_offset: int
    data: bytes


class FreshAppends:
    """Of all partitions that a broker leads. Belongs to the event loop."""

    def __init__(self, *, bytes_max: int = BYTES_MAX, each_bytes_max: int = EACH_BYTES_MAX) -> None:
        """Only assigns."""
        self._bytes_max: Final = bytes_max
        self._each_bytes_max: Final = each_bytes_max
        self._kept: Final = OrderedDict[Leadership, deque[_Fresh]]()
        self._bytes: Final[dict[Leadership, int]] = {}
        self.size_bytes = 0
        """Bytes that are kept."""

    def note(self, leadership: Leadership, batch: bytes, *, base_offset: int, last_offset: int) -> None:
        """A producer's batch was appended there, under this leadership."""
        kept = self._kept.get(leadership)
        if kept is not None and kept[-1].next_offset != base_offset:
            self._forget(leadership)
            kept = None
        size = len(batch)
        if size > self._each_bytes_max:
            if kept is not None:
                self._forget(leadership)
            return
        prefix = assigned_prefix(batch, base_offset=base_offset, leader_epoch=leadership.state.leader_epoch)
        fresh = _Fresh(base_offset, last_offset + 1, b"".join((prefix, memoryview(batch)[ASSIGNED_BYTES:])))
        if kept is None:
            kept = self._kept[leadership] = deque()
            self._bytes[leadership] = 0
        kept.append(fresh)
        self._kept.move_to_end(leadership)
        self._count(leadership, size)
        while self._bytes[leadership] > self._each_bytes_max:
            self._count(leadership, -len(kept.popleft().data))
        while self.size_bytes > self._bytes_max:
            self._forget(next(iter(self._kept)))

    def read(self, leadership: Leadership, offset: int, bytes_max: int) -> Batches:
        """Whole batches from that offset on, at least one if the first is here; nothing: read the log."""
        kept = self._kept.get(leadership)
        if kept is None or not kept[0].base_offset <= offset < kept[-1].next_offset:
            return Batches(b"", offset)
        end = offset
        found: list[bytes] = []
        size = 0
        for fresh in kept:
            if fresh.base_offset < offset:
                continue
            if (not found and fresh.base_offset != offset) or (found and size + len(fresh.data) > bytes_max):
                break
            found.append(fresh.data)
            size += len(fresh.data)
            end = fresh.next_offset
        return Batches(found[0] if len(found) == 1 else b"".join(found), end)

    def _forget(self, leadership: Leadership) -> None:
        del self._kept[leadership]
        self.size_bytes -= self._bytes.pop(leadership)

    def _count(self, leadership: Leadership, size_bytes: int) -> None:
        self._bytes[leadership] += size_bytes
        self.size_bytes += size_bytes
