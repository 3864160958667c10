"""Names of topics in order, for those who serve them page by page.

Goals: a page costs what it shows and not what there is; who never asks pays nothing; nothing holds the loop (safety
rule S22).

Constraints: the map of topics has no order, is replaced with every change, and a change may be any part of it. To sort
200,000 names is one step of 0.1 s.

Algorithm: blocks of sorted names, made when somebody first asks: parts are sorted on their own and merged in steps.
From then on the owner of the map says which topics every change named, and they are looked up when somebody asks
again: there or not there, in the blocks or not. After a change of very many, or of everything, the order is dropped and
made anew for the next who asks.
"""

import asyncio
import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from regnum_service.slices import Turns, slices

SORTED_AT_ONCE: Final = 5_000
"""Names sorted in one step: about 2 ms."""

BLOCK: Final = 1_000
"""Names of a block, about; twice as many make two of it."""

NAMES_PER_TURN: Final = 2_000
"""Names looked up or merged between two turns of the event loop."""

CHANGED_MAX: Final = 20_000
"""Names that may have changed since somebody asked, before it is cheaper to begin anew."""


class NameOrder:
    """Of one map of topics. Belongs to the event loop; whoever asks does so one at a time (``asking``)."""

    def __init__(self) -> None:
        """Only makes its lock."""
        self._blocks: list[list[str]] = []
        self._is_kept = False
        """Whether the blocks, with what has changed, say what there is."""
        self._changed: dict[str, None] = {}
        self.asking: Final = asyncio.Lock()
        """Held by whoever asks, until it has gone through what it asked for."""
        self._life = 0
        """Grows whenever what is known is dropped."""
        self.sorts = 0
        """How often everything was put in order."""

    def note(self, names: Iterable[str]) -> None:
        """These topics may have come, gone or stayed."""
        if not self._is_kept:
            return
        # No more of them than make a difference: a change may name all there are.
        self._changed.update(dict.fromkeys(islice(names, CHANGED_MAX + 1)))
        if len(self._changed) > CHANGED_MAX:
            self.forget()

    def forget(self) -> None:
        """Any topic may have."""
        self._is_kept = False
        self._life += 1
        self._blocks = []
        self._changed = {}

    async def bring_up(self, topics: Callable[[], Mapping[str, object]]) -> None:
        """Put in order what there is now."""
        turns = Turns(NAMES_PER_TURN)
        while self._changed or not self._is_kept:
            if not self._is_kept:
                await self._begin(topics())
                continue
            name, _ = self._changed.popitem()
            self._settle(name, is_there=name in topics())
            await turns.took()

    async def _begin(self, topics: Mapping[str, object]) -> None:
        self._is_kept, life = True, self._life
        blocks: list[list[str]] | None = None
        try:
            # What changes from here on is noted meanwhile.
            blocks = await _blocks_of(topics)
        finally:
            if blocks is None:
                self.forget()
        if life == self._life:
            self._blocks = blocks
            self.sorts += 1

    def since(self, name: str) -> Iterator[str]:
        """That name and all behind it, in order. Good until ``bring_up`` is called again."""
        blocks = self._blocks
        first = bisect_left(blocks, name, key=lambda block: block[-1])
        for index in range(first, len(blocks)):
            block = blocks[index]
            yield from block[bisect_left(block, name) :] if index == first else block

    def _settle(self, name: str, *, is_there: bool) -> None:
        blocks = self._blocks
        if not blocks:
            if is_there:
                blocks.append([name])
            return
        place = min(bisect_left(blocks, name, key=lambda block: block[-1]), len(blocks) - 1)
        block = blocks[place]
        index = bisect_left(block, name)
        is_known = index < len(block) and block[index] == name
        if is_there and not is_known:
            block.insert(index, name)
            if len(block) > 2 * BLOCK:
                blocks[place : place + 1] = [block[:BLOCK], block[BLOCK:]]
        elif is_known and not is_there:
            del block[index]
            if not block:
                del blocks[place]


async def _blocks_of(topics: Mapping[str, object]) -> list[list[str]]:
    parts = [sorted(part) async for part in slices(topics, SORTED_AT_ONCE)]
    if len(parts) == 1:
        (only,) = parts
        return [only[start : start + BLOCK] for start in range(0, len(only), BLOCK)]
    blocks: list[list[str]] = []
    merged = heapq.merge(*parts)
    block: list[str] = []
    for name in merged:
        block.append(name)
        if len(block) == BLOCK:
            blocks.append(block)
            block = []
            await asyncio.sleep(0)
    if block:
        blocks.append(block)
    return blocks
