"""How a process stands with the coordination store: looked at on its event loop, read by any thread."""

from collections.abc import Callable
from typing import Final

from regnum_coordination.port import SessionState, Store
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics

from regnum_service.clock import Clock

INTERVAL_S: Final = 1.0
"""Time between two looks."""


class StoreContact:
    """One for each process."""

    def __init__(
        self,
        store: Callable[[], Store | None],
        clock: Clock,
        metrics: Metrics,
        *,
        why_none: Callable[[], str] = lambda: "another one is being opened",
        refused: Callable[[], str] = lambda: "",
    ) -> None:
        """Only assigns, and lets the metrics read it.

        Args:
            store: the present session; None: there is none.
            clock: source of time.
            metrics: of the process.
            why_none: why there is none, in words.
            refused: why the store refuses what the process asks for; empty: it does not.
        """
        self._refused: Final = refused
        self._store: Final = store
        self._clock: Final = clock
        self._why_none: Final = why_none
        self.trouble = ""
        """What is wrong, in words; empty: there is a session, and the store answers, as of the last look."""
        metrics.observe(instruments.STORE_CONNECTED, lambda: 0 if self.trouble else 1)

    async def run(self) -> None:
        """Look for ever; a task of the supervisor."""
        while True:
            self.trouble = self._look()
            await self._clock.sleep(INTERVAL_S)

    def _look(self) -> str:
        store = self._store()
        if store is None:
            return f"no session with the coordination store: {self._why_none()}"
        if store.session_state is SessionState.CONNECTED:
            refused = self._refused()
            return refused and f"the coordination store refuses this process: {refused}"
        return f"the coordination store does not answer: the session is {store.session_state.value}"
