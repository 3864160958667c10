"""The event log of one election process: what its own reign decides, and what the controller that it follows wrote.

Goals: a failover never waits for the log; every election process has it, on any store; it survives kills, full disks
and unwritable directories, and says what it could not keep.

Constraints: no file is touched on the event loop (safety rule S22). It decides nothing: nobody reads it but people.

Algorithm: entries are queued on the loop as they are, without being encoded; a thread takes all that wait every
BATCH_S, encodes each once, appends them to the segments, and keeps the newest encoded for those who follow. What does
not fit the queue is dropped and counted, and the next entry that is written is one that says how many. While the
directory cannot be written the newest entries are in memory only, and it is tried again every ``Limits.retry_s``, also
while nothing happens. Another thread reads: where the disk hangs, those who ask for events wait, and nobody else.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Final

import structlog
from google.protobuf.message import DecodeError
from regnum.admin.v1 import events_pb2
from regnum.types.v1 import events_pb2 as words
from regnum_model.ids import ControllerEpoch
from regnum_service.clock import Clock
from regnum_service.limits.threads import in_turn
from regnum_service.limits.turns_of_callers import TurnsOfCallers
from regnum_service.pools import DaemonThread
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Metrics

from regnum_election.history.encoding import EventFilter, decode, encode, first_of, last_of, size_of
from regnum_election.history.events import BEGINNING, Entry, OtherEntry, Position, Reason, weight_of
from regnum_election.history.missing import LoggedLeaders, logged_leaders
from regnum_election.history.search import Found, backwards, forwards
from regnum_election.history.segments import Limits, Record, Segments
from regnum_election.history.unfinished import changes_in
from regnum_election.reign.witnesses import Earlier

BATCH_S: Final = 0.05
"""How long entries wait for others."""

CATCH_UP_BYTES: Final = 8 * 2**20
"""What a standby is sent that comes late, about; what is older it does without."""

GENTLE_BYTES: Final = 64 * 2**10
"""What a search looks at between two pauses."""

GENTLE_S: Final = 0.001
"""Such a pause: as long as the loop takes to get the interpreter."""

LOOKED_AT_MAX: Final = 64
"""Entries in which changes of an earlier reign are looked for."""

SHORT_BYTES: Final = 2048
"""Length of those that are read for it."""

PORTION_BYTES: Final = 256 * 2**10
"""What it is sent at a time, about."""


class EventLog:
    """Of one process. Its methods belong to the event loop, but for those that say that they block."""

    def __init__(
        self, clock: Clock, limits: Limits | None = None, make_thread: Callable[[str], Executor] = DaemonThread
    ) -> None:
        """Only assigns. ``make_thread``: one for which the end of the process does not wait, as a disk may hang."""
        self._searches: Final = TurnsOfCallers(1)
        self._clock: Final = clock
        self._limits: Final = limits or Limits()
        self._make_thread: Final = make_thread
        self._lock: Final = threading.Lock()
        self._queue: deque[Entry | Record] = deque()
        self._queued = 0
        self._dropped_since: Entry | None = None
        """The first entry of one reign that was dropped since the last that was not."""
        self._dropped_now = 0
        self._due = False
        """Whether the thread is to write what is queued, or will be told to."""
        self._segments: Segments | None = None
        self._retry_s = 0.0
        """When a directory that cannot be written is tried again."""
        self._recent: deque[Record] = deque()
        self._recent_bytes = 0
        self._thread: Executor | None = None
        self._reader: Executor | None = None
        """None, as while the log is closed: reading takes threads of the event loop."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened: asyncio.Event = asyncio.Event()
        self._waiting: dict[asyncio.Event, None] = {}
        self._log = structlog.get_logger("event-log")
        self._refused = 0
        """Events that found the queue full; the loop counts them."""
        self._forgotten = 0
        """Events that left memory before the directory could be written; the thread counts them."""
        self.written = 0
        """Events that were, to disk or while it fails to memory."""
        self.disk_errors = 0
        """Attempts at the directory that failed."""
        self.on_disk = False
        """Whether what is written is on disk."""

    @property
    def dropped(self) -> int:
        """Events that are not in the log, since the process started: it was too slow, or its directory refused."""
        return self._refused + self._forgotten

    def show(self, metrics: Metrics) -> None:
        """Let the metrics read what became of events."""
        metrics.observe(instruments.EVENTS_WRITTEN, lambda: self.written)
        metrics.observe(instruments.EVENTS_DROPPED, lambda: self.dropped)
        metrics.observe(instruments.EVENT_LOG_ON_DISK, lambda: float(self.on_disk))

    def open(self, folder: Path | None) -> None:
        """Begin to write, into that folder; None: only to memory."""
        self._loop = asyncio.get_running_loop()
        self._segments = None if folder is None else Segments(folder, self._limits)
        self._reader = self._make_thread("event-log-reader")
        self._thread = thread = self._make_thread("event-log")
        thread.submit(self._run, self._begin)
        self._write_soon()

    async def close(self) -> None:
        """Write what waits, for a second at most, and end."""
        thread, reader = self._thread, self._reader
        self._thread = self._reader = None
        if thread is not None and reader is not None:
            reader.shutdown(wait=False)
            ended = asyncio.wrap_future(thread.submit(self._run, self._end))
            thread.shutdown(wait=False)
            await asyncio.wait([ended], timeout=1.0)

    async def ready(self) -> None:
        """Return when what was there has been found."""
        await self._opened.wait()

    # What the controller does.

    def append(self, entry: Entry) -> None:
        """Take an entry of this process's own reign."""
        weight = weight_of(entry)
        if self._queued + weight > self._limits.queued_events:
            if self._dropped_since is None or self._dropped_since.position.epoch != entry.position.epoch:
                self._dropped_since, self._dropped_now = entry, 0
                self._log.error("events dropped", advice="the disk of this election process is too slow for its log")
            self._dropped_now += weight
            self._refused += weight
            return
        with self._lock:
            self._queue.extend(_gap(self._dropped_since, self._dropped_now, entry))
            self._dropped_since, self._dropped_now = None, 0
            self._queue.append(entry)
            self._queued += weight
        self._write_soon()

    def _write_soon(self) -> None:
        """Have the thread write what is queued, and what others bring meanwhile."""
        if self._thread is not None and self._loop is not None and self._queue and not self._due:
            self._due = True
            self._loop.call_later(BATCH_S, self._hand_in)

    def _hand_in(self) -> None:
        # The end has written what there was.
        if self._thread is not None:
            self._thread.submit(self._run, self._write_queued)

    # What a standby does.

    @property
    def last(self) -> Position:
        """Place of the last event that is written."""
        with self._lock:
            recent = self._recent[-1].last if self._recent else BEGINNING
        return max(recent, BEGINNING if self._segments is None else self._segments.last)

    def take(self, entries: Sequence[bytes]) -> Position:
        """Take entries of the controller that is followed; returns the place behind them. Raises DecodeError.

        What does not fit the queue is dropped and counted: a standby's disk that is so slow does without.
        """
        last = BEGINNING
        for payload in entries:
            entry = decode(payload)
            if entry.number < 1 or entry.controller_epoch < 1:
                raise DecodeError("an entry has no place")
            record = Record(first=first_of(entry), events=size_of(entry), payload=payload)
            with self._lock:
                if self._queued + record.events > self._limits.queued_events:
                    self._refused += record.events
                    continue
                self._queue.append(record)
                self._queued += record.events
            self._write_soon()
            last = last_of(entry)
        return last

    # What readers do.

    def wake_on_news(self, event: asyncio.Event) -> Callable[[], None]:
        """Set an event whenever something was written; returns what ends that."""
        self._waiting[event] = None
        return lambda: self._waiting.pop(event, None)

    async def entries_after(self, position: Position) -> Sequence[Record]:
        """What lies behind a place, a portion of it; of very much only the newest."""
        newer = self._newer(position)
        if newer is not None:
            return _portion(iter(newer))
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._entries_after, position)

    def _newer(self, position: Position) -> Sequence[Record] | None:
        """All records with events behind a place, from memory; None: it lies before what memory has."""
        newer: list[Record] = []
        with self._lock:
            if not self._recent or position < self._recent[0].first:
                return None
            # Whoever follows is near the end.
            for record in reversed(self._recent):
                if record.last <= position:
                    break
                newer.append(record)
        newer.reverse()
        return newer

    async def search(
        self, said: events_pb2.DescribeEventsRequest, *, limit: int, after: Position | None, before: Position | None
    ) -> Found:
        """Events that a caller asks for, one search at a time: the processor is for failovers. Raises OSError."""
        search = partial(self._search, EventFilter(said.filter), limit, after, before)
        return await in_turn(search, self._reader, self._searches)

    async def leaders_before(self, reign: ControllerEpoch) -> LoggedLeaders | None:
        """What the newest part of the log says of leaders, without that reign's own events; None: it says nothing.

        Waits until that reign's first event is written, and with it whatever was taken before. Raises OSError.
        """
        first, news = Position(reign, 1), asyncio.Event()
        unheard = self.wake_on_news(news)
        try:
            while self.last < first:
                await news.wait()
                news.clear()
        finally:
            unheard()
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._leaders, first)

    def _leaders(self, before: Position) -> LoggedLeaders | None:
        """Blocks."""
        return logged_leaders(record.payload for record in _gently(self._backwards(before)))

    def _entries_after(self, position: Position) -> Sequence[Record]:
        """Blocks."""
        segments = self._segments
        start = position if segments is None else max(position, segments.newest(CATCH_UP_BYTES))
        return _portion(self._forwards(start))

    def _search(self, chosen: EventFilter, limit: int, after: Position | None, before: Position | None) -> Found:
        """Blocks."""
        if after is not None:
            return forwards(_gently(self._forwards(after)), chosen, after=after, limit=limit)
        return backwards(_gently(self._backwards(before)), chosen, before=before, limit=limit)

    def _forwards(self, after: Position) -> Iterator[Record]:
        segments, newer = self._segments, self._newer(after)
        if newer is None:
            for record in () if segments is None else segments.forwards(after):
                after = record.last
                yield record
            with self._lock:
                newer = [record for record in self._recent if record.last > after]
        yield from newer

    def _backwards(self, before: Position | None) -> Iterator[Record]:
        segments = self._segments
        with self._lock:
            recent = tuple(self._recent)
        newer = (record for record in reversed(recent) if before is None or record.first < before)
        # What memory has is not read again.
        oldest = recent[0].first if recent else None
        rest = before if oldest is None or (before is not None and before < oldest) else oldest
        older = iter(()) if segments is None else segments.backwards(rest)
        return chain(newer, older)

    def changes_before(self, reign: ControllerEpoch, since_unix_ms: int) -> tuple[Earlier, ...]:
        """Traced changes of leadership that earlier reigns began since then, each once, as far as memory knows.

        It looks at the newest short entries only, since a reign waits for it.
        """
        with self._lock:
            waiting = [item for item in self._queue if isinstance(item, Record)]
            newest = [*islice(reversed(waiting), LOOKED_AT_MAX), *islice(reversed(self._recent), LOOKED_AT_MAX)]
        payloads = [record.payload for record in newest if len(record.payload) <= SHORT_BYTES]
        return changes_in(payloads, before=reign, since_unix_ms=since_unix_ms)

    # The thread.

    def _run(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException:
            # A defect: nothing is written any more, and what comes finds the queue full, and is counted.
            self.on_disk, self._due = False, True
            self._log.exception("event log ended")
            raise

    def _begin(self) -> None:
        try:
            if self._segments is not None:
                self._segments.open()
                self.on_disk = True
        except OSError as error:
            self._failed(error)
        self._tell(self._opened.set)

    def _write_queued(self) -> None:
        with self._lock:
            taken, self._queue, self._queued = self._queue, deque(), 0
            self._due = False
        self._write(taken)

    def _end(self) -> None:
        self._write_queued()
        if self._segments is not None:
            self._segments.close()

    def _write(self, taken: Sequence[Entry | Record]) -> None:
        records: list[Record] = []
        last = self.last
        for item in taken:
            record = item if isinstance(item, Record) else _recorded(item)
            if record.first <= last:
                if isinstance(item, Record):
                    # A repeat, or from a controller that does not know yet that it was replaced.
                    continue
                last = self._set_back(records)
            last = record.last
            records.append(record)
        self._store(records)
        with self._lock:
            for record in records:
                self._recent.append(record)
                self._recent_bytes += len(record.payload)
            while self._recent_bytes > self._limits.memory_bytes and len(self._recent) > 1:
                oldest = self._recent.popleft()
                self._recent_bytes -= len(oldest.payload)
                if self._segments is not None and oldest.first > self._segments.last:
                    self._forgotten += oldest.events
        self.written += sum(record.events for record in records)
        if records:
            self._tell(self._news)

    def _store(self, records: Sequence[Record]) -> None:
        segments = self._segments
        if segments is None or (not records if self.on_disk else self._clock.monotonic() < self._retry_s):
            return
        try:
            if not self.on_disk:
                segments.open()
            segments.append(self._missing(segments, records))
        except OSError as error:
            self._failed(error)
        else:
            if not self.on_disk:
                self._log.info("event log is on disk again")
            self.on_disk = True

    def _missing(self, segments: Segments, records: Sequence[Record]) -> Sequence[Record]:
        """What is not on disk: after a failure also what was in memory only."""
        last = segments.last
        with self._lock:
            recent = tuple(self._recent)
        return [record for record in (*recent, *records) if record.first > last]

    def _failed(self, error: OSError) -> None:
        self.disk_errors += 1
        if self.on_disk or self.disk_errors == 1:
            self._log.error(
                "event log cannot be written; the newest events are in memory only",
                reason=str(error),
                advice="free space in, or permit writing to, the run directory of this election process",
            )
        self.on_disk = False
        self._retry_s = self._clock.monotonic() + self._limits.retry_s
        self._tell(lambda: asyncio.get_running_loop().call_later(self._limits.retry_s, self._hand_in))

    def _set_back(self, records: list[Record]) -> Position:
        """Places begin again: the store was set back, and what is known is of another history."""
        self._log.warning("event log begins anew", reason="controller epochs went back: was the store restored?")
        records.clear()
        with self._lock:
            self._recent.clear()
            self._recent_bytes = 0
        if self._segments is not None:
            try:
                self._segments.begin_anew()
            except OSError as error:
                self._failed(error)
        return BEGINNING

    def _tell(self, call: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(call)

    def _news(self) -> None:
        for event in self._waiting:
            event.set()


def _gently(records: Iterator[Record]) -> Iterator[Record]:
    """Pauses now and then: a search that takes the processor must not take it from a failover."""
    looked_at = 0
    for record in records:
        looked_at += len(record.payload)
        if looked_at >= GENTLE_BYTES:
            looked_at = 0
            time.sleep(GENTLE_S)
        yield record


def _recorded(entry: Entry) -> Record:
    return Record(first=entry.position, events=weight_of(entry), payload=encode(entry))


def _portion(records: Iterator[Record]) -> Sequence[Record]:
    portion: list[Record] = []
    size = 0
    for record in records:
        portion.append(record)
        size += len(record.payload)
        if size >= PORTION_BYTES:
            break
    return portion


def _gap(first: Entry | None, dropped: int, following: Entry) -> Iterator[OtherEntry]:
    """Says that events are missing, in the place of the first of them; nothing where none are.

    Of an earlier reign it says nothing: others have reigned since, whose events are in the log, and a gap before them
    would be taken for a store that went back.
    """
    if first is None or first.position.epoch != following.position.epoch:
        return
    yield OtherEntry(
        position=first.position,
        controller=first.controller,
        time_unix_ms=first.time_unix_ms,
        reason=Reason(words.EVENT_CAUSE_UNSPECIFIED, "the disk was too slow"),
        kind=words.EVENT_KIND_EVENTS_DROPPED,
        count=dropped,
    )
