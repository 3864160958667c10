"""Whether the tree in the store is whole and of now: what a reign may do with it is known before it does anything."""

from contextlib import aclosing
from typing import Final

import structlog
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Node, Store
from regnum_coordination.timing import Backoff
from regnum_model import paths
from regnum_model.backup.nodes import MARK, RestoreMark
from regnum_model.nodes import MalformedNodeError
from regnum_model.nodes.lives import WentBackNode
from regnum_service.clock import Clock

WORDS: Final = (
    "the tree in the store is being restored, or a restore of it was cut off: a part is missing, and reigning over the "
    "rest could lose records. If no restore runs, run `regnum restore FILE --execute` again"
)
"""What is wrong, and what to do."""


async def proof_that_it_went_back(store: Store, clock: Clock) -> str:
    """What proves that the store went back, in words; empty: nothing does. Raises SessionExpired.

    To be asked after a win: who proves it ends every reign that began before (``paths.WENT_BACK``).
    """
    node = await _read(store, clock, paths.WENT_BACK)
    if node is None:
        return ""
    try:
        found = WentBackNode.decode(node.data)
    except MalformedNodeError as error:
        return f"{paths.WENT_BACK} stands, and cannot be read: {error}"
    return f"broker {found.broker}: {found.proof}"


async def wait_whole(store: Store) -> None:
    """Return when the tree is whole, at once where nothing was ever restored. Raises SessionExpired."""
    told = False
    async with aclosing(store.watch_node(MARK)) as states:
        async for node in states:
            if is_whole(node):
                return
            if not told:
                structlog.get_logger("election").error("not taking part in elections", reason=WORDS)
                told = True
    raise SessionExpired("the watch on the mark of a restore ended; open a new store")


async def is_whole_now(store: Store, clock: Clock) -> bool:
    """Whether it is, by a read that is not stale; losses of the connection are waited out. Raises SessionExpired."""
    return is_whole(await _read(store, clock, MARK))


async def _read(store: Store, clock: Clock, path: str) -> Node | None:
    attempts = 0
    while True:
        try:
            (node,) = await store.get_many([path], current=True)
        except ConnectionLoss:
            attempts += 1
            await clock.sleep(Backoff().pause_s(attempts))
        else:
            return node


def is_whole(node: Node | None) -> bool:
    """Whether the mark allows a reign. One that nobody can read does not."""
    if node is None:
        return True
    try:
        return RestoreMark.decode(node.data).whole
    except MalformedNodeError:
        return False
