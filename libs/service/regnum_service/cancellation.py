"""A task that was asked to end hears it also where a call of gRPC kept that for itself."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


async def heeding(awaitable: Awaitable[_T]) -> _T:
    """The awaitable's result, or its error; CancelledError in place of either when a cancellation came and was lost.

    A stream of gRPC prepares itself in a task of its own, which takes the cancellation of who waits for it, tries to
    cancel the call, and ends as if nothing had been. When the call's status has come in that moment, the reader is told
    the status and never that it was to end. A loop that tries again after each failure then goes on for ever, and so
    does whoever waits for its end. Of a stream that is refused at once 3 to 9 in 1,000 were lost this way.
    """
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await awaitable
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
