"""Pure work of any size without holding the event loop (safety rule S22)."""

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from regnum_service.slices import Turns

BYTES_PER_TURN: Final = 64 * 1024
"""About how many bytes of JSON are decoded on the loop in one turn."""

PARTITION_WEIGHT: Final = 64
"""What putting a partition into a picture weighs, or taking it out: bytes of JSON that take as long to decode."""

T = TypeVar("T")


class Beside:
    """Carries out pure functions: small ones here, with a turn of the loop between many, large ones on a thread."""

    def __init__(self) -> None:
        self._turns = Turns(BYTES_PER_TURN)

    async def result(self, work: Callable[[], T], *, weight: int) -> T:
        """The result of a function that weighs so many bytes of JSON."""
        if weight >= BYTES_PER_TURN:
            return await asyncio.to_thread(work)
        await self._turns.took(weight)
        return work()


async def beside(work: Callable[[], T], *, weight: int) -> T:
    """The result of one pure function, after a turn of the loop; what weighs much is done on a thread."""
    await asyncio.sleep(0)
    return work() if weight < BYTES_PER_TURN else await asyncio.to_thread(work)
