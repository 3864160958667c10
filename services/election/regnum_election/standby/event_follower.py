"""FollowEvents as a standby uses it: its own event log gets what the controller in office writes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

import structlog
from google.protobuf.message import DecodeError
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_election.history.events import Position
from regnum_election.history.log import EventLog
from regnum_election.standby.target import Target

RETRY_INTERVAL_S: Final = 1.0
"""Pause before the same controller is followed again: the log can wait, unlike the picture."""

OpenStream = Callable[[Address, Position], AbstractAsyncContextManager[AsyncIterator[Sequence[bytes]]]]
"""Follows the controller with that internal listener, from a place on: encoded entries. Raises RegnumError."""


class EventFollower:
    """For the life of a process. Belongs to the event loop."""

    def __init__(self, log: EventLog, *, open_stream: OpenStream, clock: Clock) -> None:
        """Only assigns."""
        self._events: Final = log
        self._open_stream: Final = open_stream
        self._target: Final = Target("follow events", pause_s=RETRY_INTERVAL_S, clock=clock)
        self._told: tuple[Address, str] | None = None
        """Why whom was not followed, as it was last written down."""
        self._log = structlog.get_logger("standby")

    def heard_of(self, controller: Address | None) -> None:
        """Who reigns, by its internal listener; None: nobody else does."""
        if controller != self._target.address:
            self._target.move_to(controller)

    async def run(self) -> None:
        """Follow, for ever; a task of the supervisor."""
        await self._events.ready()
        await self._target.follow(self._follow)

    async def _follow(self, target: Address) -> None:
        try:
            async with self._open_stream(target, self._events.last) as portions:
                async for entries in portions:
                    self._told = None
                    self._events.take(entries)
                    # One portion in a turn of the loop (safety rule S22).
                    await asyncio.sleep(0)
        except DecodeError as error:
            self._note(target, f"its entries cannot be read: {error}")
        except RegnumError as error:
            self._note(target, error.message)

    def _note(self, target: Address, reason: str) -> None:
        if self._told != (target, reason):
            self._log.info("events not followed", controller=str(target), reason=reason)
            self._told = (target, reason)
