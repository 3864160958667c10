"""What the coordination store refuses a process for want of rights: said once, and known for as long as it lasts.

What is refused is tried again until it is allowed, every few seconds at the latest: a refusal that is not repeated for
some seconds is over.
"""

from typing import Final

import structlog
from regnum_coordination.errors import NoAuth

from regnum_service.clock import Clock

LASTS_S: Final = 5.0
"""Time without a refusal after which it is over."""


class StoreRefusals:
    """One for each process; told on its event loop, read by any thread."""

    def __init__(self, clock: Clock) -> None:
        """Only assigns."""
        self._clock: Final = clock
        self._last: tuple[float, str] | None = None
        self._log: Final = structlog.get_logger("store")

    @property
    def now(self) -> str:
        """Why the store refuses something now; empty: it does not, as far as is known."""
        last = self._last
        return "" if last is None or self._clock.monotonic() - last[0] > LASTS_S else last[1]

    def met(self, error: NoAuth) -> None:
        """The store has refused something."""
        if not self.now:
            self._log.error(
                "the coordination store refuses this process", reason=str(error), effect="waiting until it is allowed"
            )
        self._last = (self._clock.monotonic(), str(error))
