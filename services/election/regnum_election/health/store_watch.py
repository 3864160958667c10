"""Whether the coordination store takes writes: what an idle cluster would find out with the next failure only.

Goals: known within seconds, whatever the reason (no space, no quorum, a user without rights, a slow disk), and in the
store's own words; nothing is changed by asking.

Algorithm: every few seconds a write is asked for that can never happen (``reign.probe_write``). A store that says that
it takes none, or none of this user, is believed at once; one that does not answer may be electing a leader, and is
given FAILING_S. What single nodes refuse the reign is told as well, and keeps no request from being taken.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from regnum_coordination.errors import ConnectionLoss, InvalidRequest, NoAuth, SessionExpired, StoreFull
from regnum_coordination.port import Store
from regnum_service.clock import Clock

from regnum_election.reign.probe_write import probe_write

INTERVAL_S: Final = 2.0
"""Time between two of these writes."""

AGAIN_S: Final = 0.2
"""The same while the last one was not answered."""

PATIENCE_S: Final = 4.0
"""How long one is waited for: on etcd it takes two round trips, since what is refused is sent again (decision 3)."""

FAILING_S: Final = 4.0
"""Time without an answer after which the store counts as one that takes no writes."""

SLOW_S: Final = 1.0
"""A write that takes longer is told of."""


class StoreWatch:
    """One for each reign. Belongs to the controller's loop; its properties may be read by any thread."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        changed: Callable[[str], None],
        *,
        closed: Callable[[], str] = lambda: "",
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Only assigns.

        Args:
            store: the reign's session.
            clock: source of time.
            changed: told why the store takes no writes, and with an empty text that it takes them again.
            closed: why the store refuses the reign some node; empty: it does not.
            told: told what the store refuses, be it one node, and with an empty text that it refuses nothing any more.
        """
        self._closed: Final = closed
        self._told: Final = told
        self._last_told = ""
        self._store: Final = store
        self._clock: Final = clock
        self._changed: Final = changed
        self._failing_since_s: float | None = None
        self._log: Final = structlog.get_logger("health")
        self.refuses_because = ""
        """Why the store takes no writes; empty: it does, as far as is known."""
        self.took_s = 0.0
        """Seconds that the last write took which was answered; on etcd up to twice those of one that happens."""

    @property
    def refusal(self) -> str:
        """What the store refuses, be it one node; empty: nothing, as far as is known."""
        return self.refuses_because or self._closed()

    @property
    def trouble(self) -> str:
        """What is to be said of the store: the end of a sentence that begins with it; empty: nothing."""
        if self.refuses_because:
            return f"takes no writes, so no leader is elected and nothing changed: {self.refuses_because}"
        if closed := self._closed():
            return f"refuses the controller a part of the tree: {closed}"
        return f"is slow: a write takes {self.took_s:.1f} s, and failovers as long" if self.took_s > SLOW_S else ""

    async def run(self) -> None:
        """Look for as long as the session lasts; a task of the supervisor. Its end is for the reign to find."""
        while True:
            try:
                await self.look()
            except SessionExpired:
                return
            await self._clock.sleep(INTERVAL_S if self._failing_since_s is None else AGAIN_S)

    async def look(self) -> None:
        """Ask for one write. Raises SessionExpired."""
        began_s = self._clock.monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await probe_write(self._store)
        except (StoreFull, NoAuth, InvalidRequest) as error:
            self._note(str(error))
        except ConnectionLoss as error:
            self._failed(str(error), began_s)
        except TimeoutError:
            self._failed(f"no write has been answered for {PATIENCE_S:.0f} s", began_s)
        else:
            self.took_s = self._clock.monotonic() - began_s
            self._failing_since_s = None
            self._note("")

    def _failed(self, because: str, began_s: float) -> None:
        if self._failing_since_s is None:
            self._failing_since_s = began_s
        if self._clock.monotonic() - self._failing_since_s >= FAILING_S:
            self._note(because)

    def _note(self, because: str) -> None:
        before, self.refuses_because = self.refuses_because, because
        if because and not before:
            self._log.error("store takes no writes", reason=because, effect="nothing can be elected or changed")
        elif before and not because:
            self._log.info("store takes writes again")
        if bool(before) != bool(because):
            self._changed(because)
        refusal = self.refusal
        if bool(self._last_told) != bool(refusal):
            self._told(refusal)
        self._last_told = refusal
