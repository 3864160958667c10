"""Figures that take many calls to find out: found out once in a while for all pages that ask, and kept meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from regnum_service.clock import Clock

T = TypeVar("T")

KEPT_S: Final = 10.0
"""So long a figure is kept."""


class TopicLags(NamedTuple):
    """How far groups are behind, by topic."""

    of: Mapping[str, int]
    """Records that the groups of a topic have before them, all added up; of topics of which something is committed."""
    note: str
    """Why that is not all; empty: it is."""


class Kept(Generic[T]):
    """One such figure."""

    def __init__(self) -> None:
        self._turn: Final = asyncio.Lock()
        self._at_s = 0.0
        self._value: T | None = None

    async def get(self, find: Callable[[], Awaitable[T]], clock: Clock) -> T:
        """The figure, not older than KEPT_S; one page finds it out, and others wait for it. Raises as ``find``."""
        async with self._turn:
            if self._value is None or clock.monotonic() - self._at_s >= KEPT_S:
                self._value = await find()
                self._at_s = clock.monotonic()
            return self._value
