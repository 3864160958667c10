"""One event loop on one thread, for all synchronous clients of a process.

One and not one for each: gRPC polls once for a process, and loops on several threads get in each other's way there.
"""

import asyncio
import os
import threading
from typing import Final


class LoopThread:
    """Runs while somebody has a lease."""

    def __init__(self) -> None:
        """Only assigns."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._leases = 0

    def lease(self) -> asyncio.AbstractEventLoop:
        """The running loop; to be given back by ``release``."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._run, args=(self._loop,), name="regnum-client-sync", daemon=True
                )
                self._thread.start()
            self._leases += 1
            return self._loop

    def release(self) -> None:
        """One lease less; with the last the thread ends."""
        with self._lock:
            self._leases -= 1
            if self._leases:
                return
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            if thread is not threading.current_thread():
                thread.join()

    def is_current(self) -> bool:
        """Whether the caller is on this thread."""
        return self._thread is threading.current_thread()

    def forget(self) -> None:
        """After a fork, in the child: there is no such thread here, and whoever held the lock is not here either."""
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self._leases = 0

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


SHARED: Final = LoopThread()
"""The one of this process."""

os.register_at_fork(after_in_child=SHARED.forget)
