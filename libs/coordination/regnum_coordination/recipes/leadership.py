"""Leadership by an ephemeral node and an epoch (seed 002, safety rule S7).

Goals: one leader at a time, an epoch that grows with every win, a notice of loss; nothing that anybody writes into
``/controller`` can stop elections.

Constraints: the answer to a winning write may be lost. A node may be unreadable, may carry id -1 or somebody else's
id, or may have no owner (a plain ``etcdctl put`` strips the lease). ``/controller_epoch`` may be missing, unreadable
or restored from a backup. Versions start again when a node is created anew (safety rule S2), so a delete is always
tied to the epoch's version.

Algorithm: read ``/controller_epoch``, then ``/controller``. Absent: one multi creates ``/controller`` as an ephemeral
node and sets ``/controller_epoch`` to the next epoch at the version read; after a lost answer it is repeated, and
counts as a win only if id, epoch and owner are this session's. Foreign content: one multi checks (or creates)
``/controller_epoch`` at the version read *before* ``/controller`` and deletes ``/controller`` at its version; then
again from the start. Somebody's reign: wait for a change. Every fence and every resignation has the form of that
delete.

Example: epoch node "6" at version 5, no ``/controller``: the win writes "7", and the reign's fence is version 6.
"""

import enum
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from regnum_model.ids import ControllerEpoch, ElectionId
from regnum_model.nodes import (
    MAX_EPOCH,
    ControllerNode,
    MalformedNodeError,
    decode_controller_epoch,
    encode_controller_epoch,
)
from regnum_model.paths import CONTROLLER, CONTROLLER_EPOCH

from regnum_coordination.errors import BadVersion, NodeExists, NoNode, SessionExpired
from regnum_coordination.port import Check, Create, Node, Operation, Set, Store
from regnum_coordination.recipes.contested_node import ContestedNode
from regnum_coordination.recipes.resolve import Resolver
from regnum_coordination.timing import Backoff, Clock

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reign:
    """A win, as long as it lasts."""

    epoch: ControllerEpoch
    """Number of the reign."""
    epoch_version: int
    """Version of ``/controller_epoch`` during the reign."""
    creation_id: int
    """Creation id of the ``/controller`` node that was won."""

    @property
    def fence(self) -> Check:
        """What every write of the reign checks (safety rule S3)."""
        return Check(CONTROLLER_EPOCH, self.epoch_version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """Whose reign it is, as read: node and epoch belong together."""

    id: ElectionId
    """Election id of the controller."""
    epoch: ControllerEpoch
    """Its epoch."""
    epoch_version: int
    """Version of ``/controller_epoch``; what a fence of this reign checks."""
    session_id: int
    """Session that owns the node."""


class Loss(enum.Enum):
    """Why a reign ended."""

    SESSION = "the session is over"
    NODE = "/controller is gone or somebody else's"
    FOREIGN_CONTENT = "somebody wrote into /controller; it was deleted so that all campaign again"


class Leadership:
    """Campaigns for ``/controller`` in the name of one election process."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        id: ElectionId,
        backoff: Backoff | None = None,
        hesitate: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Only assigns.

        Args:
            store: an open session.
            clock: source of time.
            id: the election process.
            backoff: pauses between attempts.
            hesitate: awaited each time before a win is written: a candidate that is less fit than others lets them go
                first. It must end; it may raise SessionExpired.
        """
        self._store = store
        self._hesitate = hesitate
        self._clock = clock
        self._id = id
        pauses = Backoff() if backoff is None else backoff
        self._resolver = Resolver(store, clock, backoff=pauses)
        self._contested = ContestedNode(store, clock, path=CONTROLLER, guard_path=CONTROLLER_EPOCH, backoff=pauses)
        self._highest_seen = ControllerEpoch(0)

    def saw_epoch(self, epoch: ControllerEpoch) -> None:
        """Remember an epoch that somebody showed: the next win takes at least that plus one (safety rule S7)."""
        self._highest_seen = min(max(self._highest_seen, epoch), ControllerEpoch(MAX_EPOCH - 1))

    async def campaign(self) -> Reign:
        """Return when this process has won. Raises SessionExpired."""
        async with aclosing(self._store.watch_node(CONTROLLER)) as states:
            async for _ in states:
                if (reign := await self._try_to_win()) is not None:
                    return reign
        raise SessionExpired("the watch on /controller ended; open a new store and campaign again")

    async def hold(self, reign: Reign) -> Loss:
        """Return when the reign is over. Deletes content that others wrote into the node; resign is then done."""
        try:
            async with aclosing(self._store.watch_node(CONTROLLER)) as states:
                async for node in states:
                    if node is None or node.stat.creation_id != reign.creation_id:
                        return Loss.NODE
                    if not self._is_mine(node):
                        _LOG.warning("content of %s was written by somebody else; resigning", CONTROLLER)
                        await self.resign(reign)
                        return Loss.FOREIGN_CONTENT
        except SessionExpired:
            pass
        return Loss.SESSION

    async def resign(self, reign: Reign) -> None:
        """Delete the node of the reign, if it is still there. Raises SessionExpired."""
        while True:
            epoch, node = await self._read()
            if node is None or node.stat.creation_id != reign.creation_id:
                return
            await self._remove(epoch, node)

    async def fence(self, epoch_version: int) -> bool:
        """Delete the node of a controller known to be dead, which reigned at that version of the epoch node.

        True when that reign has no node any more; False when another reign has begun since. Raises SessionExpired.
        """
        while True:
            epoch, node = await self._read()
            if epoch is None or epoch.stat.version != epoch_version:
                return False
            if node is None:
                return True
            await self._remove(epoch, node)

    async def incumbents(self) -> AsyncGenerator[Incumbent | None, None]:
        """Whose reign it is, now and after every change of ``/controller``. Ends by raising SessionExpired."""
        async with aclosing(self._store.watch_node(CONTROLLER)) as states:
            async for _ in states:
                yield await self.incumbent()

    async def incumbent(self) -> Incumbent | None:
        """Whose reign it is; None without a controller or while its node is foreign. Raises SessionExpired."""
        while True:
            before, node = await self._read()
            after, _ = await self._read()
            if before is None or after is None:
                return None
            if before.stat.modification_id == after.stat.modification_id:
                break
        if node is None or self._is_foreign(node) or (owner := node.stat.ephemeral_owner) is None:
            return None
        return Incumbent(
            id=ControllerNode.decode(node.data).election_id,
            epoch=_epoch_in(before),
            epoch_version=before.stat.version,
            session_id=owner,
        )

    async def _try_to_win(self) -> Reign | None:
        """The reign, or None while somebody else's goes on."""
        while True:
            epoch, node = await self._read()
            if node is None:
                if self._hesitate is not None:
                    await self._hesitate()
                if (reign := await self._write_win(epoch)) is not None:
                    return reign
            elif self._is_foreign(node) or node.stat.ephemeral_owner == self._store.session_id:
                _LOG.warning("%s holds nobody's reign; deleting it", CONTROLLER)
                await self._remove(epoch, node)
            else:
                return None

    async def _write_win(self, epoch: Node | None) -> Reign | None:
        number = self._next_epoch(epoch)
        mine = ControllerNode(election_id=self._id, timestamp=str(self._clock.wall_ms()))
        content = encode_controller_epoch(number)
        operations: list[Operation] = [
            Create(CONTROLLER, mine.encode(), ephemeral=True),
            Create(CONTROLLER_EPOCH, content) if epoch is None else Set(CONTROLLER_EPOCH, content, epoch.stat.version),
        ]
        try:
            won, numbered = await self._resolver.multi(operations)
        except (NodeExists, NoNode, BadVersion):
            return None
        if won.stat is None or numbered.stat is None:
            raise AssertionError("a create and a set leave stats")
        return Reign(epoch=number, epoch_version=numbered.stat.version, creation_id=won.stat.creation_id)

    def _next_epoch(self, epoch: Node | None) -> ControllerEpoch:
        number = max(0 if epoch is None else _epoch_in(epoch), self._highest_seen) + 1
        if number > MAX_EPOCH:
            # No reign came that far: somebody wrote it. Written on, the number would not be readable any more.
            _LOG.warning("%s has no room for another epoch; counting on from the highest seen", CONTROLLER_EPOCH)
            number = self._highest_seen + 1
        return ControllerEpoch(number)

    async def _remove(self, epoch: Node | None, node: Node) -> None:
        """Delete ``/controller`` as read, if the epoch is still as it was read before it."""
        await self._contested.remove(epoch, node, missing_guard=encode_controller_epoch(self._highest_seen))

    async def _read(self) -> tuple[Node | None, Node | None]:
        """``/controller_epoch``, and ``/controller`` as it was after that."""
        return await self._contested.read()

    def _is_mine(self, node: Node) -> bool:
        return not self._is_foreign(node) and (
            node.stat.ephemeral_owner == self._store.session_id
            and ControllerNode.decode(node.data).election_id == self._id
        )

    @staticmethod
    def _is_foreign(node: Node) -> bool:
        """Whether nobody can reign by this node: unreadable, id -1, or no owner."""
        try:
            content = ControllerNode.decode(node.data)
        except MalformedNodeError:
            return True
        return content.election_id < 0 or node.stat.ephemeral_owner is None


def _epoch_in(node: Node) -> ControllerEpoch:
    """The epoch a node names; 0 if it is unreadable, which the highest epoch seen then heals."""
    try:
        return decode_controller_epoch(node.data)
    except MalformedNodeError:
        _LOG.warning("%s is unreadable; counting on from the highest epoch seen", CONTROLLER_EPOCH)
        return ControllerEpoch(0)
