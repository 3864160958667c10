"""FollowState as a standby uses it: it holds what the controller in office last published, for the day it wins.

One follower for the life of a process. It follows whoever it hears reigns, begins anew when the stream breaks, and
keeps its picture until a newer one is whole: also when the controller is gone, which is when it is needed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

import structlog
from google.protobuf.message import DecodeError
from regnum.election.v1 import standby_pb2
from regnum_model.ids import ControllerEpoch
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_election.standby.picture import Followed, FollowedPicture, GapError
from regnum_election.standby.target import Target

RETRY_INTERVAL_S: Final = 0.25
"""Pause before the same controller is followed again."""

DRAIN_S: Final = 0.05
"""How long a winner waits for the end of what its predecessor was sending."""

FRESH_S: Final = 15.0
"""How long after the end of the stream a picture is still worth beginning a reign with."""

OpenStream = Callable[[Address, ControllerEpoch, int], AbstractAsyncContextManager[AsyncIterator[bytes]]]
"""Follows the controller with that internal listener, from (epoch, version) on: encoded parts. Raises RegnumError."""


class Follower:
    """Belongs to the event loop."""

    def __init__(self, *, open_stream: OpenStream, clock: Clock) -> None:
        self._open_stream = open_stream
        self._clock = clock
        self._picture = FollowedPicture()
        self._target: Final = Target("follow state", pause_s=RETRY_INTERVAL_S, clock=clock)
        self._idle = asyncio.Event()
        self._idle.set()
        self._heard_s: float | None = None
        """When the stream was last known to be open; None: it is, or never was."""
        self._told: tuple[Address, str] | None = None
        """Why whom was not followed, as it was last written down: it is tried several times a second."""
        self._log = structlog.get_logger("standby")

    @property
    def followed(self) -> Followed:
        """The newest whole picture."""
        return self._picture.whole

    def heard_of(self, controller: Address | None) -> None:
        """Who reigns, by its internal listener. None: nobody, and the last one's stream is read to its end."""
        if controller is not None and controller != self._target.address:
            self._target.move_to(controller)

    async def take(self) -> Followed | None:
        """The picture for a reign of this process, which follows nobody from now on; None: none that is worth it."""
        self._target.address = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._idle.wait()
        self._target.interrupt()
        whole = self._picture.whole
        self._picture.forget()
        if whole.version == 0:
            return None
        age_s = 0.0 if self._heard_s is None else self._clock.monotonic() - self._heard_s
        self._log.info("picture handed on", epoch=whole.epoch, version=whole.version, age_ms=round(age_s * 1000))
        return whole if age_s <= FRESH_S else None

    async def run(self) -> None:
        """Follow, for ever; a task of the supervisor."""
        await self._target.follow(self._follow)

    async def _follow(self, target: Address) -> None:
        held = self._picture.whole
        self._idle.clear()
        try:
            async with self._open_stream(target, held.epoch, held.version) as parts:
                async for part in parts:
                    self._heard_s = self._told = None
                    self._picture.take(standby_pb2.StatePart.FromString(part))
                    # One part in a turn of the loop (safety rule S22).
                    await asyncio.sleep(0)
        except (GapError, DecodeError) as error:
            self._log.warning("picture is begun anew", controller=str(target), reason=str(error))
            self._picture.forget()
        except RegnumError as error:
            if self._told != (target, error.message):
                self._log.info("not followed", controller=str(target), reason=error.message)
                self._told = (target, error.message)
        finally:
            self._picture.break_off()
            if self._heard_s is None:
                self._heard_s = self._clock.monotonic()
            self._idle.set()
