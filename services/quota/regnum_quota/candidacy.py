"""Who is the active quota process: one session's candidacy for ``/quota/active``.

Goals: one active process at a time, and a notice of loss; a standby takes over as soon as the node is gone, and need
not wait for the session of a dead one; nothing that anybody writes into the node can stop that.

Constraints: the answer to a winning write may be lost. The node may be unreadable, or have no owner (a plain
``etcdctl put`` strips the lease). Its version starts again at 0 with every winner, so that a delete meant for a dead
one could hit the next (safety rule S2).

Algorithm: read the guard ``/quota/terms``, then the node. Absent: one multi creates the node as an ephemeral one and
sets the guard at the version read. Unreadable, ownerless, left by this process's last run, or of this very session:
one multi checks the guard at the version read *before* the node and deletes the node at its version; then again from
the start. Another's: wait for a change, and watch its listener; a dead one's node is deleted in the same form.
"""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

import structlog
from regnum_coordination.errors import BadVersion, NodeExists, NoNode, SessionExpired
from regnum_coordination.port import Create, Node, Operation, Set, Store
from regnum_coordination.recipes.contested_node import ContestedNode
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.resolve import Resolver
from regnum_coordination.timing import Backoff
from regnum_model.nodes import MalformedNodeError
from regnum_model.quota_terms import QuotaTermsNode
from regnum_model.quotas import QUOTA_ACTIVE, QUOTA_IDS, QUOTA_TERMS, QuotaProcessNode
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.detection import Detector
from regnum_service.supervisor import Spawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A win, as long as it lasts."""

    creation_id: int
    """Creation id of the node that was won."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """Somebody else's seat, as read."""

    holder: QuotaProcessNode
    guard: Node | None
    node: Node


class Candidacy:
    """Campaigns in the name of one quota process during one session."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        me: QuotaProcessNode,
        previous: frozenset[str],
        detector: Detector | None,
        known: Callable[[QuotaProcessNode | None], None],
        spawn: Spawn,
        exempt: frozenset[str] = frozenset(),
        backoff: Backoff | None = None,
    ) -> None:
        """Only assigns.

        Args:
            store: an open session.
            clock: source of time.
            me: what the node will say.
            previous: incarnations of earlier runs of this process, which are dead (safety rule S5).
            detector: notices the death of others; None leaves that to their sessions.
            known: told who is active, as far as others are.
            spawn: starts the task that watches the active process.
            exempt: users to whom no quota applies; every win writes them down for whoever stands in.
            backoff: pauses between attempts.
        """
        self._store = store
        self._clock = clock
        self._me = me
        self._previous = previous
        self._detector = detector
        self._known = known
        self._spawn = spawn
        self._terms = QuotaTermsNode(exempt_users=exempt).encode()
        self._backoff = Backoff() if backoff is None else backoff
        self._resolver = Resolver(store, clock, backoff=self._backoff)
        self._contested = ContestedNode(store, clock, path=QUOTA_ACTIVE, guard_path=QUOTA_TERMS, backoff=self._backoff)
        self._log = structlog.get_logger("candidacy").bind(quota_id=me.id)

    async def campaign(self) -> Seat:
        """Return when this process is the active one. Raises SessionExpired."""
        detection: asyncio.Task[None] | None = None
        try:
            async with aclosing(self._store.watch_node(QUOTA_ACTIVE)) as states:
                async for _ in states:
                    if detection is not None:
                        end_task(detection)
                        detection = None
                    found = await self._try_to_win()
                    if isinstance(found, Seat):
                        self._known(None)
                        return found
                    self._known(found.holder)
                    if self._detector is not None:
                        detection = self._spawn("detect-active", self._detect(self._detector, found))
        finally:
            if detection is not None:
                end_task(detection)
        raise SessionExpired(f"the watch on {QUOTA_ACTIVE} ended; open a new store and campaign again")

    async def hold(self, seat: Seat) -> str:
        """Return when the seat is lost, and why. Raises SessionExpired."""
        async with aclosing(self._store.watch_node(QUOTA_ACTIVE)) as states:
            async for node in states:
                if node is None:
                    return f"{QUOTA_ACTIVE} was deleted"
                if node.stat.creation_id != seat.creation_id:
                    return f"{QUOTA_ACTIVE} is another process's"
                if node.stat.ephemeral_owner != self._store.session_id or _holder(node) != self._me:
                    guard, now = await self._contested.read()
                    if now is not None and now.stat.creation_id == seat.creation_id:
                        await self._contested.remove(guard, now, missing_guard=b"")
                    return f"somebody wrote into {QUOTA_ACTIVE}; it was deleted so that all campaign again"
        raise SessionExpired(f"the watch on {QUOTA_ACTIVE} ended; open a new store and campaign again")

    async def _detect(self, detector: Detector, standing: _Standing) -> None:
        await detector.wait_dead(standing.holder.internal)
        self._log.warning("active process is dead, taking its node away", active=standing.holder.id)
        try:
            # In vain when the term is not the one that was seen: then another one has begun.
            await self._contested.remove(standing.guard, standing.node, missing_guard=b"")
        except SessionExpired:
            return

    async def _try_to_win(self) -> Seat | _Standing:
        while True:
            guard, node = await self._contested.read()
            if node is None:
                if (seat := await self._write_win(guard)) is not None:
                    return seat
                continue
            holder = _holder(node)
            owner = node.stat.ephemeral_owner
            if (
                holder is not None
                and owner not in {None, self._store.session_id}
                and holder.incarnation not in self._previous
            ):
                return _Standing(holder=holder, guard=guard, node=node)
            self._log.warning("node holds nobody's seat; deleting it", path=QUOTA_ACTIVE)
            await self._contested.remove(guard, node, missing_guard=b"")

    async def _write_win(self, guard: Node | None) -> Seat | None:
        won = Create(QUOTA_ACTIVE, self._me.encode(), ephemeral=True)
        tie: Operation = (
            Create(QUOTA_TERMS, self._terms) if guard is None else Set(QUOTA_TERMS, self._terms, guard.stat.version)
        )
        try:
            result, _ = await self._resolver.multi([won, tie])
        except (NodeExists, BadVersion):
            return None
        except NoNode:
            await ensure_folders(self._store, (QUOTA_IDS,), self._clock, backoff=self._backoff)
            return None
        if result.stat is None:
            raise AssertionError("a create leaves a stat")
        return Seat(creation_id=result.stat.creation_id)


def _holder(node: Node) -> QuotaProcessNode | None:
    try:
        return QuotaProcessNode.decode(node.data)
    except MalformedNodeError:
        return None
