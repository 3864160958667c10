"""Server-sent events: parts of a page that are put in place of what stands there, as they change.

A stream ends when its page is closed or the console stops; the page's browser opens it again by itself, unless it was
told that the work is done.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final, Literal, NamedTuple

from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from regnum_console.html import Markup
from regnum_console.port import is_believed_no_more

SILENCE_S: Final = 15.0
"""So often something is sent at least: a connection that is gone is found out by it."""
STREAMS_MAX: Final = 64
"""Streams of a console at a time, or of one visitor:"""
VISITOR_STREAMS_MAX: Final = 8
"""those who sign in have so many each."""


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
    place: str = ""
    """Where the stream is with it: a browser that connects again says so (Last-Event-ID)."""

    @property
    def data(self) -> dict[str, object]:
        """What the page's script is told."""
        return {"element": self.element, "html": self.html, "how": self.how, "keep": self.keep}


class Done(NamedTuple):
    """Nothing comes any more."""

    html: Markup
    """Last words, for the element with the id ``progress``."""


Parts = AsyncGenerator[Part | Done | None, None]
"""What a stream sends; None: nothing new, so that it can be found out whether anything listens."""


class _Answer(StreamingResponse):
    """Ends the stream with the connection: one that waits for its reader is not told of it otherwise."""

    def __init__(self, stream: AsyncGenerator[str, None]) -> None:
        super().__init__(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        self._stream: Final = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._stream.aclose()


class Streams:
    """The open streams of a console, or of one of its visitors."""

    def __init__(self, clock: Clock, *, of_visitor: bool = False) -> None:
        """Only assigns; those of a visitor end, all of them, when the cluster does not believe the visitor any more."""
        self._clock: Final = clock
        self._of_visitor: Final = of_visitor
        self._most: Final = VISITOR_STREAMS_MAX if of_visitor else STREAMS_MAX
        self.open = 0
        """How many there are."""
        self.closing: Final = asyncio.Event()
        """Set when the console stops, or the visitor's session ends: ends the streams, and that session."""

    def answer(self, parts: Parts) -> StreamingResponse:
        """The stream as an answer."""
        return _Answer(self._sent(parts))

    async def _sent(self, parts: Parts) -> AsyncGenerator[str, None]:
        if self.open >= self._most:
            yield _line("done", {"html": f"{self._most} pages are open already: close some, and reload this one"})
            return
        self.open += 1
        closing = asyncio.create_task(self.closing.wait(), name="end of the console")
        said_s = self._clock.monotonic()
        try:
            yield _line("open", {})
            while (part := await _or_end(parts, closing)) is not _END:
                now_s = self._clock.monotonic()
                if part is None:
                    if now_s - said_s < SILENCE_S:
                        continue
                    yield ": still there\n\n"
                elif isinstance(part, Done):
                    yield _line("done", {"html": part.html})
                    return
                elif isinstance(part, Part):
                    yield _line("part", part.data, id=part.place)
                said_s = now_s
        except RegnumError as error:
            if self._of_visitor and is_believed_no_more(error):
                self.closing.set()
            yield _line("trouble", {"text": error.message})
        finally:
            self.open -= 1
            closing.cancel()
            await parts.aclose()

    async def pause(self, seconds: float) -> None:
        """Wait; a console that stops ends the stream meanwhile."""
        await self._clock.sleep(seconds)

    async def changing(self, element: str, render: Callable[[], Awaitable[Markup]], *, every_s: float) -> Parts:
        """What ``render`` says, whenever it says something else."""
        before: Markup | None = None
        while True:
            html = await render()
            yield Part(element, html) if html != before else None
            before = html
            await self.pause(every_s)


_END: Final = object()


async def _or_end(parts: Parts, closing: asyncio.Task[Literal[True]]) -> object:
    """What a stream sends next; _END: nothing, or the console stops, and it is not waited for."""

    async def step() -> object:
        return await anext(parts, _END)

    stepping = asyncio.create_task(step(), name="part of a stream")
    try:
        await asyncio.wait({stepping, closing}, return_when=asyncio.FIRST_COMPLETED)
        return stepping.result() if stepping.done() else _END
    finally:
        if not stepping.done():
            stepping.cancel()
            await asyncio.wait({stepping})


def _line(event: str, data: dict[str, object], *, id: str = "") -> str:
    place = f"id: {id}\n" if id else ""
    return f"{place}event: {event}\ndata: {json.dumps(data)}\n\n"
