"""Keeps the broker's quotas as the store has them: read at the start of each session and with every announced change.

Settings, access rules and tokens are announced in the same place; for those nothing is read. A broker that cannot
read its quotas goes on with what it knows: a store that is away takes nobody's quota away.
"""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

import structlog
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.announced import Announced, touches_quotas
from regnum_coordination.recipes.stored_quotas import Complaints, StoreReader, read_quotas
from regnum_coordination.timing import Backoff
from regnum_model.quotas import CHANGES, QuotaTable
from regnum_service.clock import Clock


async def follow_quotas(
    wait_store: Callable[[], Awaitable[Store]], take_up: Callable[[QuotaTable], None], clock: Clock
) -> None:
    """Follow one session after another, for ever; a task of the supervisor.

    Args:
        wait_store: the present session, as soon as there is one.
        take_up: told what was read.
        clock: paces the tries.
    """
    backoff, attempts, log = Backoff(), 0, structlog.get_logger("client quotas")
    complaints = Complaints()
    while True:
        store = await wait_store()
        reader, announced = StoreReader(store), Announced()
        try:
            async with aclosing(store.watch_children(CHANGES)) as changes:
                async for children in changes:
                    if touches_quotas(await announced.look(reader, children.names)):
                        # What is announced is written already; each change is read with all others.
                        take_up((await read_quotas(reader, complaints)).table)
                    attempts = 0
        except (ConnectionLoss, SessionExpired) as error:
            log.info("quotas not followed; trying on", reason=str(error))
        attempts += 1
        await clock.sleep(backoff.pause_s(attempts))
