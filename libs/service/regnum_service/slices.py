"""Long work in parts, with a turn of the event loop between two of them (safety rule S22).

Parts are counted and not timed: where a loop gets its turns does not depend on the machine, so that simulations repeat
and tests can count. Callers choose a size that takes about 10 ms.

Of all that is done in parts one part is done in a turn of the loop, in turns of the callers for whom it is: ten
requests that are each done in parts of 10 ms would make every turn 100 ms long, and an acknowledgement takes a dozen
turns. What the process does for itself is one of them; between the parts of calls there are TURNS_BETWEEN, in which
short work goes on.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from itertools import islice
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from regnum_service.access.identity import caller
from regnum_service.limits.call import Call
from regnum_service.limits.turns_of_callers import TurnsOfCallers

T = TypeVar("T")

TURNS_BETWEEN: Final = 4
"""Turns of the loop from a part of a call to the next: 0.1 ms where there is nothing else to do."""

_PARTS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, TurnsOfCallers]] = WeakKeyDictionary()


async def next_turn() -> None:
    """Return in another turn of the loop, in which no other part of work is done."""
    loop, who = asyncio.get_running_loop(), caller()
    turns = _PARTS.get(loop)
    if turns is None:
        turns = _PARTS[loop] = TurnsOfCallers(1)
    payer = Call(peer=who.host, principal=who.principal).payer
    async with turns.turn(payer):
        for _ in range(TURNS_BETWEEN if payer else 1):
            await asyncio.sleep(0)


async def slices(items: Iterable[T], size: int) -> AsyncGenerator[tuple[T, ...], None]:
    """The items in parts of at most ``size``, in order; the loop gets a turn before each part but the first.

    Do not change what is iterated over in the meantime: others run between two parts. Raises ValueError unless size is
    at least 1.
    """
    if size < 1:
        raise ValueError(f"a slice holds at least one item, not {size}")
    remaining = iter(items)
    part = tuple(islice(remaining, size))
    while part:
        yield part
        if part := tuple(islice(remaining, size)):
            await next_turn()


class Turns:
    """Gives the loop a turn whenever enough work was done since the last one; for items of unequal weight."""

    def __init__(self, size: int) -> None:
        """``size``: work between two turns, in the caller's unit. Raises ValueError unless it is at least 1."""
        if size < 1:
            raise ValueError(f"a slice holds at least one item, not {size}")
        self._size = size
        self._done = 0

    async def took(self, work: int = 1) -> None:
        """That much work is done."""
        self._done += work
        if self._done >= self._size:
            self._done = 0
            await next_turn()
