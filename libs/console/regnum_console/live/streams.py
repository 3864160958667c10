"""Server-sent events: parts of a page that are put in place of what stands there, as they change.

A stream ends when its page is closed or the console stops; the page's browser opens it again by itself, unless it was
told that the work is done.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, NamedTuple

from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from starlette.responses import StreamingResponse

from regnum_console.html import Markup

SILENCE_S: Final = 15.0
"""So often something is sent at least: a connection that is gone is found out by it."""
STREAMS_MAX: Final = 64
"""Streams at a time."""


class Part(NamedTuple):
    """What is to stand in an element of the page."""

    element: str
    """Its id."""
    html: Markup
    """What is to stand there."""
    how: str = "replace"
    """``replace``: in place of what is there; ``prepend``, ``append``: beside it."""
    keep: int = 0
    """With the latter: so many children stay, the newest; 0: all."""


class Done(NamedTuple):
    """Nothing comes any more."""

    html: Markup
    """Last words, for the element with the id ``progress``."""


Parts = AsyncGenerator[Part | Done | None, None]
"""What a stream sends; None: nothing new, so that it can be found out whether anything listens."""


class Streams:
    """The open streams of a console."""

    def __init__(self, clock: Clock) -> None:
        """Only assigns."""
        self._clock: Final = clock
        self._open = 0
        self.closing: Final = asyncio.Event()
        """Set when the console stops."""

    def answer(self, parts: Parts) -> StreamingResponse:
        """The stream as an answer."""
        return StreamingResponse(self._sent(parts), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def _sent(self, parts: Parts) -> AsyncGenerator[str, None]:
        if self._open >= STREAMS_MAX:
            yield _line("done", {"html": f"{STREAMS_MAX} pages are open already: close some, and reload this one"})
            return
        self._open += 1
        said_s = self._clock.monotonic()
        try:
            yield _line("open", {})
            async for part in parts:
                now_s = self._clock.monotonic()
                if self.closing.is_set():
                    return
                if part is None:
                    if now_s - said_s < SILENCE_S:
                        continue
                    yield ": still there\n\n"
                elif isinstance(part, Done):
                    yield _line("done", part._asdict())
                    return
                else:
                    yield _line("part", part._asdict())
                said_s = now_s
        except RegnumError as error:
            yield _line("trouble", {"text": error.message})
        finally:
            self._open -= 1
            await parts.aclose()

    async def pause(self, seconds: float) -> None:
        """Wait, or until the console stops."""
        try:
            async with asyncio.timeout(seconds):
                await self.closing.wait()
        except TimeoutError:
            return

    async def changing(self, element: str, render: Callable[[], Awaitable[Markup]], *, every_s: float) -> Parts:
        """What ``render`` says, whenever it says something else."""
        before: Markup | None = None
        while True:
            html = await render()
            yield Part(element, html) if html != before else None
            before = html
            await self.pause(every_s)


def _line(event: str, data: dict[str, object]) -> str:
    return f"event: {event}\ndata: {json.dumps(data)}\n\n"
