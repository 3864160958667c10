"""Threads for jobs, as a port: who needs some is told by its constructor where they come from."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MakePool = Callable[[str, int], Executor]
"""Makes an executor of that name with so many threads at most."""


def thread_pool(name: str, threads: int) -> Executor:
    """``MakePool`` with threads of the machine; the end of the process waits for them.

    All of them are there from the beginning: where the machine allows no more, that is known at the start, and not when
    a record is to be written. Raises RuntimeError then.
    """
    pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=name)
    all_there = threading.Event()
    try:
        # A pool starts another thread for a job as long as all that it has are busy.
        for _ in range(threads):
            pool.submit(all_there.wait)
    except RuntimeError:
        pool.shutdown(wait=False)
        raise
    finally:
        all_there.set()
    return pool


class DaemonThread(Executor):
    """One thread, for which the end of the process does not wait; jobs run in the order they came."""

    def __init__(self, name: str) -> None:
        """Starts it."""
        self._jobs: Final[SimpleQueue[Callable[[], None] | None]] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a job after those that were handed in before. What it raises is told to its future.

        Where the future is cancelled before the job begins, it is left out, as pools do.
        """
        done: Future[T] = Future()

        def job() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                value = fn(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001 - a pool's thread does the same
                done.set_exception(error)
            else:
                done.set_result(value)

        self._jobs.put(job)
        return done

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """End the thread after the jobs that it has; waits for nothing."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
