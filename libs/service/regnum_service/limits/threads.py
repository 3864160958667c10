"""What calls of clients find out by looking at everything there is: on a thread of its own, in turns of callers.

Goals: however many calls ask and hang up, the threads that a process uses for itself (store contents that it decodes,
its files) stay free, and who asks once waits for one piece of each other caller at most.

Algorithm: one thread, for the interpreter runs one at a time; a call waits for its caller's turn, and the turn ends
with the thread (``turns_of_callers``), so that a caller who hangs up again and again has one piece under way.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from regnum_service.access.identity import caller
from regnum_service.limits.call import Call
from regnum_service.limits.turns_of_callers import TurnsOfCallers

T = TypeVar("T")

_THREAD: Final = ThreadPoolExecutor(max_workers=1, thread_name_prefix="for-callers")
"""Of the process. It starts when needed."""
_TURNS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, TurnsOfCallers]] = WeakKeyDictionary()


def turns() -> TurnsOfCallers:
    """Those of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _TURNS.get(loop)
    if found is None:
        found = _TURNS[loop] = TurnsOfCallers(1)
    return found


async def for_caller(job: Callable[[], T]) -> T:
    """Have the thread do it for the present caller: a principal, or an address where all callers are the same one."""
    return await in_turn(job, _THREAD, turns())


async def in_turn(job: Callable[[], T], thread: Executor | None, places: TurnsOfCallers) -> T:
    """The same by another thread, for what may wait for a disk; None: one of those that the event loop has."""
    loop, who = asyncio.get_running_loop(), caller()
    call = Call(peer=who.host, principal=who.principal)
    async with places.turn(call.payer) as turn:
        return await turn.run(lambda timed: loop.run_in_executor(thread, timed), job, call=call)
