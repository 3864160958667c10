"""Which open reassignments have to be looked at: those that move, and the next of those that wait for a place.

Goals: a look costs what moves and what changed, and nothing for each that waits: there may be a hundred thousand.

Algorithm: a *scan* of all of them, in steps, leaves two things behind: the partitions that are grown, and the first
AHEAD of those that wait, in order. What is asked for, grown or shrunk afterwards is put where it belongs; what waits
behind the first AHEAD stays unseen until these are used up; then a scan goes on behind them. All are scanned when
brokers came or went, or append records again or no more (others may begin then), when topics were taken up from the
store, and every RESCAN_S for what was set aside: what was taken out and could not be written, for one. It must not be
the first again at once, or a thousand partitions whose topic node is damaged would keep all others from moving.
Whatever is taken out is looked at again in the picture, so it does no harm that something here is out of date.

Example: 100,000 wait, 10 may move. One scan; then each look judges the 10, and an arrival takes one from the front. The
next scan comes after AHEAD arrivals: 100 partitions looked at for each of them.
"""

from collections.abc import Callable, Collection
from heapq import heapify, heappop, heappush, nsmallest
from typing import Final

from regnum_model.ids import BrokerId, PartitionKey
from regnum_service.slices import Turns

from regnum_election.decisions.cluster import Cluster, Partition
from regnum_election.reassignment.decisions import is_grown, may_begin
from regnum_election.state.context import ControllerContext

AHEAD: Final = 1_000
"""Partitions that wait and are kept in order."""

RESCAN_S: Final = 30.0
"""Longest time until all are looked at again while any are open."""

PARTITIONS_PER_TURN: Final = 500
"""Reassignments looked at between two turns of the event loop (safety rule S22)."""

Place = tuple[int, str, PartitionKey]
"""Of one that waits: when it was asked for, topic name, partition."""


class OpenMoves:
    """Of one reign. Used by the controller's one task."""

    def __init__(self, context: ControllerContext, refusing: Callable[[], Collection[BrokerId]] = tuple) -> None:
        """Only assigns; ``refusing``: live brokers that append no records."""
        self._context: Final = context
        self._refusing: Final = refusing
        self._refused: Collection[BrokerId] = ()
        """Those of them that the last scan knew."""
        self.grown: Final[dict[PartitionKey, None]] = {}
        """Partitions whose new replicas are assigned; some may have arrived, or be gone."""
        self._ahead: list[Place] = []
        self._last: Place | None = None
        """The last one of those that the scan kept; behind it others wait unseen. None: there are no others."""
        self._brokers: object = None
        self._found = -1
        self._scanned_s = 0.0
        self._doubtful = False
        self.scans = 0
        """How often all were looked at."""

    async def keep_up(self) -> None:
        """Look at all of them if that is due."""
        context, picture = self._context, self._context.picture
        if not picture.reassigning:
            return
        other = self._brokers is not picture.brokers or self._found != picture.moves_found
        other = other or self._refused != self._refusing()
        late = context.clock.monotonic() - self._scanned_s >= RESCAN_S
        if other or late or self._doubtful:
            self._brokers, self._found, self._refused = picture.brokers, picture.moves_found, self._refusing()
            self._scanned_s = context.clock.monotonic()
            await self._scan(behind=None)
        elif not self._ahead and self._last is not None:
            await self._scan(behind=self._last)

    async def _scan(self, *, behind: Place | None) -> None:
        """Look at all; ``behind``: only those that wait behind this one are taken up, None: the first."""
        context = self._context
        picture = context.picture
        self.scans += 1
        self._doubtful, self._last = False, None
        self.grown.clear()
        waiting: list[Place] = []
        turns = Turns(PARTITIONS_PER_TURN)
        for key in picture.reassigning:
            await turns.took()
            partition = picture.partitions.get(key)
            if partition is None or partition.reassignment is None:
                continue
            if key in context.unverified:
                self._doubtful = True
            elif is_grown(partition):
                self.grown[key] = None
            elif may_begin(partition, picture.brokers, self._refused):
                place = _place(picture, key, partition)
                if behind is None or place > behind:
                    waiting.append(place)
                if len(waiting) >= 2 * AHEAD:
                    # Never all of them at once.
                    waiting = nsmallest(AHEAD, waiting)
                    self._last = waiting[-1]
        if len(waiting) > AHEAD:
            waiting = nsmallest(AHEAD, waiting)
            self._last = waiting[-1]
        elif self._last is not None and waiting:
            self._last = max(waiting)
        heapify(waiting)
        self._ahead = waiting

    def note(self, key: PartitionKey) -> None:
        """The topic node says something else of a partition."""
        picture = self._context.picture
        partition = picture.partitions.get(key)
        if partition is None or partition.reassignment is None:
            self.grown.pop(key, None)
        elif is_grown(partition):
            self.grown[key] = None
        else:
            self.grown.pop(key, None)
            place = _place(picture, key, partition)
            if self._last is None or place < self._last:
                heappush(self._ahead, place)

    def next(self) -> PartitionKey | None:
        """Take the next out that waits and may begin; None: there is none."""
        context, picture = self._context, self._context.picture
        while self._ahead:
            _, _, key = heappop(self._ahead)
            partition = picture.partitions.get(key)
            if partition is None or partition.reassignment is None or is_grown(partition):
                continue
            if key in context.unverified:
                self._doubtful = True
            elif may_begin(partition, picture.brokers, self._refused):
                return key
        return None


def _place(picture: Cluster, key: PartitionKey, partition: Partition) -> Place:
    move = partition.reassignment
    if move is None:
        raise AssertionError("only open reassignments wait")
    return move.since_ms, picture.topics[key.topic_id].name, key
