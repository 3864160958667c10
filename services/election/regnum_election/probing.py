"""Attempts to connect to a port, to tell a dead process from a slow one (safety rule S9)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from regnum_model.nodes import Address
from regnum_service.clock import Clock

from regnum_election.liveness import REFUSAL_INTERVAL_S, Contact, proves_death

CONNECT_TIMEOUT_S: Final = 0.5
"""Time after which an attempt counts as unanswered."""

Probe = Callable[[Address], Awaitable[Contact]]
"""One attempt to connect."""


async def connect(address: Address) -> Contact:
    """Try to connect, and hang up at once."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, writer = await asyncio.open_connection(address.host, address.port)
    except ConnectionRefusedError:
        return Contact.REFUSED
    except (OSError, TimeoutError):
        return Contact.NO_ANSWER
    writer.transport.abort()
    return Contact.ACCEPTED


async def is_dead(address: Address, probe: Probe, clock: Clock, *, attempts: int) -> bool:
    """Whether two attempts in a row are refused, within so many attempts.

    A process that is being killed may still seem to listen for some milliseconds after its streams broke.
    """
    contacts: list[Contact] = []
    for attempt in range(attempts):
        if attempt:
            await clock.sleep(REFUSAL_INTERVAL_S)
        contacts.append(await probe(address))
        if proves_death(contacts[-2:]):
            return True
        if attempt and contacts[-1] is Contact.NO_ANSWER:
            return False
    return False
