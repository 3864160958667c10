"""The broker's session with the coordination store: one at a time, opened anew when it is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
from regnum_coordination.errors import ConnectionLoss
from regnum_coordination.port import Store
from regnum_coordination.timing import Backoff
from regnum_service.clock import Clock


class Sessions:
    """Owner of the store. Belongs to the event loop."""

    def __init__(self, open_session: Callable[[], Awaitable[Store]], clock: Clock) -> None:
        self._open_session: Final = open_session
        self._clock: Final = clock
        self._store: Store | None = None
        self._opened: Final = asyncio.Event()
        self.why_none = "none was opened yet"
        """Why there is no session, when there is none."""
        self._log: Final = structlog.get_logger("session")

    @property
    def store(self) -> Store | None:
        """The present session; None while there is none."""
        return self._store

    async def wait_store(self) -> Store:
        """The present session, as soon as there is one."""
        while self._store is None:
            await self._opened.wait()
        return self._store

    async def run(self) -> None:
        """Keep a session for ever; a task of the supervisor."""
        while True:
            store = await self._open()
            self._store = store
            self._opened.set()
            self._log.info("session opened", session_id=f"{store.session_id:#x}")
            try:
                await store.wait_lost()
                self.why_none = "it was lost, and another one is being opened"
                self._log.warning("session lost; opening another one")
            finally:
                self._store = None
                self._opened.clear()
                await store.close()

    async def _open(self) -> Store:
        backoff, attempts = Backoff(), 0
        while True:
            try:
                return await self._open_session()
            except ConnectionLoss as error:
                attempts, self.why_none = attempts + 1, str(error)
                if attempts == 1:
                    self._log.warning("the coordination store does not answer; trying on", reason=str(error))
                await self._clock.sleep(backoff.pause_s(attempts))
