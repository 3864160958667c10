"""The end of a reign: who waits is answered at once, and what goes on beside it ends, whatever else happens.

Constraints: a reign that meets the fence in a write is told of the same loss in another way some turns of the loop
later, and is cancelled while it ends. An end that is cut short leaves callers without an answer and tasks that speak
for an old controller epoch. It is bounded in time all the same, for the next campaign waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import structlog
from regnum_service.cancellation import carried_through, end_task

from regnum_election.reign.events import Mutation
from regnum_election.reign.reign import DeposedError

END_S: Final = 5.0
"""How long tasks and channels may take to end; half of what a process that stops gives each of its tasks."""


async def end_reign(
    tasks: Sequence[asyncio.Task[None]],
    waiting: Sequence[Mutation],
    *closes: Callable[[], Awaitable[None]],
) -> None:
    """Answer and end everything. To be run where no cancellation reaches it (``carried_through``).

    Args:
        tasks: what goes on beside the reign; told to end, and not waited for.
        waiting: mutations that will not be carried out.
        closes: of the parts of the reign; all begin at once, so that one that hangs keeps no other from its end. What
            is not done after END_S is left, told to end.
    """
    for mutation in waiting:
        mutation.abandon()
    for task in tasks:
        end_task(task)
    ending = asyncio.create_task(_close(waiting, closes), name="end-of-reign")
    await asyncio.wait([ending], timeout=END_S)
    if ending.done():
        ending.result()
        return
    ending.cancel()
    structlog.get_logger("controller").error("the reign does not end: some of it is left behind", waited_s=END_S)


async def _close(waiting: Sequence[Mutation], closes: Sequence[Callable[[], Awaitable[None]]]) -> None:
    await asyncio.gather(*(close() for close in closes))
    for mutation in waiting:
        await mutation.steps.aclose()


async def until_deposed(reigning: Sequence["asyncio.Future[Any]"]) -> DeposedError:
    """What ended a reign, and the tasks of it are over then.

    Also when it is cancelled: a reign that was deposed before that, and is at its end, knows of a later epoch perhaps.
    """
    try:
        try:
            ended, _ = await asyncio.wait(reigning, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await carried_through(_end(reigning))
    except asyncio.CancelledError:
        for task in reigning:
            if not task.cancelled() and isinstance(error := task.exception(), DeposedError):
                return error
        raise
    for task in ended:
        try:
            task.result()
        except DeposedError as error:
            return error
    raise AssertionError("a reign ends by being deposed")


async def _end(reigning: Sequence["asyncio.Future[Any]"]) -> None:
    for task in reigning:
        task.cancel()
    await asyncio.gather(*reigning, return_exceptions=True)
