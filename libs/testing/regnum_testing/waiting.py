"""Waiting for conditions instead of sleeping."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

_T = TypeVar("_T")


async def eventually(
    condition: Callable[[], Awaitable[bool]], *, within_s: float = 10.0, what: str = "the condition"
) -> None:
    """Return when the condition holds; AssertionError when it does not in time."""
    give_up_s = time.monotonic() + within_s
    while True:
        if await condition():
            return
        if time.monotonic() > give_up_s:
            raise AssertionError(f"{what} did not come true within {within_s} s")
        await asyncio.sleep(0.01)


async def within(awaitable: Awaitable[_T], seconds: float = 10.0) -> _T:
    """The result; AssertionError when there is none in time."""
    try:
        async with asyncio.timeout(seconds):
            return await awaitable
    except TimeoutError:
        raise AssertionError(f"no result within {seconds} s") from None
