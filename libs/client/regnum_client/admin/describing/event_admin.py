"""Asks the controller what happened."""

from collections.abc import AsyncGenerator
from typing import Final

from regnum_service.errors import RegnumError

from regnum_client.admin.describing.events import (
    BEGINNING,
    ClusterEvent,
    EventFilter,
    EventPage,
    EventPosition,
    page_from_wire,
    request_of,
)
from regnum_client.admin.session import AdminSession, call_s
from regnum_client.cluster.connections import call

ANY: Final = EventFilter()
"""Chooses every event."""

PAGE: Final = 500
"""Events of a page."""

WAIT_S: Final = 5.0
"""How long the controller waits for news, when they are followed, before it says that there are none."""


class EventAdmin(AdminSession):
    """What happened in the cluster, and why, from the event log that the controller keeps."""

    async def describe_events(
        self,
        chosen: EventFilter = ANY,
        *,
        before: EventPosition | None = None,
        after: EventPosition | None = None,
        limit: int = 0,
        wait_s: float = 0.0,
    ) -> EventPage:
        """One page: newest first, from what lies before a place, or oldest first, from what lies behind one.

        Args:
            chosen: which events.
            before: newest first from here; None, and ``after`` too: from the end of the log.
            after: oldest first from here.
            limit: events at most; 0: as many as the controller likes.
            wait_s: with ``after``: how long to wait when there is nothing yet, up to 30 s.

        Raises:
            RegnumError: INVALID_REQUEST, or no broker answered in the time of the client.
        """
        request = request_of(chosen, before=before, after=after)
        request.header.client_id = self._client_id
        request.limit, request.wait_ms = limit, round(wait_s * 1000)
        search = self._search()
        while True:
            address = await search.address()
            try:
                answer = await call(
                    self._connections.events(address).DescribeEvents, request, timeout_s=call_s(search) + wait_s
                )
            except RegnumError as error:
                await search.failed(address, error)
                continue
            return page_from_wire(answer)

    async def last_events(self, chosen: EventFilter = ANY, *, limit: int) -> tuple[ClusterEvent, ...]:
        """The newest events that are chosen, newest first, at most ``limit`` of them. Raises as ``describe_events``."""
        found: list[ClusterEvent] = []
        before: EventPosition | None = None
        while len(found) < limit:
            page = await self.describe_events(chosen, before=before, limit=min(PAGE, limit - len(found)))
            found.extend(page.events)
            if not page.more or page.next is None:
                break
            before = page.next
        return tuple(found)

    async def events_after(
        self, chosen: EventFilter = ANY, *, after: EventPosition = BEGINNING, follow: bool = False
    ) -> AsyncGenerator[tuple[ClusterEvent, ...], None]:
        """Events behind a place, oldest first, a page at a time. Raises as ``describe_events``.

        Args:
            chosen: which.
            after: the place.
            follow: go on with what happens; empty pages say that nothing did for some seconds.
        """
        while True:
            page = await self.describe_events(chosen, after=after, limit=PAGE, wait_s=WAIT_S if follow else 0.0)
            yield page.events
            if page.next is not None:
                after = page.next
            if not (follow or page.more):
                return
