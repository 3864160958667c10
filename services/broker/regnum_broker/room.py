"""Room in a queue, counted in jobs and in bytes: whoever brings more waits in line."""

import asyncio
from collections import deque
from typing import Final


class Room:
    """Belongs to one event loop. What is larger than all the room enters alone."""

    def __init__(self, *, jobs_max: int, bytes_max: int) -> None:
        self._jobs_max: Final = jobs_max
        self._bytes_max: Final = bytes_max
        self._jobs = 0
        self._bytes = 0
        self._line: Final[deque[tuple[int, asyncio.Future[None]]]] = deque()

    @property
    def jobs_inside(self) -> int:
        """Jobs that have entered and not left."""
        return self._jobs

    @property
    def bytes_inside(self) -> int:
        """Bytes that have entered and not left."""
        return self._bytes

    @property
    def bytes_waiting(self) -> int:
        """Bytes that wait in line."""
        return sum(size for size, entering in self._line if not entering.done())

    async def enter(self, size_bytes: int) -> None:
        """Enter with a job, after all that came before."""
        if not self._line and self._fits(size_bytes):
            self._take(size_bytes)
            return
        entering: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size_bytes, entering))
        try:
            await entering
        except asyncio.CancelledError:
            if not entering.cancelled():
                self.leave(size_bytes)
            else:
                self._admit()
            raise

    def leave(self, size_bytes: int) -> None:
        """Leave with that job."""
        self._jobs -= 1
        self._bytes -= size_bytes
        self._admit()

    def _admit(self) -> None:
        while self._line:
            size, entering = self._line[0]
            if not entering.done():
                if not self._fits(size):
                    return
                self._take(size)
                entering.set_result(None)
            self._line.popleft()

    def _fits(self, size_bytes: int) -> bool:
        return self._jobs == 0 or (self._jobs < self._jobs_max and self._bytes + size_bytes <= self._bytes_max)

    def _take(self, size_bytes: int) -> None:
        self._jobs += 1
        self._bytes += size_bytes
