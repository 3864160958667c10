"""Letting go of what is large in steps: to free 200,000 topics takes 200 ms, on whichever thread (safety rule S22).

Who holds the last reference pays for it. So what is retired is handed over here, in a list, and its former owners keep
none. What somebody else has stays with them.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from regnum_service.slices import Turns

V = TypeVar("V")


async def values_gone(retired: list[Mapping[Any, V]], *, weigh: Callable[[V], int], size: int) -> None:
    """Empty the list of mappings, value by value.

    Args:
        retired: the mappings.
        weigh: how much work it is to free a value.
        size: work between two turns of the event loop.
    """
    turns = Turns(size)
    while retired:
        # To list 200,000 values, and to free a mapping whose values have another owner, is 10 ms each.
        values = list(retired[-1].values())
        await asyncio.sleep(0)
        del retired[-1]
        await asyncio.sleep(0)
        while values:
            await turns.took(weigh(values.pop()))


async def items_gone(retired: list[Any], *, size: int) -> None:
    """Empty a list of things of equal weight."""
    while retired:
        del retired[-size:]
        await asyncio.sleep(0)
