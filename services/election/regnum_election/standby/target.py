"""Which controller a standby follows: another one at any time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Never

from regnum_model.nodes import Address
from regnum_service.clock import Clock


class Target:
    """Of one follower. Belongs to the event loop."""

    def __init__(self, name: str, *, pause_s: float, clock: Clock) -> None:
        """Only assigns.

        Args:
            name: of its tasks.
            pause_s: before the same controller is followed again.
            clock: source of time.
        """
        self._name: Final = name
        self._pause_s: Final = pause_s
        self._clock: Final = clock
        self._interrupted: Final = asyncio.Event()
        self.address: Address | None = None
        """Internal listener of the controller; None: none is followed. Takes effect when what is followed ends."""

    def move_to(self, address: Address | None) -> None:
        """Follow that one from now on."""
        self.address = address
        self.interrupt()

    def interrupt(self) -> None:
        """Leave the one that is followed now, and begin with ``address``."""
        self._interrupted.set()

    async def follow(self, follow: Callable[[Address], Coroutine[Any, Any, None]]) -> Never:
        """Follow, for ever; a task of the supervisor. ``follow`` ends where a controller is not followed any more."""
        while True:
            self._interrupted.clear()
            address = self.address
            if address is None:
                await self._interrupted.wait()
                continue
            following = asyncio.create_task(follow(address), name=self._name)
            interrupted = asyncio.create_task(self._interrupted.wait(), name=f"{self._name} of another")
            try:
                await asyncio.wait({following, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (following, interrupted):
                    task.cancel()
                await asyncio.gather(following, interrupted, return_exceptions=True)
            if not following.cancelled():
                following.result()
            if not self._interrupted.is_set():
                await self._clock.sleep(self._pause_s)
