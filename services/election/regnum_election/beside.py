"""Pure work that may take long, without holding the event loop (safety rule S22)."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

BYTES_PER_TURN: Final = 64 * 1024
"""About how many bytes of JSON are decoded on the loop in one turn."""

PARTITION_WEIGHT: Final = 64
"""What putting a partition into a picture weighs, or taking it out: bytes of JSON that take as long to decode."""

T = TypeVar("T")


async def beside(work: Callable[[], T], *, weight: int) -> T:
    """The result of a pure function; what weighs much, in bytes of JSON, is done on a thread."""
    await asyncio.sleep(0)
    return work() if weight < BYTES_PER_TURN else await asyncio.to_thread(work)
