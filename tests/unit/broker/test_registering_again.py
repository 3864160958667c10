"""What the one task that registers does when its session ends again before a registration stands."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from regnum_broker.fence import Fence
from regnum_broker.orders import Orders
from regnum_broker.registration import FENCE_BACKOFF, Registering
from regnum_broker.sessions import Sessions
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Store
from regnum_coordination.recipes.folders import ensure_folders
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_model.nodes import Address
from regnum_service.clock import SystemClock
from regnum_testing.waiting import eventually

NODE = paths.broker_id(BrokerId(1))


class Directory:
    directory_id = "directory"
    log_id = "log"
    cluster_id = "cluster"


class OpenLifeline:
    """A lifeline that is always open: a fence alone does not keep the broker from registering."""

    def identify(self, _identity) -> None:
        pass

    async def wait_open(self) -> None:
        pass


class NothingLed:
    def surrender(self) -> None:
        pass


class ImpatientClock(SystemClock):
    """Waits for next to nothing, and remembers for how long it was asked."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


@dataclass
class Broker:
    server: MemoryServer
    fence: Fence
    clock: ImpatientClock
    tasks: list[asyncio.Task[None]]
    sessions: list[int] = field(default_factory=list)
    before_use: list[Callable[[int], None]] = field(default_factory=list)
    """What happens to a session before anybody gets it, first to last."""

    async def open(self) -> Store:
        store = MemoryStore(self.server)
        self.sessions.append(store.session_id)
        if self.before_use:
            self.before_use.pop(0)(store.session_id)
        return store

    async def registered_after(self, epoch: int) -> int:
        async def holds() -> bool:
            assert not any(task.done() for task in self.tasks), [task for task in self.tasks if task.done()]
            return self.fence.identity is not None and self.fence.identity.broker_epoch > epoch

        await eventually(holds, what="a new registration")
        return self.fence.identity.broker_epoch


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    server, fence, clock = MemoryServer(), Fence(), ImpatientClock()
    admin = MemoryStore(server)
    await ensure_folders(admin, paths.PERSISTENT_FOLDERS, clock)
    await admin.create(paths.CLUSTER_ID, b"cluster", make_parents=True)
    made = Broker(server=server, fence=fence, clock=clock, tasks=[])
    sessions = Sessions(made.open, clock)
    storage = type("Storage", (), {"directory": Directory()})()
    orders = Orders(replicas=NothingLed(), fetchers=None, storage=storage, lag_s=10.0, clock=clock)
    registering = Registering(
        broker=BrokerId(1),
        incarnation="incarnation",
        rack=None,
        listeners={"client": Address(host="h", port=1), "internal": Address(host="h", port=2)},
        storage=storage,
        sessions=sessions,
        fence=fence,
        orders=orders,
        lifeline=OpenLifeline(),
        clock=clock,
        session_timeout_s=6.0,
        registered=lambda: None,
    )
    parts: tuple[Awaitable[None], ...] = (sessions.run(), orders.run(), registering.run())
    made.tasks += [asyncio.ensure_future(part) for part in parts]
    yield made
    for task in made.tasks:
        task.cancel()
    await asyncio.gather(*made.tasks, return_exceptions=True)
    await admin.close()


async def test_a_session_that_ends_while_registering_anew_is_no_reason_to_stop(broker: Broker) -> None:
    """1 registered. 2 its session ends. 3 leadership is given up. 4 the next session ends before it can register.

    5 leadership need not be given up again, and the third session registers.
    """
    first = await broker.registered_after(0)
    broker.before_use.append(lambda session: broker.server.expire(session, announce=False))
    broker.server.expire(broker.sessions[0])
    await broker.registered_after(first)
    assert len(broker.sessions) == 3


async def test_sessions_that_end_in_a_row_are_no_fences_and_do_not_lengthen_the_wait(broker: Broker) -> None:
    """The store tells of the node before it tells of the session, as any store may."""
    epoch = await broker.registered_after(0)
    for _ in range(8):
        broker.server.expire(broker.sessions[-1], announce=False)
        epoch = await broker.registered_after(epoch)
    assert len(broker.sessions) == 9
    assert max(broker.clock.pauses) <= FENCE_BACKOFF.first_s


async def test_fences_in_a_row_lengthen_the_wait(broker: Broker) -> None:
    hand = MemoryStore(broker.server)
    epoch = await broker.registered_after(0)
    for _ in range(6):
        await hand.delete(NODE, version=None)
        epoch = await broker.registered_after(epoch)
    await hand.close()
    assert len(broker.sessions) == 1
    assert max(broker.clock.pauses) > 4 * FENCE_BACKOFF.first_s
