"""Whether a broker's log directory takes records: how much room its disk has, and why it takes none.

Goals: a disk that is full, or answers no more, is known within seconds: to the controller, to leaders that this broker
follows, to metrics and to who asks for figures. It is not said by turns that it is full and that it is not, while
small records still fit and large ones do not (see ``Reserve``).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
from regnum_service.clock import Clock

from regnum_broker.storage import Storage

INTERVAL_S: Final = 1.0
"""Time between two looks at the disk."""

WAITED_S: Final = 4.0
"""An operation that has not come back for so long takes no records meanwhile, whatever becomes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskRoom:
    """What is known of the disk of the log directory."""

    free_bytes: int | None = None
    """Free for this process; None: not known."""
    size_bytes: int | None = None
    """Of the whole disk; None: not known."""
    refuses_because: str = ""
    """Why no records are appended, in words; empty: they are."""


class DiskRooms:
    """Looks at the disk, and takes the reserve back once there is room. Belongs to the event loop; ``now`` to any."""

    def __init__(self, *, storage: Storage, clock: Clock, tell: Callable[[DiskRoom], None]) -> None:
        """Only assigns.

        Args:
            storage: whose disk.
            clock: source of time.
            tell: takes what is known whenever it is something else.
        """
        self._storage: Final = storage
        self._clock: Final = clock
        self._tell: Final = tell
        self._log: Final = structlog.get_logger("storage")
        self._waited_s = 0.0
        self.now = DiskRoom()
        """What is known."""
        self._room: tuple[int, int] | None = None

    def waits(self, waited_s: float) -> None:
        """Take up how long the disk has not come back with what it was asked for."""
        self._waited_s = waited_s

    async def run(self) -> None:
        """Look for ever; a task of the supervisor."""
        looking: asyncio.Task[None] | None = None
        try:
            while True:
                # One that hangs is not waited for: that it hangs is what there is to be told.
                if looking is None or looking.done():
                    if looking is not None:
                        looking.result()
                    looking = asyncio.create_task(self._look(), name="disk room: look")
                await asyncio.wait([looking], timeout=INTERVAL_S)
                self._take_note()
                await self._clock.sleep(INTERVAL_S)
        finally:
            if looking is not None:
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> None:
        directory = self._storage.directory
        if directory.no_room:
            await self._storage.write(directory.make_reserve)
        self._room = await self._storage.read(directory.room)

    def _take_note(self) -> None:
        directory, before = self._storage.directory, self.now
        because = directory.no_room
        if self._waited_s >= WAITED_S:
            because = f"the disk of log directory {directory.path} has not answered for {self._waited_s:.0f} s"
        free, size = self._room or (None, None)
        self.now = DiskRoom(free_bytes=free, size_bytes=size, refuses_because=because)
        if self.now != before:
            self._tell(self.now)
        if because and not before.refuses_because:
            self._log.error("log directory takes no records", reason=because, effect="appends are refused")
        elif before.refuses_because and not because:
            self._log.info("log directory takes records again", path=str(directory.path))
