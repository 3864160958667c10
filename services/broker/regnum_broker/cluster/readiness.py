"""Whether this broker is ready: whether it could be missed as little as any other.

It is for the first time when it is in the in-sync set of every partition that it holds a replica of and can catch up
with, as the controller counts them and says over the lifeline. It stays ready then: a broker that falls behind under
load is not taken from those that clients begin with, which would only load the others more. Kubernetes takes the next
broker away when this one is ready, and not before.

A controller of a release that does not count makes it ready as soon as it is registered, as that release did.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import structlog


@dataclass(frozen=True, slots=True, kw_only=True)
class CatchingUp:
    """How far the broker is, as the controller counts."""

    replicas: int
    """Partitions that are assigned to it."""
    awaited: int
    """Those of them whose in-sync set it has still to enter."""


class Readiness:
    """Belongs to the event loop; what it shows may be read from other threads."""

    def __init__(self) -> None:
        self._ready: Final = asyncio.Event()
        self._registered = False
        self._stopping = False
        self._catching_up: CatchingUp | None = None
        self._log: Final = structlog.get_logger("readiness")

    @property
    def awaited(self) -> int:
        """Partitions that are still waited for; 0 before they have been counted, and for a broker that was ready."""
        return 0 if self._catching_up is None else self._catching_up.awaited

    @property
    def why_not(self) -> str:
        """Why the broker is not ready, in words; empty: it is."""
        if self._stopping:
            return "stopping"
        if self._ready.is_set():
            return ""
        if not self._registered:
            return "not registered yet"
        said = self._catching_up
        if said is None:
            return "registered; no controller has counted its partitions yet"
        return f"catching up: {said.awaited} of {said.replicas} partitions"

    def registered(self) -> None:
        """The broker is registered."""
        self._registered = True

    def stop(self) -> None:
        """The broker stops."""
        self._stopping = True

    def take(self, said: CatchingUp | None) -> None:
        """The controller has counted; None: it is of a release that does not."""
        if self._ready.is_set():
            return
        before, self._catching_up = self._catching_up, said
        if said is None or not said.awaited:
            self._log.info("ready", counted=said is not None, replicas=None if said is None else said.replicas)
            self._ready.set()
        elif before is None:
            self._log.info("catching up", awaited=said.awaited, replicas=said.replicas)

    @property
    def is_stopping(self) -> bool:
        """Whether the broker stops."""
        return self._stopping

    @property
    def is_ready(self) -> bool:
        """Whether it has been in sync."""
        return self._ready.is_set()

    async def wait(self) -> None:
        """Return when it is ready for the first time."""
        await self._ready.wait()
