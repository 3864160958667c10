"""The broker's place among the live: registers, watches its own node, registers anew.

A broker whose session is over goes on serving what it may (safety rule S8): the epochs of others stop it from doing
harm, and its registration may well stand again before anybody misses it. One that learns that its registration is gone,
because its session shows that or because the controller says so, gives all leadership up at once: others have been
elected, and clients that stay with it wait in vain. After a fence it needs an open lifeline before it registers again,
and waits longer each time (S9): otherwise a broker that cannot be reached would be fenced and elected in turns.
While the store is known to have gone back nobody elects others, so a broker that leads goes on without a registration.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog
from regnum_coordination.errors import ConnectionLoss, NoNode, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.membership import Joined, Membership, TakenByAnotherError
from regnum_coordination.timing import Backoff
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, Registration
from regnum_model.nodes import Address, BrokerNode, MalformedNodeError
from regnum_service import addressee
from regnum_service.advertised import claims_of
from regnum_service.clock import Clock
from regnum_service.errors import StartRefusedError
from regnum_service.release import THIS, require_spoken
from regnum_telemetry import tracing

from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.lifeline import Lifeline
from regnum_broker.cluster.lives.lives import Lives
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.cluster.sessions import Sessions
from regnum_broker.identity import Identity
from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.errors import ResourceExhaustedError, WrongClusterError
from regnum_broker.storage import Storage

CLUSTER_ID_INTERVAL_S: Final = 0.1
"""How often to look for the cluster's id while no election process has written it."""

FENCE_BACKOFF: Final = Backoff(first_s=0.2, longest_s=10.0)
"""Waits before registering again after a fence."""

CALM_S: Final = 30.0
"""A registration that lasted so long starts the waits anew."""


class Registrar:
    """The one task that registers. Belongs to the event loop."""

    def __init__(
        self,
        *,
        broker: BrokerId,
        incarnation: str,
        rack: str | None,
        listeners: Mapping[str, Address],
        storage: Storage,
        sessions: Sessions,
        fence: Fence,
        orders: Orders,
        lifeline: Lifeline,
        lives: Lives,
        leads: Callable[[], bool],
        clock: Clock,
        session_timeout_s: float,
        registered: Callable[[], None],
        surrendered: Callable[[], None] = lambda: None,
    ) -> None:
        """Only assigns.

        Args:
            broker: its id.
            incarnation: unique name of this run.
            rack: failure domain.
            listeners: where others reach it.
            storage: whose directory is registered.
            sessions: with the store.
            fence: told of each registration.
            orders: told when all leadership is given up.
            lifeline: says what the controller holds of the registration.
            lives: begin with each registration.
            leads: whether the broker leads anything.
            clock: source of time.
            session_timeout_s: of the store.
            registered: told of each registration that stands.
            surrendered: told when everything was given up: what else was known from the store may be outdated.
        """
        self._broker: Final = broker
        self._incarnation: Final = incarnation
        self._rack: Final = rack
        self._listeners: Final = listeners
        self._storage: Final = storage
        self._sessions: Final = sessions
        self._fence: Final = fence
        self._orders: Final = orders
        self._lifeline: Final = lifeline
        self._lives: Final = lives
        self._leads: Final = leads
        self._clock: Final = clock
        self._session_timeout_s: Final = session_timeout_s
        self._registered: Final = registered
        self._surrendered: Final = surrendered
        self._last: Identity | None = None
        self._highest = BrokerEpoch(0)
        self._fences = 0
        self._log: Final = structlog.get_logger("registration")

    async def run(self) -> None:
        """Be registered for ever; a task of the supervisor.

        Raises:
            StartRefusedError: another live process has the id, the directory belongs to another cluster, or the cluster
                speaks a protocol that this release does not.
        """
        while True:
            store = await self._next_store()
            try:
                await self._bind_cluster(store)
                await self._live(store)
            except SessionExpired:
                # The lifeline speaks for it until the next one stands: the controller may say that it is over.
                self._log.warning("the session of the registration ended")
            # The session's owner notices the loss by itself; until then there is nothing to do with this store.
            await store.wait_lost()
            await self._clock.sleep(0)

    async def _next_store(self) -> Store:
        """The next session; should the controller say meanwhile that the registration is over, leadership goes."""
        opened = asyncio.ensure_future(self._sessions.wait_store())
        fenced = asyncio.ensure_future(self._lifeline.wait_fenced())
        try:
            await asyncio.wait([opened, fenced], return_when=asyncio.FIRST_COMPLETED)
            if fenced.done():
                await self._surrender()
            return await opened
        finally:
            opened.cancel()
            fenced.cancel()
            await asyncio.gather(opened, fenced, return_exceptions=True)

    async def _bind_cluster(self, store: Store) -> None:
        while True:
            try:
                node = await store.get(paths.CLUSTER_ID, current=True)
                break
            except (NoNode, ConnectionLoss):
                await self._clock.sleep(CLUSTER_ID_INTERVAL_S)
        directory = self._storage.directory
        cluster_id = node.data.decode("utf-8", errors="replace")
        tracing.in_cluster(cluster_id)
        if directory.cluster_id == cluster_id:
            return
        try:
            await self._storage.write(lambda: directory.proof.bind_cluster(cluster_id))
        except (WrongClusterError, ResourceExhaustedError) as error:
            raise StartRefusedError(str(error)) from error

    async def _live(self, store: Store) -> None:
        """Register on this session again and again, until it is over."""
        fences = self._fences
        while True:
            membership = self._membership(store)
            if self._leads() and await self._lives.store_went_back(store):
                self._log.critical("leading on without a registration: the store went back")
                return
            await self._give_up_leadership()
            await require_spoken(store, self._clock)
            joined = await self._join(store, membership)
            # Only now was it a fence: a node that goes with its session is often heard of before the session's end is.
            self._fences = fences
            since_s = self._clock.monotonic()
            evidence = await self._until_over(membership, joined)
            self._log.warning("registration gone", broker_epoch=joined.creation_id, evidence=evidence)
            await self._surrender()
            self._lifeline.identify(None)
            fences = 1 if self._clock.monotonic() - since_s > CALM_S else self._fences + 1
            await self._while_session_lasts(store, self._clock.sleep(FENCE_BACKOFF.pause_s(fences)))
            await self._while_session_lasts(store, self._lifeline.wait_open())

    async def _until_over(self, membership: Membership, joined: Joined) -> str:
        """Return when the registration is over, and who says so; raises SessionExpired when the session ends first."""
        gone = asyncio.ensure_future(membership.wait_gone(joined))
        fenced = asyncio.ensure_future(self._lifeline.wait_fenced())
        try:
            await asyncio.wait([gone, fenced], return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                gone.result()
                return "the store"
            return "the controller"
        finally:
            gone.cancel()
            fenced.cancel()
            await asyncio.gather(gone, fenced, return_exceptions=True)

    async def _while_session_lasts(self, store: Store, waiting: Awaitable[None]) -> None:
        """Await something; raises SessionExpired when the session ends first: the next one registers at once."""
        waited = asyncio.ensure_future(waiting)
        losing = asyncio.ensure_future(store.wait_lost())
        try:
            await asyncio.wait([waited, losing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waited.cancel()
            losing.cancel()
        if losing.done() and not losing.cancelled():
            raise SessionExpired("the session ended while the broker was not registered; open a new one")

    async def _give_up_leadership(self) -> None:
        self._fence.begin_registration()
        await self._surrender()

    async def _surrender(self) -> None:
        last = self._last
        if last is not None:
            await self._orders.surrender(last.broker_epoch)
            self._surrendered()
            # Given up once and for all: when the session ends before the next registration stands, the one after it
            # must not hand the same epoch in again.
            self._last = None

    async def _join(self, store: Store, membership: Membership) -> Joined:
        tree = self._lives.tree
        try:
            joined = await membership.join()
        except TakenByAnotherError as error:
            raise StartRefusedError(str(error)) from error
        assert joined.registration is not None, "a guard was given"  # noqa: S101
        identity = Identity(
            broker_epoch=BrokerEpoch(joined.creation_id), registration=Registration(joined.registration)
        )
        if identity.broker_epoch <= self._highest and self._lives.tree == tree:
            # No order reaches a broker that refuses this epoch as one of an earlier life; but none is given any more.
            await self._lives.prove(
                store,
                f"broker {self._broker} had broker epoch {self._highest}, and the store gives {identity.broker_epoch}",
            )
        elif identity.broker_epoch <= self._highest:
            # What this process refuses as belonging to an earlier life would be all that it is told from now on.
            raise StartRefusedError(
                f"the store gave broker epoch {identity.broker_epoch} after {self._highest}: it was replaced, or "
                "restored from a backup. Start this broker anew; every process has to be stopped for a restore"
            )
        self._highest = max(self._highest, identity.broker_epoch)
        self._last = identity
        self._fence.registered(identity)
        self._lifeline.identify(identity)
        self._log.info("registered", broker_epoch=identity.broker_epoch, registration=identity.registration)
        self._registered()
        return joined

    def _membership(self, store: Store) -> Membership:
        directory = self._storage.directory
        return Membership(
            store,
            self._clock,
            path=paths.broker_id(self._broker),
            encode=lambda registration: self._node(directory, registration).encode(),
            is_predecessor=lambda data: _shares_directory(data, directory),
            patience_s=self._session_timeout_s + 2.0,
            guard=paths.broker_epoch(self._broker),
            companion=self._lives,
            claims=claims_of(paths.BROKER_ADDRESSES, addressee.broker(self._broker), self._listeners),
        )

    def _node(self, directory: LogDirectory, registration: int) -> BrokerNode:
        return BrokerNode(
            incarnation=self._incarnation,
            registration=Registration(registration),
            rack=self._rack,
            directories={directory.directory_id: directory.log_id},
            listeners=self._listeners,
            build=THIS,
        )


def _shares_directory(data: bytes, directory: LogDirectory) -> bool:
    """Whether a node was written by this broker's last run: the lock on the directory proves that it is over (S5)."""
    try:
        return directory.directory_id in BrokerNode.decode(data).directories
    except MalformedNodeError:
        return False
