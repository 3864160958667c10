"""Persistent folders that must exist before anything is put into them."""

from collections.abc import Iterable

from regnum_coordination.errors import ConnectionLoss, NodeExists
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
