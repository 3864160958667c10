"""What the one task that registers does when its registration or its session ends, or ends again too soon."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.cluster.registration import FENCE_BACKOFF, Registrar
from regnum_broker.cluster.sessions import Sessions
from regnum_broker.identity import Identity
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Store
from regnum_coordination.recipes.folders import ensure_folders
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_model.nodes import Address
from regnum_service.clock import SystemClock
from regnum_service.errors import StartRefusedError
from regnum_testing.waiting import eventually, within

NODE = paths.broker_id(BrokerId(1))


class Directory:
    directory_id = "directory"
    log_id = "log"
    cluster_id = "cluster"


class Lifeline:
    """Open unless a test closes it: a fence alone does not keep the broker from registering."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.fenced = asyncio.Event()
        self.speaks_for: list[int | None] = []

    def identify(self, identity: Identity | None) -> None:
        self.speaks_for.append(None if identity is None else identity.broker_epoch)
        self.fenced.clear()

    async def wait_open(self) -> None:
        await self.open.wait()

    async def wait_fenced(self) -> None:
        await self.fenced.wait()


class Led:
    def __init__(self) -> None:
        self.surrendered = 0
        self.others_told = 0

    def surrender(self) -> None:
        self.surrendered += 1

    def told(self) -> None:
        self.others_told += 1


class Lives:
    """Of a directory that goes together with the store."""

    def __init__(self) -> None:
        self.tree: str | None = None
        self.found_tree: str | None = None
        """Tree id that the next look finds."""
        self.proofs: list[str] = []

    async def store_went_back(self, store: Store) -> bool:
        return False

    async def propose(self) -> tuple[()]:
        self.tree = self.found_tree
        return ()

    async def prove(self, store: Store, proof: str) -> None:
        self.proofs.append(proof)

    async def confirmed(self, results: object) -> None:
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
    lifeline: Lifeline
    led: Led
    lives: Lives
    tasks: list[asyncio.Task[None]]
    sessions: list[int] = field(default_factory=list)
    before_use: list[Callable[[int], None]] = field(default_factory=list)
    """What happens to a session before anybody gets it, first to last."""
    store_answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self) -> Store:
        store = MemoryStore(self.server)
        self.sessions.append(store.session_id)
        if self.before_use:
            self.before_use.pop(0)(store.session_id)
        await self.store_answers.wait()
        return store

    async def finds_another_store(self) -> None:
        """Its session ends, and the next one is with a store that counts from the first."""
        lost, self.server = self.server, MemoryServer()
        admin = MemoryStore(self.server)
        await ensure_folders(admin, [paths.BROKER_IDS, paths.BROKER_EPOCHS], self.clock)
        await admin.create(paths.CLUSTER_ID, b"cluster", make_parents=True)
        await admin.close()
        lost.expire(self.sessions[-1])

    async def registered_after(self, epoch: int) -> int:
        async def holds() -> bool:
            assert not any(task.done() for task in self.tasks), [task for task in self.tasks if task.done()]
            return self.fence.identity is not None and self.fence.identity.broker_epoch > epoch

        await eventually(holds, what="a new registration")
        return self.fence.identity.broker_epoch

    async def surrenders(self) -> None:
        async def did() -> bool:
            return self.led.surrendered > 0

        await eventually(did, what="leadership given up")


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    server, fence, clock = MemoryServer(), Fence(), ImpatientClock()
    admin = MemoryStore(server)
    await ensure_folders(admin, paths.PERSISTENT_FOLDERS, clock)
    await admin.create(paths.CLUSTER_ID, b"cluster", make_parents=True)
    made = Broker(server=server, fence=fence, clock=clock, lifeline=Lifeline(), led=Led(), lives=Lives(), tasks=[])
    made.store_answers.set()
    sessions = Sessions(made.open, clock)
    storage = type("Storage", (), {"directory": Directory()})()
    orders = Orders(replicas=made.led, fetchers=None, storage=storage, store=lambda: None, lag_s=10.0, clock=clock)
    registering = Registrar(
        broker=BrokerId(1),
        incarnation="incarnation",
        rack=None,
        listeners={"client": Address(host="h", port=1), "internal": Address(host="h", port=2)},
        storage=storage,
        sessions=sessions,
        fence=fence,
        orders=orders,
        lifeline=made.lifeline,
        lives=made.lives,
        leads=lambda: False,
        clock=clock,
        session_timeout_s=6.0,
        registered=lambda: None,
        surrendered=made.led.told,
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


async def test_a_broker_whose_node_is_gone_gives_leadership_up_before_any_wait(broker: Broker) -> None:
    await broker.registered_after(0)
    broker.lifeline.open.clear()
    hand = MemoryStore(broker.server)
    await hand.delete(NODE, version=None)
    await hand.close()
    await broker.surrenders()
    # As a follower it goes on: nobody is harmed by that, and it has less to fetch later.
    assert broker.fence.identity is not None


async def test_a_broker_that_the_controller_calls_fenced_gives_leadership_up_and_registers_anew(broker: Broker) -> None:
    """Its own session may not have shown it yet."""
    epoch = await broker.registered_after(0)
    broker.lifeline.open.clear()
    broker.lifeline.fenced.set()
    await broker.surrenders()
    # What else it knows from the store may be outdated: its access rules.
    assert broker.led.others_told > 0
    broker.lifeline.open.set()
    assert await broker.registered_after(epoch) > epoch


async def test_a_lost_session_alone_costs_no_leadership_until_the_controller_says_that_it_is_over(
    broker: Broker,
) -> None:
    """The store is away: safety rule S8. The lifeline goes on speaking for the registration."""
    epoch = await broker.registered_after(0)
    broker.store_answers.clear()
    broker.server.announce(broker.sessions[0])

    async def looks_for_another() -> bool:
        return len(broker.sessions) == 2

    await eventually(looks_for_another)
    assert broker.led.surrendered == 0
    assert broker.lifeline.speaks_for == [epoch]
    broker.lifeline.fenced.set()
    await broker.surrenders()
    broker.store_answers.set()
    assert await broker.registered_after(epoch) > epoch


async def test_a_broker_that_runs_through_a_restore_of_the_store_ends_and_says_why(broker: Broker) -> None:
    """The new store counts from the first: what is meant for such an epoch this process would refuse for ever."""
    epoch = await broker.registered_after(0)
    for _ in range(8):
        broker.server.expire(broker.sessions[-1])
        epoch = await broker.registered_after(epoch)
    broker.lives.found_tree = "restored"
    await broker.finds_another_store()
    with pytest.raises(StartRefusedError, match="restored"):
        await within(broker.tasks[-1])


async def test_a_broker_epoch_that_goes_back_under_the_same_tree_id_proves_that_the_store_did(broker: Broker) -> None:
    epoch = await broker.registered_after(0)
    for _ in range(8):
        broker.server.expire(broker.sessions[-1])
        epoch = await broker.registered_after(epoch)
    await broker.finds_another_store()

    async def proved() -> bool:
        return bool(broker.lives.proofs)

    await eventually(proved, what="the proof")
    assert str(epoch) in broker.lives.proofs[0]
