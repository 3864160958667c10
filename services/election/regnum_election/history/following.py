"""FollowEvents as the controller serves it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from regnum_election.history.events import Position
from regnum_election.history.log import EventLog

LOOK_S: Final = 1.0
"""How often it is looked whether the reign is over while nothing happens."""


async def follow(
    log: EventLog, position: Position, *, check: Callable[[], Awaitable[None]]
) -> AsyncGenerator[Sequence[bytes], None]:
    """Entries behind a place, in portions, without end.

    Args:
        log: the controller's.
        position: what the follower has.
        check: raises RegnumError when the reign is over.
    """
    news = asyncio.Event()
    forget = log.wake_on_news(news)
    try:
        while True:
            await check()
            news.clear()
            records = await log.entries_after(position)
            if records:
                position = records[-1].last
                yield [record.payload for record in records]
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await news.wait()
    finally:
        forget()
