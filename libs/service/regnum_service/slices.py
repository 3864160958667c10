"""Long work in parts, with a turn of the event loop between two of them (safety rule S22).

Parts are counted and not timed: where a loop gets its turns does not depend on the machine, so that simulations repeat
and tests can count. Callers choose a size that takes about 10 ms.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


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
            await asyncio.sleep(0)


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
            await asyncio.sleep(0)
