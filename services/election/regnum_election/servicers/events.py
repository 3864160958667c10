"""EventService on the client listener: what happened, and why."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import grpc
from regnum.admin.v1 import events_pb2, events_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.topics import MAX_NAME_LENGTH
from regnum_service.clock import Clock
from regnum_service.deadlines import waitable_s
from regnum_service.errors import RegnumError

from regnum_election.history.events import Position
from regnum_election.history.following import LOOK_S
from regnum_election.history.log import EventLog
from regnum_election.history.search import LIMIT_DEFAULT, LIMIT_MAX, Found, position_of

WAIT_MS_MAX: Final = 30_000
"""How long a call may wait for news."""

KINDS_MAX: Final = 100
"""Kinds that a filter may name."""

Context = grpc.aio.ServicerContext[Any, Any]


class EventServicer(events_pb2_grpc.EventServiceServicer):
    """Answered by the controller: other processes have the same log, but a little later."""

    def __init__(self, reigns: Callable[[], Awaitable[object]], events: EventLog, clock: Clock) -> None:
        """Only assigns.

        Args:
            reigns: returns while this process reigns; raises RegnumError NOT_CONTROLLER otherwise.
            events: the event log of this process.
            clock: source of time.
        """
        self._clock: Final = clock
        self._reigns: Final = reigns
        self._events: Final = events

    async def DescribeEvents(  # noqa: N802 - the name in the proto
        self,
        request: events_pb2.DescribeEventsRequest,
        context: Context,
    ) -> events_pb2.DescribeEventsResponse:
        """A page of the log."""
        _check(request)
        found = await self._found(request, waitable_s(context))
        place = found.next
        return events_pb2.DescribeEventsResponse(
            events=found.events,
            next=None if place is None else events_pb2.EventPosition(controller_epoch=place.epoch, number=place.number),
            more=found.more,
            dropped=self._events.dropped,
            on_disk=self._events.on_disk,
        )

    async def _found(self, request: events_pb2.DescribeEventsRequest, waitable_s: float) -> Found:
        """A page; one that has nothing yet is waited for, if the caller wants that."""
        after = position_of(request.after) if request.HasField("after") else None
        deadline_s = self._clock.monotonic() + (0 if after is None else min(request.wait_ms / 1000, waitable_s))
        news = asyncio.Event()
        forget = self._events.wake_on_news(news)
        try:
            while True:
                news.clear()
                await self._reigns()
                found = await self._search(request, after)
                left_s = deadline_s - self._clock.monotonic()
                if found.events or found.more or left_s <= 0:
                    return found
                after = found.next
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left_s, LOOK_S)):
                        await news.wait()
        finally:
            forget()

    async def _search(self, request: events_pb2.DescribeEventsRequest, after: Position | None) -> Found:
        before = position_of(request.before) if request.HasField("before") else None
        limit = min(request.limit or LIMIT_DEFAULT, LIMIT_MAX)
        try:
            return await self._events.search(request, limit=limit, after=after, before=before)
        except OSError as error:
            raise RegnumError(
                errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR,
                f"the event log cannot be read: {error.strerror}; look at the run directory of the controller",
            ) from error


def _check(request: events_pb2.DescribeEventsRequest) -> None:
    """Raise RegnumError INVALID_REQUEST unless it makes sense."""
    chosen = request.filter
    places = [request.before] * request.HasField("before") + [request.after] * request.HasField("after")
    if len(places) > 1:
        raise _invalid("a page is before a place or after one; leave one of both out")
    if any(place.controller_epoch < 0 or place.number < 0 for place in places):
        raise _invalid("a place in the log has no negative numbers; send back that of the page before")
    if request.limit < 0 or not 0 <= request.wait_ms <= WAIT_MS_MAX:
        raise _invalid(f"limit is not negative, and wait_ms lies between 0 and {WAIT_MS_MAX}")
    if len(chosen.topic) > MAX_NAME_LENGTH or len(chosen.kinds) > KINDS_MAX:
        raise _invalid(f"the filter names a topic of at most {MAX_NAME_LENGTH} characters and {KINDS_MAX} kinds")
    if chosen.HasField("partition") and not chosen.topic:
        raise _invalid("a partition is one of a topic; name the topic, too")


def _invalid(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
