"""What is retired is let go of in steps, and what somebody else has stays."""

import asyncio
import weakref
from collections.abc import Mapping
from itertools import pairwise

from immutables import Map
from regnum_service.letting_go import items_gone, values_gone

COUNT = 600
SIZE = 100


class Watched:
    """Something that says how many of it there are."""

    alive = 0

    def __init__(self) -> None:
        type(self).alive += 1
        weakref.finalize(self, self._gone)

    @classmethod
    def _gone(cls) -> None:
        cls.alive -= 1


def mapping(count: int) -> Mapping[int, Watched]:
    made: Map[int, Watched] = Map({number: Watched() for number in range(count)})
    return made


async def gone(retired: list[Mapping[int, Watched]]) -> list[int]:
    """Let go; how many were left at each turn of the loop."""
    left: list[int] = []

    async def look() -> None:
        while True:
            left.append(Watched.alive)
            await asyncio.sleep(0)

    looking = asyncio.create_task(look())
    # One turn: it looks.
    await asyncio.sleep(0)
    await values_gone(retired, weigh=lambda _: 1, size=SIZE)
    looking.cancel()
    return left


async def test_values_go_in_steps() -> None:
    retired = [mapping(COUNT), mapping(COUNT)]
    left = [*await gone(retired), Watched.alive]
    assert (left[0], left[-1], retired) == (2 * COUNT, 0, [])
    assert max(before - after for before, after in pairwise(left)) <= SIZE


async def test_values_that_somebody_has_stay() -> None:
    kept, also_kept = mapping(10), mapping(5)
    await gone([kept, also_kept, mapping(3)])
    assert Watched.alive == 15
    assert len(kept) == 10
    del kept, also_kept
    assert Watched.alive == 0


async def test_items_go_too() -> None:
    items = list(range(COUNT))
    await items_gone(items, size=SIZE)
    assert items == []
