"""Brings logs to the disk for those that wait for it, beside the writer: one fsync for all that came before it began.

Goals: an append that has to be on the disk holds up nobody but who waits for it; many of them cost few fsyncs; a log
that is written to without end does not keep the others waiting.

Algorithm: who waits names the logs. A log that nobody flushes gets a turn on one of a few threads; who comes while it
is being flushed waits for its next turn, which is behind those of the others that wait. When there is no descriptor for
it, who is patient waits on: the log is noted to be flushed later (``LogDirectory.unflushed``), and when that time has
come all that were put off have another turn (``again``): some may have been deleted meanwhile, and are noted no more.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final

from regnum_service.pools import MakePool, thread_pool

from regnum_broker.log.errors import DirectoryFailedError
from regnum_broker.log.replica.host import Flushable

FLUSHERS: Final = 4
"""Threads that bring logs to the disk. A file system writes down together what several ask for at a time."""

Flushed = Callable[[BaseException | None], None]
"""Told on a thread of these: all logs that were waited for are on the disk, or why one is not."""


class _Waiter:
    """Who waits for some logs."""

    __slots__ = ("error", "flushed", "is_patient", "logs_left", "size_bytes")

    def __init__(self, flushed: Flushed, logs: int, *, is_patient: bool, size_bytes: int) -> None:
        self.flushed: Final = flushed
        self.logs_left = logs
        self.is_patient: Final = is_patient
        self.size_bytes: Final = size_bytes
        self.error: BaseException | None = None

    def failed(self, error: BaseException) -> None:
        """Remember why a log is not on the disk. That the directory failed concerns everybody: it is told first."""
        if self.error is None or isinstance(error, DirectoryFailedError):
            self.error = error


class GroupCommit:
    """Any thread. Of one log, who came first is told first."""

    def __init__(
        self,
        *,
        refuse: Callable[[bool], None],
        put_off: Callable[[], None],
        bytes_max: int,
        threads: int = FLUSHERS,
        pool: MakePool = thread_pool,
    ) -> None:
        """Only assigns.

        Args:
            refuse: told whether more waits than there is memory for, whenever that changes.
            put_off: told on a thread that a log was noted to be flushed later.
            bytes_max: how much that is.
            threads: how many logs are flushed at a time.
            pool: where the threads come from.
        """
        self._refuse: Final = refuse
        self._put_off: Final = put_off
        self._bytes_max: Final = bytes_max
        self._threads: Final = pool("log-flusher", threads)
        self._lock: Final = threading.Lock()
        self._closed: Future[None] | None = None
        """Done once nothing is under way any more."""
        self._waiting: Final[dict[Flushable, list[_Waiter]]] = {}
        self._flushing: Final[dict[Flushable, list[_Waiter]]] = {}
        self._turns: Final[set[Flushable]] = set()
        """Logs that have a turn, or wait for one on the threads."""
        self._bytes = 0
        self._refusing = False

    @property
    def bytes_waiting(self) -> int:
        """Bytes of records that wait to be on the disk. Any thread."""
        return self._bytes

    def flush(
        self, logs: Iterable[Flushable], flushed: Flushed, *, is_patient: bool = True, size_bytes: int = 0
    ) -> None:
        """Bring to the disk what is written by now.

        Args:
            logs: which; one at least, each once.
            flushed: told of it.
            is_patient: whether to wait on where there is no descriptor for it; else nothing was done then.
            size_bytes: bytes of records that are in memory meanwhile.
        """
        logs = tuple(logs)
        waiter = _Waiter(flushed, len(logs), is_patient=is_patient, size_bytes=size_bytes)
        with self._lock:
            self._count(size_bytes)
            for log in logs:
                self._waiting.setdefault(log, []).append(waiter)
                if log not in self._turns:
                    self._turns.add(log)
                    self._give_turn(log)

    def again(self) -> None:
        """Give those a turn that were put off, also if the directory knows them no more: what was deleted says so."""
        with self._lock:
            for log in [log for log in self._waiting if log not in self._turns]:
                self._turns.add(log)
                self._give_turn(log)

    def close(self) -> Future[None]:
        """End with what is under way, when the future is done; who still waits for a descriptor waits for ever.

        Nothing may come any more.
        """
        with self._lock:
            closed = self._closed = Future()
            idle = not self._turns
        if idle:
            self._end(closed)
        return closed

    def _end(self, closed: Future[None]) -> None:
        self._threads.shutdown(wait=False)
        closed.set_result(None)

    def abandon(self) -> None:
        """Wait for nothing: the disk does not answer."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _give_turn(self, log: Flushable) -> None:
        turn = self._threads.submit(self._turn, log)
        turn.add_done_callback(lambda done: self._take_up(log, done))

    def _turn(self, log: Flushable) -> bool:
        with self._lock:
            # Whoever comes from here on may have written what this turn does not bring to the disk.
            self._flushing[log] = self._waiting.pop(log, [])
        return log.flush_beside()

    def _take_up(self, log: Flushable, done: Future[bool]) -> None:
        """On the thread of a turn that is over. One that was abandoned is told to nobody."""
        if done.cancelled():
            return
        error = done.exception()
        there = error is not None or done.result()
        with self._lock:
            # Who came since is told after a turn of its own, also if this one was for nothing.
            came_since = log in self._waiting
            ended = self._ended(log, self._flushing.pop(log), error, there=there)
            if came_since:
                # Behind the others that wait.
                self._give_turn(log)
            else:
                self._turns.discard(log)
            closed = None if self._turns else self._closed
            self._count(-sum(waiter.size_bytes for waiter in ended))
        for waiter in ended:
            waiter.flushed(waiter.error)
        if not there:
            self._put_off()
        if closed is not None:
            self._end(closed)

    def _ended(
        self, log: Flushable, waiters: list[_Waiter], error: BaseException | None, *, there: bool
    ) -> list[_Waiter]:
        """Those that wait no more; the others, for this log, are in front of those that have come since."""
        if not there and (staying := [waiter for waiter in waiters if waiter.is_patient]):
            self._waiting[log] = [*staying, *self._waiting.get(log, ())]
            waiters = [waiter for waiter in waiters if not waiter.is_patient]
        ended: list[_Waiter] = []
        for waiter in waiters:
            if error is not None:
                waiter.failed(error)
            waiter.logs_left -= 1
            if waiter.logs_left == 0:
                ended.append(waiter)
        return ended

    def _count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        refusing = self._bytes > self._bytes_max
        if refusing != self._refusing:
            self._refusing = refusing
            self._refuse(refusing)
