"""What a coordinator writes to its partition, in order, and what waits for it.

Goals: what is done after a write is done when every in-sync replica has it, in the order of the log; the answer to a
call goes out only after everything that was written before it; many writes at once cost one append.

Algorithm: one append is under way at a time; what comes meanwhile waits, and goes together into the next one. An entry
is records and what to do when they are committed; an entry without records is an answer that only waits its turn. An
append whose fate this leader will not learn, or that was refused, ends the log as its coordinator knew it: nothing is
done for what waits, and the coordinator begins again with what the partition has. What was only put off (the storage
has no room at the moment, or too few replicas are in sync) is handed in again until it is taken.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from regnum.types.v1 import errors_pb2
from regnum_records.build import BatchBuilder
from regnum_records.record import NewRecord
from regnum_service.clock import Clock
from regnum_service.slices import Turns

from regnum_broker.serving.produce import OwnAppend

BATCH_BYTES: Final = 1024 * 1024
"""About how many bytes go into one append; an entry that has more goes alone."""

PENDING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of records that may wait."""

CROWDED_BYTES: Final = PENDING_BYTES_MAX // 4
"""While more wait, large records for small calls are put off."""

PENDING_MAX: Final = 20_000
"""Entries that may wait."""

SLICE: Final = 500
"""Records encoded, or entries done, between two turns of the event loop (safety rule S22)."""

AGAIN_S: Final = 0.1
"""Pause before an append that was put off is handed in again."""

STALLED_S: Final = 1.0
"""An append that takes longer holds up what its groups do, and their time (``GroupTime``)."""

RECORD_BYTES: Final = 64
"""What a record takes besides its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One thing that waits."""

    count: int
    """How many records are to be written before it; 0: only what stands before it."""
    make: Callable[[], Iterable[NewRecord]]
    """Gives them, when their turn comes."""
    size_bytes: int
    """About their bytes."""
    then: Callable[[], None]
    """What is done then."""


class GroupLog:
    """The writing end of one partition under one leadership. Belongs to the event loop."""

    def __init__(
        self,
        *,
        append: Callable[[bytes], Awaitable[OwnAppend]],
        spawn: Callable[[str, Coroutine[Any, Any, None]], object],
        failed: Callable[[OwnAppend], None],
        clock: Clock,
    ) -> None:
        """Only assigns.

        Args:
            append: appends a batch and returns when it is committed.
            spawn: starts a supervised task.
            failed: hears that an append was not, or may not have been, committed; nothing is written any more.
            clock: gives records their time.
        """
        self._append: Final = append
        self._spawn: Final = spawn
        self._failed: Final = failed
        self._clock: Final = clock
        self._waiting: Final[deque[_Entry]] = deque()
        self._bytes = 0
        self._busy = False
        self._over = False
        self._appending_since_s: float | None = None
        self.obstacle = ""
        """Why the append that is under way was put off, and is handed in again and again; empty: it was not."""

    @property
    def is_stalled(self) -> bool:
        """Whether an append is under way for longer than one should be."""
        since_s = self._appending_since_s
        return since_s is not None and self._clock.monotonic() - since_s > STALLED_S

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nothing more is taken."""
        return len(self._waiting) >= PENDING_MAX or self._bytes >= PENDING_BYTES_MAX

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits that only what is small, or was brought by its caller, is taken."""
        return self._bytes >= CROWDED_BYTES

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way or waits."""
        return not self._busy and not self._waiting

    def write(self, records: Sequence[NewRecord], then: Callable[[], None]) -> None:
        """Write records, and then do something. Never, once the log is over."""
        size = sum(RECORD_BYTES + len(record.key or b"") + len(record.value or b"") for record in records)
        self._take(_Entry(count=len(records), make=lambda: records, size_bytes=size, then=then))

    def write_made(
        self, count: int, make: Callable[[], Iterable[NewRecord]], *, size_bytes: int, then: Callable[[], None]
    ) -> None:
        """The same with records that are made when their turn comes: many that are small, and known by something else.

        Args:
            count: how many.
            make: makes them; a slice of the loop's time at most (safety rule S22).
            size_bytes: about their bytes, keys and values.
            then: what is done then.
        """
        self._take(_Entry(count=count, make=make, size_bytes=count * RECORD_BYTES + size_bytes, then=then))

    def after(self, then: Callable[[], None]) -> None:
        """Do something when all that was written so far is committed: at once if it is."""
        if self._over:
            return
        if self.is_idle:
            then()
        else:
            self._take(_Entry(count=0, make=tuple, size_bytes=0, then=then))

    def end(self) -> None:
        """Write nothing more, and do nothing of what waits."""
        self._over = True
        self._waiting.clear()
        self._bytes = 0

    def _take(self, entry: _Entry) -> None:
        if self._over:
            return
        self._waiting.append(entry)
        self._bytes += entry.size_bytes
        if not self._busy:
            self._busy = True
            self._spawn("group log", self._drain())

    async def _drain(self) -> None:
        try:
            while self._waiting:
                entries = self._next_entries()
                outcome = await self._written(entries)
                if self._over:
                    return
                if outcome is not None and outcome.code != errors_pb2.ERROR_CODE_NONE:
                    self.end()
                    self._failed(outcome)
                    return
                turns = Turns(SLICE)
                for entry in entries:
                    if self._over:
                        return
                    entry.then()
                    await turns.took(1 + entry.count)
        finally:
            self._busy = False

    def _next_entries(self) -> list[_Entry]:
        entries: list[_Entry] = []
        size = 0
        while self._waiting and (not entries or size + self._waiting[0].size_bytes <= BATCH_BYTES):
            entries.append(self._waiting.popleft())
            size += entries[-1].size_bytes
        self._bytes -= size
        return entries

    async def _written(self, entries: Sequence[_Entry]) -> OwnAppend | None:
        """The outcome of one append; None: there was nothing to write."""
        if not any(entry.count for entry in entries):
            return None
        builder, turns, now_ms = BatchBuilder(bytes_max=2**31 - 1), Turns(SLICE), self._clock.wall_ms()
        for entry in entries:
            for record in entry.make():
                builder.append(key=record.key, value=record.value, timestamp_ms=now_ms)
                await turns.took()
        batch = builder.build()
        self._appending_since_s = self._clock.monotonic()
        try:
            # Whoever ended the log meanwhile has begun to read it.
            while not self._over:
                outcome = await self._append(batch)
                if not outcome.put_off:
                    return outcome
                self.obstacle = outcome.message
                await self._clock.sleep(AGAIN_S)
        finally:
            self._appending_since_s, self.obstacle = None, ""
        return None
