"""A session's state and those who wait for its changes; shared by the drivers."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from regnum_coordination.errors import SessionExpired
from regnum_coordination.port import SessionState

_T = TypeVar("_T")


def expired() -> SessionExpired:
    """What everything raises once a session is LOST."""
    return SessionExpired("the session is over; open a new store")


async def unless(happened: asyncio.Event, work: Awaitable[_T], error: Callable[[], Exception]) -> _T:
    """The result of ``work``; ``error`` is raised as soon as the event is set, and the work is cancelled."""
    task = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(happened.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if happened.is_set():
            raise error()
        return task.result()
    finally:
        waiting.cancel()
        task.cancel()
        await asyncio.gather(task, waiting, return_exceptions=True)


class SessionStateFeed:
    """The state of one session. LOST is final."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._listeners: dict[asyncio.Event, None] = {}
        self._lost = asyncio.Event()

    @property
    def state(self) -> SessionState:
        """The present state."""
        return self._state

    @property
    def is_lost(self) -> bool:
        """Whether it is LOST."""
        return self._lost.is_set()

    def set(self, state: SessionState) -> None:
        """Change the state; nothing changes LOST."""
        if self._lost.is_set() or state is self._state:
            return
        self._state = state
        if state is SessionState.LOST:
            self._lost.set()
        for changed in self._listeners:
            changed.set()

    def stir(self) -> None:
        """Wake those who wait for a change, though there is none of the session."""
        for changed in self._listeners:
            changed.set()

    def listen(self, changed: asyncio.Event) -> None:
        """Set the event after every change."""
        self._listeners[changed] = None

    def unlisten(self, changed: asyncio.Event) -> None:
        """Undo ``listen``."""
        self._listeners.pop(changed, None)

    async def wait_lost(self) -> None:
        """Return when it is LOST."""
        await self._lost.wait()

    async def states(self) -> AsyncGenerator[SessionState, None]:
        """The present state and then changes, ending after LOST; those faster than the reader merge."""
        changed = asyncio.Event()
        self._listeners[changed] = None
        try:
            known: SessionState | None = None
            while known is not SessionState.LOST:
                changed.clear()
                if self._state is not known:
                    known = self._state
                    yield known
                else:
                    await changed.wait()
        finally:
            self._listeners.pop(changed, None)

    async def unless_lost(self, work: Awaitable[_T]) -> _T:
        """The result of ``work``; SessionExpired as soon as the session is LOST, and the work is cancelled."""
        return await unless(self._lost, work, expired)
