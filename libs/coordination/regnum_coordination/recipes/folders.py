"""Folders: persistent ones that must exist before anything is put into them, and what must go before a node can go."""

from collections.abc import Iterable
from contextlib import suppress

from regnum_coordination.errors import BadVersion, ConnectionLoss, NodeExists, NoNode, NotEmpty
from regnum_coordination.port import Store
from regnum_coordination.timing import Backoff, Clock


async def ensure_folders(store: Store, paths: Iterable[str], clock: Clock, *, backoff: Backoff | None = None) -> None:
    """Create each path and its parents, empty, where they are missing. Waits out losses of the connection.

    Raises SessionExpired.
    """
    pauses = Backoff() if backoff is None else backoff
    for path in paths:
        attempts = 0
        while True:
            try:
                if await store.exists(path) is None:
                    await store.create(path, b"", make_parents=True)
            except NodeExists:
                break
            except ConnectionLoss:
                attempts += 1
                await clock.sleep(pauses.pause_s(attempts))
            else:
                break


async def remove_below(store: Store, folder: str) -> None:
    """Delete what somebody put below a node that must go; in vain while others change it. Raises SessionExpired."""
    with suppress(NoNode, BadVersion, NotEmpty, ConnectionLoss):
        await store.delete_below(folder)
