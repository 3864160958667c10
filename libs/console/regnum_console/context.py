"""What every page is given."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from regnum_console.html import Child, Markup, el
from regnum_console.keeping import Kept, TopicLags
from regnum_console.live.feed import Feed
from regnum_console.live.streams import Streams
from regnum_console.port import Ports, is_believed_no_more

T = TypeVar("T")

ID_MAX: Final = 2**31 - 1
"""Of brokers and partitions."""
DIGITS_MAX: Final = 19
"""Of a number that is read: longer ones are larger than any that there is, and Python reads no number of any length."""
TOGETHER_MAX: Final = 8
"""Calls of one page that run beside one another."""
SEARCHES_MAX: Final = 2
"""Searches that run at a time, and so many questions about all partitions."""
READS_MAX: Final = 8
"""Pages of records that are made at a time."""
FOLLOWS_MAX: Final = 8
"""Those that follow records, and others are made meanwhile: each of all these may hold the reader's buffer."""


class Turns:
    """So much work at a time: of all, and of one visitor, who waits for the own work and takes no turn meanwhile."""

    def __init__(self, most: int, *, within: "Turns | None" = None) -> None:
        self._own: Final = asyncio.Semaphore(most)
        self._within: Final = within

    def locked(self) -> bool:
        """Whether more work would have to wait."""
        return self._own.locked() or (self._within is not None and self._within.locked())

    async def __aenter__(self) -> None:
        await self._own.acquire()
        if self._within is not None:
            try:
                await self._within.__aenter__()
            except BaseException:
                self._own.release()
                raise

    async def __aexit__(self, *_: object) -> None:
        if self._within is not None:
            await self._within.__aexit__()
        self._own.release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What the pages of one console share."""

    ports: Ports
    """The cluster."""
    clock: Clock
    """Source of time."""
    feed: Feed
    """Changes of leadership."""
    streams: Streams
    """Streams to open pages."""
    token: str
    """Shown by every form that changes something."""
    searches: "Turns" = field(default_factory=lambda: Turns(SEARCHES_MAX))
    """Taken by what goes through records."""
    reads: "Turns" = field(default_factory=lambda: Turns(READS_MAX))
    """Taken by pages of records while they are made."""
    follows: "Turns" = field(default_factory=lambda: Turns(FOLLOWS_MAX))
    """Taken by pages that follow records, for as long as they are open."""
    scans: "Turns" = field(default_factory=lambda: Turns(SEARCHES_MAX))
    """Taken by what asks about all partitions."""
    topic_lags: Kept[TopicLags] = field(default_factory=Kept)
    """Asked for by lists of topics."""
    visitor: str | None = None
    """Id of the token that the visitor signed in with; None: pages have the rights of the console's caller."""

    @property
    def writes(self) -> bool:
        """Whether records may be produced."""
        return self.ports.write is not None


async def told(call: Awaitable[T]) -> T | RegnumError:
    """What a call answers, or why it does not: a page shows the rest. Raises for a caller who is not believed."""
    try:
        return await call
    except RegnumError as error:
        if is_believed_no_more(error):
            raise
        return error


async def some_at_a_time(calls: Iterable[Awaitable[T]]) -> list[T | RegnumError]:
    """What many calls answer, TOGETHER_MAX of them at a time."""
    gate = asyncio.Semaphore(TOGETHER_MAX)

    async def one(call: Awaitable[T]) -> T | RegnumError:
        async with gate:
            return await told(call)

    return await asyncio.gather(*map(one, calls))


def untold(what: str, error: RegnumError) -> Markup:
    """That something could not be found out, and why."""
    return el("p", f"{what}: {error.message}", class_="bad")


def link(path: str, *text: Child, **query: str | int | None) -> Markup:
    """A link below this console. Parts of ``path`` that come from the cluster were quoted by ``part``."""
    chosen = {key.rstrip("_"): value for key, value in query.items() if value not in (None, "")}
    return el("a", *text, href=f"{path}?{urlencode(chosen)}" if chosen else path)


def part(name: str) -> str:
    """A name as a part of a path."""
    return quote(name, safe="")


def partition_link(topic: str, number: int) -> Markup:
    """``orders/0``."""
    return link(f"/topics/{part(topic)}/{number}", f"{topic}/{number}")


def wrong(message: str) -> HTTPException:
    """The address asks for what there cannot be."""
    return HTTPException(400, message)


def whole_number(request: Request, name: str, *, otherwise: int, largest: int) -> int:
    """A number of the address. Raises HTTPException 400."""
    text = request.query_params.get(name) or ""
    return number_in(name, text, largest=largest) if text else otherwise


def number_in(name: str, text: str, *, largest: int) -> int:
    """A number as a visitor wrote it, of any length. Raises HTTPException 400."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else largest + 1
    if number > largest:
        raise wrong(f"{name} is a number from 0 to {largest}, and not {text[:40]!r}")
    return number


def ids(numbers: Iterable[int]) -> str:
    """Brokers in a cell."""
    return ", ".join(map(str, numbers)) or "none"
