"""Changes of leadership for a visitor: traces have no rights of their own, so that those of the event log count.

Spans name topics, brokers and clients. A visitor that may read the cluster's events may see what becomes of leadership;
another one is refused by the cluster, in its own words.
"""

import asyncio
from typing import Final

from regnum_client.admin.describing.events import EventFilter
from regnum_service.clock import Clock

from regnum_console.live.feed import Feed, Known
from regnum_console.port import Cluster

AGAIN_S: Final = 2.0
"""A right is asked for anew after so long: it may be taken back, and a token ends, while a page is open."""


class WatchedFeed:
    """A feed as one visitor may see it; see ``ChangeFeed``."""

    def __init__(self, feed: Feed, cluster: Cluster, clock: Clock) -> None:
        """Only assigns; ``cluster`` is asked as the visitor."""
        self._feed: Final = feed
        self._cluster: Final = cluster
        self._clock: Final = clock
        self._lock: Final = asyncio.Lock()
        self._until_s = float("-inf")

    @property
    def has_traces(self) -> bool:
        """Whether spans come from anywhere."""
        return self._feed.has_traces

    async def look(self) -> tuple[Known, ...]:
        """The changes as of now. Raises RegnumError for a visitor who may not read events."""
        async with self._lock:
            if self._clock.monotonic() >= self._until_s:
                await self._cluster.last_events(EventFilter(), limit=1)
                self._until_s = self._clock.monotonic() + AGAIN_S
        return await self._feed.look()
