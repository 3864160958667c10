"""gRPC's poller in a process with several event loops.

gRPC has one poller for all loops of a process and wakes every one of them for every event. All but one find nothing
and fail with BlockingIOError. An event of a loop that is closed by then fails another loop with RuntimeError. Both end
in the exception handler of the loop that was woken, and neither means anything.

    quiet_poller(loop)       first thing on every loop of the process
    await let_go()           last thing on a loop that is closed before the process ends
"""

import asyncio
from typing import Any, Final

WOKEN_BY: Final = "_handle_events"
"""The callback by which the poller wakes a loop."""

LET_GO_S: Final = 0.1
"""Time in which events of calls and servers that have been closed arrive; gRPC does not say when there are no more."""


def quiet_poller(loop: asyncio.AbstractEventLoop) -> None:
    """Keep the poller's harmless complaints out of the log; every other error is handled as ever."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not is_harmless(context):
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)


def is_harmless(context: dict[str, Any]) -> bool:
    """Whether an exception handler was called because the poller woke a loop for nothing, or another one too late."""
    error = context.get("exception")
    if WOKEN_BY not in repr(context.get("handle")):
        return False
    return isinstance(error, BlockingIOError) or (isinstance(error, RuntimeError) and "loop is closed" in str(error))


async def let_go() -> None:
    """Return when gRPC is done with this loop, whose channels and servers have been closed."""
    await asyncio.sleep(LET_GO_S)
