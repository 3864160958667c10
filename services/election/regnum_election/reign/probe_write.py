"""A write that can never happen: it says whether the coordination store takes writes, and leaves nothing.

It takes the way of every write of a reign (``write_batch``: consensus, space, rights), of a node at a version that it
never has. A store that takes writes refuses it for that version. The way matters: etcd measures what a transaction
puts, and not what one inside it puts, so that a single ``set`` is not refused for want of space.
"""

from typing import Final, assert_never

from regnum_coordination.errors import ConnectionLoss, NodeFailure, SessionExpired
from regnum_coordination.port import Expired, Fenced, Refused, Set, Store, Unknown, Written
from regnum_model import paths

NEVER: Final = 2**31 - 2
"""A version that no node gets to."""


async def probe_write(store: Store) -> None:
    """Return where the store takes writes; raises what it says otherwise: ConnectionLoss, SessionExpired and others."""
    (outcome,) = await store.write_batch([(Set(paths.CONTROLLER_EPOCH, b"", NEVER),)])
    match outcome:
        case Refused(error=NodeFailure()):
            return
        case Refused(error=error):
            raise error
        case Unknown(because=because):
            raise ConnectionLoss("the store gave no answer to a write") if because is None else because
        case Expired():
            raise SessionExpired("the session is over; open a new store")
        case Written() | Fenced():
            raise AssertionError("no node is at that version, and no fence was given")
        case _:
            assert_never(outcome)
