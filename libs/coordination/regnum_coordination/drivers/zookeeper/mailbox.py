"""Hand-over from kazoo's thread to the event loop, in slices (safety rule S22)."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_SLICE_S: Final = 0.005
"""Seconds after which other tasks may run, however much has come."""
_SLICE: Final = 100
"""Items after which other tasks may run: each may wake one, and all of those run in one turn of the loop."""


class Mailbox:
    """What other threads want done on the loop, in the order of their wishes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._items: deque[Callable[[], None]] = deque()
        self._scheduled = False

    def put(self, item: Callable[[], None]) -> None:
        """Have it called on the loop; from any thread."""
        with self._lock:
            self._items.append(item)
            if self._scheduled:
                return
            self._scheduled = True
        # The loop of a process that ends may be closed before kazoo's thread has noticed.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        until_s = self._loop.time() + _SLICE_S
        for _ in range(_SLICE):
            with self._lock:
                if not self._items:
                    self._scheduled = False
                    return
                item = self._items.popleft()
            item()
            if self._loop.time() >= until_s:
                break
        self._loop.call_soon(self._drain)
