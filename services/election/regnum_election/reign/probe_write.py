"""A write that can never happen: it says whether the coordination store takes writes, and leaves nothing.

It takes the way of every write (consensus, space, rights), of a node at a version that it never has. A store that takes
writes refuses it for that version.
"""

from typing import Final

from regnum_coordination.errors import NodeFailure
from regnum_coordination.port import Store
from regnum_model import paths

NEVER: Final = 2**31 - 2
"""A version that no node gets to."""


async def probe_write(store: Store) -> None:
    """Return where the store takes writes; raises what it says otherwise: ConnectionLoss, SessionExpired and others."""
    try:
        await store.set(paths.CONTROLLER_EPOCH, b"", version=NEVER)
    except NodeFailure:
        return
