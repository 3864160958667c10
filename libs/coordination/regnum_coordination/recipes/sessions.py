"""One session with the store after another, for the life of a process."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.timing import Clock

REOPEN_INTERVAL_S: Final = 0.5
"""Pause before the store is tried again after it did not answer."""

_LOG = logging.getLogger(__name__)


async def run_sessions(
    open_session: Callable[[], Awaitable[Store]], live: Callable[[Store], Awaitable[None]], clock: Clock
) -> NoReturn:
    """Open a session, live in it, close it, and so on.

    Args:
        open_session: opens a session; raises ConnectionLoss while no store answers.
        live: what the process does in a session. When it returns, or raises SessionExpired or ConnectionLoss, the
            session is closed and the next one opened; anything else it raises ends the process's sessions.
        clock: source of time.
    """
    while True:
        try:
            store = await open_session()
        except ConnectionLoss as error:
            _LOG.warning("no store answers, trying again: %s", error)
            await clock.sleep(REOPEN_INTERVAL_S)
            continue
        answers = True
        try:
            await live(store)
        except SessionExpired as error:
            _LOG.warning("session over, opening another: %s", error)
        except ConnectionLoss as error:
            _LOG.warning("store does not answer, opening another session: %s", error)
            answers = False
        finally:
            await store.close()
        if not answers:
            await clock.sleep(REOPEN_INTERVAL_S)
