"""Pages of keys that stand in no order: each page looks at all of them and keeps the smallest.

So what comes and goes between two pages leaves nothing else out, and nobody keeps anything for a reader who may never
come back.
"""

from collections.abc import Iterable
from heapq import nsmallest
from typing import Final

from regnum_model.ids import PartitionKey
from regnum_service.slices import slices

KEYS_PER_TURN: Final = 5_000
"""Keys that are compared between two turns of the event loop (safety rule S22)."""

KEYS_KEPT: Final = 8_000
"""Keys that are held before the smallest of them are chosen."""


async def page_of(
    keys: Iterable[PartitionKey], after: PartitionKey | None, count: int
) -> tuple[list[PartitionKey], bool]:
    """The ``count`` smallest keys after ``after`` (None: of all), in order, and whether there are more.

    Args:
        keys: each once; iterated over between turns of the event loop, so it must not change meanwhile.
        after: where the page before ended.
        count: at most so many.
    """
    found: list[PartitionKey] = []
    async for part in slices(keys, KEYS_PER_TURN):
        found += part if after is None else [key for key in part if key > after]
        if len(found) > KEYS_KEPT:
            found = nsmallest(count + 1, found)
    found = nsmallest(count + 1, found)
    return found[:count], len(found) > count
