"""The broker's log directory as the event loop sees it: one writer thread, a few readers, no file work on the loop.

Jobs for the writer run one after another in the order they were handed in; that order is what makes appends, role
changes and truncations of a partition follow one another. Completions are handed back in one go for all jobs that
finished meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.errors import DirectoryFailedError

T = TypeVar("T")

WRITES_PENDING_MAX: Final = 4_096
"""Jobs that may wait for the writer; whoever brings another one waits."""


class Storage:
    """Owner of the directory's threads. Belongs to one event loop."""

    def __init__(self, directory: LogDirectory, *, readers: int = 2) -> None:
        self.directory: Final = directory
        self._writer: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="log-writer")
        self._readers: Final = ThreadPoolExecutor(max_workers=readers, thread_name_prefix="log-reader")
        self._room: Final = asyncio.Semaphore(WRITES_PENDING_MAX)
        self._finished: Final[deque[tuple[asyncio.Future[Any], Future[Any]]]] = deque()
        self._delivery_due = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: asyncio.Future[DirectoryFailedError] | None = None

    def start(self) -> None:
        """Take the running event loop as the one that completions go to."""
        self._loop = asyncio.get_running_loop()
        self._failure = self._loop.create_future()

    async def write(self, job: Callable[[], T]) -> T:
        """Run a job on the writer thread, after all jobs handed in before.

        Once the writer has it, the job runs even if the caller is cancelled.
        """
        return await (await self.write_later(job))

    async def write_later(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Hand a job in and go on: the future is its outcome. Waits only for room."""
        await self._room.acquire()
        return self._submit(self._writer, job, release=True)

    async def read(self, job: Callable[[], T]) -> T:
        """Run a job on a reader thread."""
        return await self._submit(self._readers, job, release=False)

    async def run_until_failed(self) -> None:
        """Return never; raise DirectoryFailedError when the directory failed. A task of the supervisor (defect D32)."""
        assert self._failure is not None, "start() first"  # noqa: S101
        raise await asyncio.shield(self._failure)

    async def close(self, *, clean: bool) -> None:
        """Run what is handed in, then close the directory; ``clean`` leaves the proof that the log is complete."""
        directory = self.directory
        await asyncio.to_thread(self._readers.shutdown)
        await self._submit(self._writer, lambda: directory.close(clean=clean and not directory.failed), release=False)
        self._writer.shutdown(wait=False)

    def _submit(self, executor: ThreadPoolExecutor, job: Callable[[], T], *, release: bool) -> asyncio.Future[T]:
        loop = self._loop
        assert loop is not None, "start() first"  # noqa: S101
        result: asyncio.Future[T] = loop.create_future()
        if release:
            result.add_done_callback(self._release)
        executor.submit(job).add_done_callback(lambda done: self._finish(result, done))
        return result

    def _release(self, _: object) -> None:
        self._room.release()

    def _finish(self, result: asyncio.Future[Any], done: Future[Any]) -> None:
        """On the thread of the job: remember the outcome and wake the loop, once for all that is not delivered yet."""
        self._finished.append((result, done))
        if not self._delivery_due and self._loop is not None and not self._loop.is_closed():
            self._delivery_due = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._delivery_due = False
        while self._finished:
            result, done = self._finished.popleft()
            error = done.exception()
            if isinstance(error, DirectoryFailedError) and self._failure is not None and not self._failure.done():
                self._failure.set_result(error)
            if result.done():
                continue
            if error is None:
                result.set_result(done.result())
            else:
                result.set_exception(error)
