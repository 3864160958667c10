"""Whether a broker's listeners take connections, and why they do not.

Goals: an expired certificate, and more connections than are kept, are known to the controller and to metrics within
seconds. Connections between processes stay open meanwhile, so nothing else shows it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from regnum_service.clock import Clock
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

INTERVAL_S: Final = 2.0
"""Time between two looks."""


class Expired(Protocol):
    """Certificates that are no good any more; see ``tls.expiry.ExpiredCertificates``."""

    def look(self, now_s: float) -> str:
        """Which they are, in words; on a thread."""


class ListenersWatch:
    """Belongs to the event loop; ``turn_away_because`` may be read by any thread."""

    def __init__(
        self,
        *,
        expired: Expired | None,
        crowded: Callable[[], str],
        tell: Callable[[str], None],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Only assigns.

        Args:
            expired: the certificates that are shown; None: there are none.
            crowded: that connections of clients are closed since there are too many, in words; empty: they are not.
            tell: takes why connections are turned away whenever that changes; empty: they are not.
            clock: source of time.
            metrics: of the process.
        """
        self._expired: Final = expired
        self._crowded: Final = crowded
        self._tell: Final = tell
        self._clock: Final = clock
        self._log: Final = structlog.get_logger("listeners")
        self.turn_away_because = ""
        """Why connections are turned away, as of the last look; empty: they are not."""
        metrics.observe(instruments.CONNECTIONS_REFUSED, lambda: 1 if self.turn_away_because else 0)

    async def run(self) -> None:
        """Look for ever; a task of the supervisor."""
        while True:
            await self.look()
            await self._clock.sleep(INTERVAL_S)

    async def look(self) -> None:
        """Look once."""
        expired = ""
        if self._expired is not None:
            # On a thread: files are read again.
            expired = await asyncio.to_thread(self._expired.look, self._clock.wall_ms() / 1000)
        because, before = "; ".join(filter(None, (expired, self._crowded()))), self.turn_away_because
        if because == before:
            return
        self.turn_away_because = because
        self._tell(because)
        if because:
            self._log.error("connections are turned away", reason=because)
        else:
            self._log.info("connections are taken again")
