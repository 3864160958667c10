"""Waiting for conditions instead of sleeping."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

_T = TypeVar("_T")

DEADLINE_S: Final = 60.0
"""Longest wait for what is promised to come, time-outs of calls that are to be answered included.

No promise in itself: what passes waits no longer than it takes. A machine on which a dozen processes of a cluster start
at the same time gives a test less than a tenth of a processor for some seconds.
"""


async def eventually(
    condition: Callable[[], Awaitable[bool]], *, within_s: float = DEADLINE_S, what: str = "the condition"
) -> None:
    """Return when the condition holds; AssertionError when it does not in time."""
    give_up_s = time.monotonic() + within_s
    while True:
        if await condition():
            return
        if time.monotonic() > give_up_s:
            raise AssertionError(f"{what} did not come true within {within_s} s")
        await asyncio.sleep(0.01)


async def until(condition: Callable[[], object] | Callable[[], Awaitable[bool]], what: str = "the condition") -> None:
    """Return when the condition is true, asked every millisecond; AssertionError when it does not become so in time."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                answer = condition()
                if await answer if isinstance(answer, Awaitable) else answer:
                    return
                await asyncio.sleep(0.001)
    except TimeoutError:
        raise AssertionError(f"{what} did not come true within {DEADLINE_S} s") from None


async def awaited(holds: Callable[[], Awaitable[bool]], *, until_s: float, every_s: float) -> bool:
    """Whether the condition came true by then.

    Args:
        holds: the condition.
        until_s: monotonic time.
        every_s: time between two looks, which may be dear.
    """
    while not await holds():
        if time.monotonic() >= until_s:
            return False
        await asyncio.sleep(every_s)
    return True


async def within(awaitable: Awaitable[_T], seconds: float = DEADLINE_S) -> _T:
    """The result; AssertionError when there is none in time."""
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except TimeoutError:
        raise AssertionError(f"no result within {seconds} s") from None
