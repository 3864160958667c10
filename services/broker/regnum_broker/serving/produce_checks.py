"""Batches that are checked beside the writer, in turn by who brought them.

Goals: what one caller sends to be unpacked and looked at costs the others one piece of that work at most, and the
writer nothing; the batches that a caller sends to a partition are appended in the order in which they came.

Constraints: to hand something to another thread takes longer than to check a small batch without compression. What a
batch unpacks to is not known before, but how much that may be at most.

Algorithm: a batch whose check is bounded by few bytes goes to the writer and is checked there. Any other one stands in
the line of its caller, and so does whatever the caller sends to that partition behind it. The lines take turns on a few
threads (``TurnsOfCallers``), one piece of PIECE_S of a line at a time, and a line never has two turns at once: so what
it hands to the writer stays in order.

Before a piece is begun, room is reserved for the largest that one of its batches is expected to unpack to; one that has
more is left for the next piece, with more room, up to what the settings of its topic allow. The room is the budget's
for what is unpacked, and it is waited for: others have it for a piece.

What its caller waits for no longer is not checked, and not appended. A producer that does not wait for the answer
(acks=0) has its request under way until the line has let it through: what stands in line is counted somewhere.

Example: a caller sends a thousand batches of two kilobytes that unpack to eight megabytes each. They are checked one by
one, and between two of them everybody else has a turn.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from itertools import islice
from typing import Final

from regnum_model.ids import PartitionKey
from regnum_records.header import CODEC_MASK, HEADER_BYTES
from regnum_service.clock import Clock
from regnum_service.errors import Code
from regnum_service.limits.call import OWN, Call
from regnum_service.limits.held_bytes import HeldBytes, Holding, Purpose
from regnum_service.limits.turns_of_callers import TurnsOfCallers
from regnum_service.supervisor import Supervisor

from regnum_broker.serving.produce_appends import LET_GO, Admitted, Refused, check_some, rules_of
from regnum_broker.serving.produce_requests import Acks
from regnum_broker.storage import CHECKERS, Storage

SMALL_BYTES: Final = 32 * 1024
"""Up to so large a batch without compression is checked on the writer thread: 10 µs, or 2 ms if it was made to it."""

PIECE_S: Final = 0.005
"""For so long a caller has a thread at a time, or for one batch."""

PIECE_MAX: Final = 200
"""Batches of one piece (safety rule S22)."""

EXPECTED_BYTES_MIN: Final = 1024 * 1024
"""To so much any compressed batch may unpack before it is looked at with more room."""

GROWTH: Final = 8
"""To so many times its bytes a compressed batch is expected to unpack; the next try has so many times as much room."""

_ATTRIBUTES_LOW_BYTE: Final = 22


def is_small(item: Admitted) -> bool:
    """Whether a batch is checked so soon that to hand it to another thread would take longer."""
    if item.size_bytes > SMALL_BYTES:
        return False
    batch = item.message.record_batch
    return bool(batch) and (len(batch) < HEADER_BYTES or not batch[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK)


class Line:
    """What one caller has brought. For ``BatchChecks``; others hand it on only."""

    __slots__ = ("call", "is_checked", "items", "partitions")

    def __init__(self, call: Call) -> None:
        self.call: Final = call
        """Whose turn it takes."""
        self.items: Final[deque[Admitted]] = deque()
        """Those that are not checked."""
        self.partitions: Final[Counter[PartitionKey]] = Counter()
        """Where they, and those that come behind and go to the writer from here, are to be appended."""
        self.is_checked = False
        """Whether there is a task that does."""


class BatchChecks:
    """The lines of all callers. Belongs to the event loop."""

    def __init__(
        self,
        *,
        storage: Storage,
        clock: Clock,
        bytes_max: int,
        unpacked: HeldBytes,
        hand_in: Callable[[Sequence[Admitted]], Awaitable[None]],
        refuse: Callable[[Admitted, Code, str], None],
        supervisor: Supervisor,
    ) -> None:
        """Only assigns.

        Args:
            storage: has the threads, and their turns.
            clock: measures the work.
            bytes_max: largest batch where the topic has no limit of its own.
            unpacked: has the room for what is unpacked.
            hand_in: hands to the writer what was checked.
            refuse: told what is refused, with code and reason.
            supervisor: has a task for each line.
        """
        self._storage: Final = storage
        self._clock: Final = clock
        self._bytes_max: Final = bytes_max
        self._unpacked: Final = unpacked
        self._hand_in: Final = hand_in
        self._refuse: Final = refuse
        self._supervisor: Final = supervisor
        self._turns: Final = TurnsOfCallers(CHECKERS)
        self._lines: Final[dict[str, Line]] = {}
        self.size_bytes = 0
        """Bytes of batches that stand in line."""

    def line_of(self, item: Admitted) -> Line | None:
        """Where a batch has to stand, so what comes behind it for its partition has to as well; None: nowhere.

        Whoever asks calls ``enter`` when those before it are with the writer.
        """
        payer, partition = item.call.payer, item.leadership.partition
        line = self._lines.get(payer)
        behind = line is not None and partition.key in line.partitions
        if not behind and not partition.log.settings.is_compacted and is_small(item):
            return None
        if line is None:
            line = self._lines[payer] = Line(item.call)
        line.partitions[partition.key] += 1
        self.size_bytes += item.size_bytes
        item.in_line = True
        return line

    def enter(self, line: Line, items: Sequence[Admitted]) -> None:
        """Have batches stand in a line; they are handed to the writer, or refused."""
        line.items.extend(items)
        if not line.is_checked:
            line.is_checked = True
            self._supervisor.start("produce: checks", self._go_on(line))

    async def check_own(self, item: Admitted) -> Refused | None:
        """Check a batch of the broker's own, of which its partition has no other; returns why it is refused."""
        if is_small(item):
            return None
        while not (outcomes := await self._check(OWN, (item,))):
            # It unpacks to more than was expected.
            pass
        return outcomes[0]

    async def _go_on(self, line: Line) -> None:
        while line.items:
            # What was let go of meanwhile is passed over by the thread.
            piece = tuple(islice(line.items, PIECE_MAX))
            outcomes = await self._check(line.call, piece)
            kept: list[Admitted] = []
            # (What was not done in this piece is in the next.)
            for item, outcome in zip(piece, outcomes, strict=False):
                line.items.popleft()
                self.size_bytes -= item.size_bytes
                item.charge()
                item.in_line = False
                if item.message is LET_GO:
                    self._leave(line, item)
                elif outcome is not None:
                    self._refuse(item, outcome.code, outcome.message)
                    self._leave(line, item)
                else:
                    kept.append(item)
            if kept:
                await self._hand_in(kept)
            for item in kept:
                self._leave(line, item)
        line.is_checked = False
        if not line.partitions:
            del self._lines[line.call.payer]

    async def _check(self, call: Call, items: Sequence[Admitted]) -> list[Refused | None]:
        """On a thread, when it is a caller's turn, within room that is reserved before."""
        async with self._turns.turn(call.payer):
            room_bytes = max(self._expected_bytes(item) for item in items)
            with closing(Holding.of(call, self._unpacked, Purpose.UNPACKED)) as room:
                await room.wait_for(room_bytes)
                return await self._storage.check(
                    lambda: check_some(
                        items,
                        bytes_max=self._bytes_max,
                        room_bytes=room_bytes,
                        now_s=self._clock.monotonic,
                        piece_s=PIECE_S,
                    )
                )

    def _expected_bytes(self, item: Admitted) -> int:
        """Room that the check of a batch is begun with."""
        expected = max(EXPECTED_BYTES_MIN, GROWTH * item.size_bytes, GROWTH * item.unpacks_to_more_than)
        return min(expected, rules_of(item.leadership.partition, self._bytes_max).unpacked_bytes_max)

    def _leave(self, line: Line, item: Admitted) -> None:
        key = item.leadership.partition.key
        line.partitions[key] -= 1
        if not line.partitions[key]:
            del line.partitions[key]
        if item.through is not None:
            item.through.set()


async def all_through(items: Sequence[Admitted]) -> None:
    """Return when those of one caller that stand in line have been let through; nobody else waits for them."""
    waiting = [item for item in items if item.in_line]
    if waiting:
        # A line keeps its order.
        last = waiting[-1]
        last.through = asyncio.Event()
        await last.through.wait()


def waits_for_nothing(items: Sequence[Admitted]) -> bool:
    """Whether the producer of these gets its answer at once."""
    return any(item.pending is not None and item.pending.acks == Acks.NONE for item in items)
