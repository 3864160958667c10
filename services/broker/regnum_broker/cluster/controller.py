"""Where the active controller is, and calls to it."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc
import structlog
from regnum.election.v1 import controller_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import ConnectionLoss, NoNode, SessionExpired
from regnum_coordination.port import Node, Store
from regnum_coordination.timing import Backoff
from regnum_model import paths
from regnum_model.ids import ElectionId
from regnum_model.nodes import Address, ControllerNode, ElectionNode, MalformedNodeError
from regnum_service import addressee
from regnum_service.cancellation import end_task
from regnum_service.channel import Channels
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error

from regnum_broker.cluster.sessions import Sessions

T = TypeVar("T")

LOOKUP_BACKOFF: Final = Backoff(first_s=0.1, longest_s=1.0)
"""Pauses before the controller's own node is looked up again. It never ends: no other change of /controller may come,
and a fenced broker needs the controller to register again.
"""

CALL_TIMEOUT_S: Final = 3.0
"""Deadline of one call."""

CALL_INTERVAL_S: Final = 0.1
"""Pause before a call is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerLocation:
    """Where the controller can be reached."""

    election_id: ElectionId
    """Its election id."""
    internal: Address
    """Listener for brokers' calls."""
    lifeline: Address
    """Listener for lifelines."""


class ControllerFinder:
    """Follows /controller. Belongs to the event loop."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        clock: Clock,
        moved: Callable[[ControllerLocation | None], None],
        spawn: Callable[[str, Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        """Only assigns.

        Args:
            sessions: the broker's session.
            clock: source of time.
            moved: hears where the controller is now.
            spawn: starts a supervised task.
        """
        self._sessions: Final = sessions
        self._clock: Final = clock
        self._moved: Final = moved
        self._spawn: Final = spawn
        self._location: ControllerLocation | None = None
        self._log: Final = structlog.get_logger("controller")

    @property
    def location(self) -> ControllerLocation | None:
        """Where it is; None while there is none, or none that can be found."""
        return self._location

    async def run(self) -> None:
        """Follow for ever; a task of the supervisor."""
        while True:
            store = await self._sessions.wait_store()
            try:
                await self._follow(store)
            except SessionExpired:
                # The last known place stays: a controller outlives this broker's sessions.
                await store.wait_lost()
                await self._clock.sleep(0)

    async def _follow(self, store: Store) -> None:
        looking: asyncio.Task[None] | None = None
        try:
            async with aclosing(store.watch_node(paths.CONTROLLER)) as states:
                async for node in states:
                    if looking is not None:
                        end_task(looking)
                    looking = self._spawn("look the controller up", self._look(store, node))
        finally:
            if looking is not None:
                end_task(looking)
        raise SessionExpired("the watch on the controller ended")

    async def _look(self, store: Store, node: Node | None) -> None:
        if node is None:
            # Its successor will write the node; until then the old place is as good as any.
            return
        for attempts in itertools.count(1):
            location = await self._locate(store, node)
            if location is not None:
                if location != self._location:
                    self._location = location
                    self._log.info("controller found", election_id=location.election_id, at=str(location.internal))
                    self._moved(location)
                return
            await self._clock.sleep(LOOKUP_BACKOFF.pause_s(attempts))

    async def _locate(self, store: Store, node: Node) -> ControllerLocation | None:
        try:
            election_id = ControllerNode.decode(node.data).election_id
            if election_id < 0:
                return None
            found = ElectionNode.decode((await store.get(paths.election_id(election_id), current=True)).data)
        except (MalformedNodeError, NoNode, ConnectionLoss, SessionExpired):
            return None
        return ControllerLocation(
            election_id=election_id, internal=found.listeners["internal"], lifeline=found.listeners["lifeline"]
        )


async def nobody_elects(sessions: Sessions) -> bool:
    """Whether the store says that no election process is registered; False also when it does not say anything."""
    store = sessions.store
    if store is None:
        return False
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            return not (await store.children(paths.ELECTION_IDS, current=True)).names
    except (NoNode, ConnectionLoss, SessionExpired, TimeoutError):
        return False


class ControllerCalls:
    """Calls to whoever is the controller, repeated until one answers or the time is over."""

    def __init__(self, *, finder: ControllerFinder, channels: Channels, clock: Clock) -> None:
        self._finder: Final = finder
        self._channels: Final = channels
        self._clock: Final = clock

    async def call(
        self, what: Callable[["controller_pb2_grpc.ControllerServiceAsyncStub"], Awaitable[T]], *, timeout_s: float
    ) -> T:
        """The answer of ``what``, a call that may safely be repeated, made with CALL_TIMEOUT_S as its deadline.

        Raises:
            RegnumError: no controller answered in time, or it refused for good.
        """
        deadline_s = self._clock.monotonic() + timeout_s
        last = RegnumError(
            errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "there is no controller at the moment; try again"
        )
        while True:
            location = self._finder.location
            if location is not None:
                stub: controller_pb2_grpc.ControllerServiceAsyncStub = controller_pb2_grpc.ControllerServiceStub(
                    self._channels.get(location.internal, addressee.election(location.election_id))
                )
                try:
                    return await what(stub)
                except grpc.RpcError as error:
                    last = from_rpc_error(error)
                    if not last.traits.retriable:
                        raise last from None
                    await self._channels.drop(location.internal, addressee.election(location.election_id))
                except asyncio.CancelledError:
                    task = asyncio.current_task()
                    if task is None or task.cancelling():
                        raise
                    # Not this task is cancelled but its call: another one failed and dropped the channel they share.
            if self._clock.monotonic() + CALL_INTERVAL_S > deadline_s:
                raise last
            await self._clock.sleep(CALL_INTERVAL_S)
