"""Keeps the broker's quotas as the store has them: read at the start of each session and with every announced change.

A broker that cannot read them goes on with what it knows: a store that is away takes nobody's quota away.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Final

import structlog
from regnum_coordination.errors import ConnectionLoss, NoNode, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.stored_quotas import StoreReader, read_quotas
from regnum_coordination.timing import Backoff
from regnum_model.quotas import CHANGES, QuotaTable
from regnum_service.clock import Clock


class QuotaWatch:
    """A task of the supervisor."""

    def __init__(
        self, *, wait_store: Callable[[], Awaitable[Store]], take_up: Callable[[QuotaTable], None], clock: Clock
    ) -> None:
        """Only assigns.

        Args:
            wait_store: the present session, as soon as there is one.
            take_up: told what was read.
            clock: paces the tries.
        """
        self._wait_store: Final = wait_store
        self._take_up: Final = take_up
        self._clock: Final = clock
        self._backoff: Final = Backoff()
        self._log: Final = structlog.get_logger("client quotas")

    async def run(self) -> None:
        """Follow one session after another, for ever."""
        attempts = 0
        while True:
            store = await self._wait_store()
            try:
                async with aclosing(store.watch_children(CHANGES)) as changes:
                    async for _ in changes:
                        # What is announced is written already; each change is read with all others.
                        table = (await read_quotas(StoreReader(store))).table
                        attempts = 0
                        self._take_up(table)
            except (ConnectionLoss, SessionExpired, NoNode) as error:
                self._log.info("quotas not followed; trying on", reason=str(error))
            attempts += 1
            await self._clock.sleep(self._backoff.pause_s(attempts))
