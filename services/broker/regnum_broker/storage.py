"""The broker's log directory as the event loop sees it: one writer thread, a few readers, no file work on the loop.

Jobs for the writer run one after another in the order they were handed in; that order is what makes appends, role
changes and truncations of a partition follow one another. Completions are handed back in one go for all jobs that
finished meanwhile. What is deleted goes on a thread of its own, what grows is brought to the disk on another, and the
journal on a third; a fourth compacts, and two look into batches where that takes long. An fsync takes as long as the
disk likes, and only who relies on it waits for it: a job that appended what counts once it is on the disk has ended for
the writer, and is told when it is there.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any, Final, NamedTuple, TypeVar

import structlog
from regnum_model.ids import PartitionKey
from regnum_service.clock import Clock, SystemClock
from regnum_service.limits.turns_of_callers import TurnsOfCallers
from regnum_service.pools import MakePool, thread_pool
from regnum_telemetry.metrics import Metrics

from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.errors import CorruptLogError, DirectoryFailedError, UnknownReplicaError
from regnum_broker.log.replica.replica import ReplicaLog
from regnum_broker.room import Room
from regnum_broker.writer import TOLD_AFTER_S, LogWriter
from regnum_broker.writer_times import WriterTimes
from regnum_broker.writing.group_commit import GroupCommit

T = TypeVar("T")

WRITES_PENDING_MAX: Final = 4_096
"""Jobs that may wait for the writer; whoever brings another one waits."""

WRITE_BYTES_PENDING_MAX: Final = 64 * 1024 * 1024
"""Bytes of records that may wait for the writer; whoever brings more waits."""

WRITE_BYTES_HELD_MAX: Final = 256 * 1024 * 1024
"""Bytes of records that may wait for the writer or for room: what clients bring beyond that is refused."""

FLUSH_BYTES_WAITING_MAX: Final = 64 * 1024 * 1024
"""Bytes of records that may wait to be on the disk before they count; more of them are refused, and no others."""

CHECKERS: Final = 2
"""Threads that look into batches: who takes a turn waits for no one piece of another's work, but for a second's."""

RENAMED_AT_ONCE: Final = 200
"""Folders of deleted replicas that are renamed in one job of the writer: appends go between two of them."""


def _remove_files(directory: LogDirectory) -> None:
    """On the remover's thread."""
    if kept := directory.remove_files():
        structlog.get_logger("storage").warning(
            "folders of deleted replicas stay: something that is not Regnum's is in them", folders=kept
        )


def _nothing() -> None:
    """What follows a job that takes no room."""


def _tell(result: asyncio.Future[Any] | None, value: object, error: BaseException | None) -> None:
    if result is None or result.done():
        return
    if error is None:
        result.set_result(value)
    else:
        result.set_exception(error)


class _Finished(NamedTuple):
    """A job that ended."""

    result: asyncio.Future[Any] | None
    """What is told of it; None: that is told later."""
    value: object
    """What it returned."""
    error: BaseException | None
    """What it raised."""
    finished: Callable[[], None]
    """What follows it on the loop."""


class Storage:
    """Owner of the directory's threads. Belongs to one event loop."""

    def __init__(
        self,
        directory: LogDirectory,
        *,
        readers: int = 2,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        make_pool: MakePool = thread_pool,
    ) -> None:
        """Makes its threads, and assigns.

        Args:
            directory: what it owns.
            readers: threads that read for clients, and as many that read for brokers.
            clock: times the writer's jobs; the machine's when None.
            metrics: where they are counted; None: nobody asks.
            make_pool: where the threads come from.
        """
        clock = clock or SystemClock()
        self._times: Final = WriterTimes(clock, metrics or Metrics())
        self.directory: Final = directory
        self.turns: Final = TurnsOfCallers(readers, clock)
        """Of clients, on the threads that read for them: whoever has jobs of no bound takes one for each."""
        self._writer: Final = LogWriter(tell=self._wake, clock=clock, make_pool=make_pool)
        self._readers, self._own_readers = make_pool("log-reader", readers), make_pool("replication-reader", readers)
        self._remover, self._cleaner = make_pool("log-remover", 1), make_pool("log-cleaner", 1)
        self._syncer, self._journal_syncer = make_pool("log-syncer", 1), make_pool("journal-syncer", 1)
        self._checker: Final = make_pool("batch-checker", CHECKERS)
        self._stop_cleaning: Final = threading.Event()
        self._commit: Final = GroupCommit(
            refuse=directory.refuse_flushed, put_off=self._put_off, bytes_max=FLUSH_BYTES_WAITING_MAX, pool=make_pool
        )
        self._syncing: asyncio.Future[None] | None = None
        self._room: Final = Room(jobs_max=WRITES_PENDING_MAX, bytes_max=WRITE_BYTES_PENDING_MAX)
        self._beside: Final[set[asyncio.Future[Any]]] = set()
        """Jobs that are under way beside the writer, waited for or not: the directory is not closed under them."""
        self._removing: Final[set[asyncio.Future[None]]] = set()
        self._finished: Final[deque[_Finished]] = deque()
        self._looking: asyncio.TimerHandle | None = None
        """When the loop looks next what the writer has ended; None: it has nothing to do."""
        self._delivery_due = self._writing_index = self._closing = False
        self.segments_begun: Final = asyncio.Event()
        """Set when there is something in ``LogDirectory.segments_begun``."""
        self.segments_closed: Final = asyncio.Event()
        """Set when there is something in ``LogDirectory.segments_closed``."""
        self.unflushed: Final = asyncio.Event()
        """Set when there is something in ``LogDirectory.unflushed``."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: asyncio.Future[DirectoryFailedError] | None = None

    def start(self) -> None:
        """Take the running event loop as the one that completions go to."""
        self._loop = asyncio.get_running_loop()
        self._failure = self._loop.create_future()
        if self.directory.files_left:
            self.remove_files()

    @property
    def stuck(self) -> bool:
        """Whether a thread waits for the disk: it would hold up the end of the process."""
        return bool(self.directory.operations.under_way)

    @property
    def jobs_pending(self) -> int:
        """Jobs that the writer has and has not finished. Any thread."""
        return self._room.jobs_inside

    @property
    def bytes_pending(self) -> int:
        """Bytes of records in them. Any thread."""
        return self._room.bytes_inside

    @property
    def flush_bytes_pending(self) -> int:
        """Bytes of records that are written and wait to be on the disk. Any thread."""
        return self._commit.bytes_waiting

    def takes(self, size_bytes: int, *, beside_bytes: int = 0) -> bool:
        """Whether there is memory for so many more bytes of records that wait to be written, or beside it to be."""
        held = beside_bytes + self._room.bytes_inside + self._room.bytes_waiting + self._commit.bytes_waiting
        return held == 0 or held + size_bytes <= WRITE_BYTES_HELD_MAX

    async def write(self, job: Callable[[], T]) -> T:
        """Run a job on the writer thread, after all jobs handed in before.

        Once the writer has it, the job runs even if the caller is cancelled. If it appended what has to be on the disk
        before it counts, the answer comes when it is there; jobs behind it do not wait for that.
        """
        return await (await self.write_later(job))

    async def write_later(
        self,
        job: Callable[[], T],
        *,
        size_bytes: int = 0,
        replicated: bool = False,  # noqa: ARG002 - tells failpoints what a leader sent
    ) -> asyncio.Future[T]:
        """Hand a job in, with that many bytes of records, and go on: the future is its outcome. Waits only for room."""
        timed = self._times.timed(job, self._times.now_s())
        await self._room.enter(size_bytes)
        return self._submit(self._writer, timed, finished=lambda: self._room.leave(size_bytes), size_bytes=size_bytes)

    async def write_first(self, job: Callable[[], T]) -> T:
        """Run a job on the writer thread before those that wait for it: for what makes room while they take it.

        It must be right in any order with them. Of those who bring such jobs each brings one at a time.
        """
        return await self._submit(self._writer, job, first=True)

    def read(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run a job on a thread that reads for clients; the future is done when it has ended (see ``Turn.run``)."""
        return self._noted(self._submit(self._readers, job))

    async def read_for_brokers(self, job: Callable[[], T]) -> T:
        """Run a job for followers, or for this broker itself, on a reader thread that has no client's jobs."""
        return await self._run_beside(self._own_readers, job)

    async def check(self, job: Callable[[], T]) -> T:
        """Run a job on a thread that looks into batches; whoever brings any takes turns, CHECKERS at a time."""
        return await self._run_beside(self._checker, job)

    async def clean(self, job: Callable[[], T]) -> T:
        """Run a job on the thread that compacts logs. It asks ``wait_for_stop`` now and then, for it may take long."""
        return await self._run_beside(self._cleaner, job)

    def wait_for_stop(self, seconds: float) -> bool:
        """On that thread: wait so long; returns whether the job is to end at once."""
        return self._stop_cleaning.wait(seconds)

    async def flush(self, logs: Sequence[ReplicaLog]) -> None:
        """Bring to the disk what was appended to some logs, while the writer goes on.

        Raises:
            DirectoryFailedError: it may be lost.
        """
        if not logs or self._closing:
            return
        assert self._loop is not None, "start() first"  # noqa: S101
        result: asyncio.Future[None] = self._loop.create_future()
        self._commit.flush(logs, lambda error: self._flushed(result, error), is_patient=False)
        # One that is gone, or was damaged, is for its replica to find; without a descriptor it is noted anew.
        with contextlib.suppress(CorruptLogError, UnknownReplicaError):
            await asyncio.shield(self._noted(result))

    def flush_put_off(self) -> None:
        """Try again what could not be flushed for want of a descriptor, and is waited for."""
        if not self._closing:
            self._commit.again()

    def _put_off(self) -> None:
        """On a thread that flushes: have the loop look at ``LogDirectory.unflushed``."""
        self._finished.append(_Finished(None, None, None, _nothing))
        self._wake()

    def _flushed(self, result: asyncio.Future[Any], error: BaseException | None, value: object = None) -> None:
        """On a thread that flushes."""
        self._finished.append(_Finished(result, value, error, _nothing))
        self._wake()

    async def sync_journal(self) -> None:
        """Bring to the disk what jobs have recorded with ``sync=False``, while the writer goes on.

        Raises:
            DirectoryFailedError: it may be lost.
        """
        # At the end there is nobody left who would wait for the writer.
        await self._run_beside(self._writer if self._closing else self._journal_syncer, self.directory.sync_journal)

    async def _run_beside(self, executor: Executor | LogWriter, job: Callable[[], T]) -> T:
        return await asyncio.shield(self._noted(self._submit(executor, job)))

    def _noted(self, result: asyncio.Future[T]) -> asyncio.Future[T]:
        self._beside.add(result)
        result.add_done_callback(self._beside.discard)
        return result

    async def delete(self, keys: Sequence[PartitionKey]) -> None:
        """Delete replicas for good. Their names are free afterwards; their files go in the background.

        Raises:
            ResourceExhaustedError: not even the reserve was there to write it down; nothing was deleted.
            DirectoryFailedError: the disk failed.
        """
        directory = self.directory
        await self.write(lambda: directory.retire_replicas(keys, sync=False))
        await self.sync_journal()
        while await self.write(lambda: directory.move_aside(RENAMED_AT_ONCE)):
            pass
        self.remove_files()

    def remove_files(self) -> None:
        """Remove in the background what was moved aside. Of calls that come together, the second finds nothing."""
        if self._closing:
            # The next start removes them.
            return
        removing = self._submit(self._remover, lambda: _remove_files(self.directory))
        self._removing.add(removing)
        removing.add_done_callback(self._removed)

    async def sync_starts(self) -> None:
        """Bring recorded log starts to the disk, beside the writer.

        Raises:
            ResourceExhaustedError: no descriptor for it now.
            DirectoryFailedError: it failed.
        """
        await self._run_beside(self._writer if self._closing else self._journal_syncer, self.directory.starts.sync)

    def _removed(self, removing: asyncio.Future[None]) -> None:
        self._removing.discard(removing)
        # A failure of the directory is known already, see _deliver.
        if removing.exception() is None and self.directory.full and not self._closing:
            self._submit(self._writer, self.directory.make_reserve)

    @property
    def syncing(self) -> bool:
        """Whether segments that grew are being brought to the disk."""
        return self._syncing is not None

    def _synced(self, syncing: asyncio.Future[None]) -> None:
        self._syncing = None
        # A failure of the directory is known already, see _deliver.
        syncing.exception()

    async def run_until_failed(self) -> None:
        """Return never; raise DirectoryFailedError when the directory failed. A task of the supervisor (defect D32)."""
        assert self._failure is not None, "start() first"  # noqa: S101
        raise await asyncio.shield(self._failure)

    async def close(self, *, clean: bool) -> None:
        """Run what is handed in, then close the directory; ``clean`` leaves the proof that the log is complete."""
        directory = self.directory
        self._closing = True
        self._stop_cleaning.set()
        for threads in (self._readers, self._own_readers, self._remover, self._cleaner, self._checker, self._syncer):
            threads.shutdown(wait=False)
        self._journal_syncer.shutdown(wait=False)
        if directory.hung:
            # Nobody can wait for that thread; the lock goes with the process.
            self._writer.shutdown()
            self._commit.abandon()
            return
        directory.leave_files()
        if pending := {*self._beside, *self._removing, *([self._syncing] if self._syncing is not None else [])}:
            await asyncio.wait(pending)
        # What was handed in may have to be flushed, and nothing is while the directory closes.
        await self._submit(self._writer, _nothing)
        await asyncio.wrap_future(self._commit.close())
        await self._submit(self._writer, lambda: directory.close(clean=clean and not directory.failed))
        self._writer.shutdown()

    def _submit(
        self,
        executor: Executor | LogWriter,
        job: Callable[[], T],
        *,
        finished: Callable[[], None] = _nothing,
        size_bytes: int = 0,
        first: bool = False,
    ) -> asyncio.Future[T]:
        loop = self._loop
        assert loop is not None, "start() first"  # noqa: S101
        result: asyncio.Future[T] = loop.create_future()
        if isinstance(executor, LogWriter):
            executor.hand_in(
                job,
                lambda value, error: self._worked(_Finished(result, value, error, finished), size_bytes),
                first=first,
            )
            if self._looking is None:
                self._looking = loop.call_later(TOLD_AFTER_S, self._look)
        else:
            executor.submit(job).add_done_callback(lambda done: self._finish(result, done, finished))
        return result

    def _worked(self, done: _Finished, size_bytes: int) -> None:
        """On the writer thread: a job ended. What it appended may have to be brought to the disk before it is told."""
        logs, result = self.directory.take_flushed_now(), done.result
        if not logs or result is None:
            self._finished.append(done)
            return
        # Its place in the queue is free for others.
        self._finished.append(done._replace(result=None))
        self._commit.flush(
            logs, lambda error: self._flushed(result, done.error or error, done.value), size_bytes=size_bytes
        )

    def _look(self) -> None:
        """What has ended while the writer is at something that takes long is told all the same."""
        self._looking = None
        if self._writer.is_busy and self._loop is not None:
            self._looking = self._loop.call_later(TOLD_AFTER_S, self._look)
            self._deliver()

    def _finish(self, result: asyncio.Future[Any], done: Future[Any], finished: Callable[[], None]) -> None:
        """On the thread of the job: remember the outcome and wake the loop."""
        error = done.exception()
        self._finished.append(_Finished(result, done.result() if error is None else None, error, finished))
        self._wake()

    def _look_after_files(self) -> None:
        """Hand on what jobs have left to be done beside them."""
        if self._syncing is None and self.directory.grown and not self._closing:
            self._syncing = self._submit(self._syncer, self.directory.sync_grown)
            self._syncing.add_done_callback(self._synced)
        if self.directory.segments_begun:
            self.segments_begun.set()
        if self.directory.segments_closed:
            self.segments_closed.set()
        if self.directory.unflushed:
            self.unflushed.set()
        if self.directory.files_left and not self._removing:
            self.remove_files()
        if self.directory.read_cache.unwritten and not (self._writing_index or self._closing):
            self._write_index()

    def _write_index(self) -> None:
        """Have the writer write an index that is to be dropped; one at a time, between what others wait for."""
        self._writing_index = True

        def written(writing: asyncio.Future[None]) -> None:
            self._writing_index = False
            # Of a disk without room, the next one is another try. A failure of the directory is known, see _deliver.
            if writing.exception() is None:
                self._look_after_files()

        self._submit(self._writer, self.directory.read_cache.write_one).add_done_callback(written)

    def _wake(self) -> None:
        """On any thread: have the loop take up what has ended, once for all that it has not taken up yet."""
        if not self._delivery_due and self._loop is not None and not self._loop.is_closed():
            self._delivery_due = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._delivery_due = False
        while self._finished:
            result, value, error, finished = self._finished.popleft()
            finished()
            if isinstance(error, DirectoryFailedError) and self._failure is not None and not self._failure.done():
                self._failure.set_result(error)
            try:
                # Before whoever waits hears of it, and closes perhaps.
                self._look_after_files()
            finally:
                _tell(result, value, error)
