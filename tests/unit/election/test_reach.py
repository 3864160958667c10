"""Who is fit for office: a controller that no broker hears, candidates that reach none (safety rule S9)."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection

import pytest
from regnum.election.v1 import controller_pb2_grpc
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.leadership import Leadership, Reign
from regnum_election.candidacy.reach import (
    ASK_INTERVAL_S,
    FRESH_S,
    HESITATION_S,
    Isolation,
    Reach,
    ask_candidate,
    first_found,
)
from regnum_election.candidacy.role import ControllerRole
from regnum_election.decisions.liveness import ISOLATION_MEMORY_S, ISOLATION_S, isolation_patience_s
from regnum_election.reign.reign import DeposedError
from regnum_model import paths
from regnum_model.contact import Contact
from regnum_model.ids import BrokerId, DirectoryId, ElectionId, LogId, Registration
from regnum_model.nodes import Address, BrokerNode, ElectionNode
from regnum_service.clock import SystemClock
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock
from regnum_testing.internal_calls import internal_servicer
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S

BROKER_PORT = 20_000
ELECTION_PORT = 30_000


class Network:
    """Brokers and candidates as the store names them, and which process reaches which."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.clock = FakeClock()
        self.outside = MemoryStore(self.server)
        self.reached: dict[int, Collection[int]] = {}
        """Brokers that a candidate reaches."""
        self.silent_candidates: set[int] = set()
        self.refuses = False
        """Whether the brokers' hosts answer that nothing listens."""
        self.asked = 0

    async def begin(self, *, brokers: Collection[int], candidates: Collection[int]) -> None:
        await ensure_folders(self.outside, paths.PERSISTENT_FOLDERS, SystemClock())
        for id in brokers:
            listener = Address(host="h", port=BROKER_PORT + id)
            node = BrokerNode(
                incarnation="i",
                registration=Registration(0),
                rack=None,
                directories={DirectoryId("d"): LogId("l")},
                listeners={"client": listener, "internal": listener},
            )
            await self.outside.create(paths.broker_id(BrokerId(id)), node.encode(), ephemeral=True)
        for id in candidates:
            listener = Address(host="h", port=ELECTION_PORT + id)
            election = ElectionNode(
                incarnation="i", listeners={"client": listener, "internal": listener, "lifeline": listener}
            )
            await self.outside.create(paths.election_id(ElectionId(id)), election.encode(), ephemeral=True)

    def reach(self, candidate: int) -> Reach:
        async def probe(address: Address) -> Contact:
            await asyncio.sleep(0)
            if address.port - BROKER_PORT in self.reached.get(candidate, ()):
                return Contact.ACCEPTED
            return Contact.REFUSED if self.refuses else Contact.NO_ANSWER

        return Reach(probe=probe, clock=self.clock, chance=random.Random(7))

    async def ask(self, address: Address) -> BrokerId | None:
        self.asked += 1
        candidate = address.port - ELECTION_PORT
        if candidate in self.silent_candidates:
            return None
        return await self.reach(candidate).for_others(self.outside)

    def reign(self, candidate: int, *, brokers: Collection[int], silent_s: Callable[[], float]) -> "asyncio.Task[None]":
        isolation = Isolation(id=ElectionId(candidate), reach=self.reach(candidate), ask=self.ask, clock=self.clock)
        known = {BrokerId(id): Address(host="h", port=BROKER_PORT + id) for id in brokers}
        return asyncio.create_task(isolation.watch(self.outside, brokers=lambda: known, silent_s=silent_s))

    def campaign(self, candidate: int) -> "asyncio.Task[Reign]":
        store, reach = MemoryStore(self.server), self.reach(candidate)
        leadership = Leadership(store, self.clock, id=ElectionId(candidate), hesitate=lambda: reach.hesitate(store))
        return asyncio.create_task(leadership.campaign())


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    network = Network()
    yield network
    await network.outside.close()


async def silence(network: Network, reigning: "asyncio.Task[None]", *, seconds: float) -> None:
    await network.clock.advance(seconds)
    # One turn: whoever was told has ended.
    await asyncio.sleep(0)
    if not reigning.done():
        reigning.cancel()
        await asyncio.wait([reigning])


def always_silent() -> float:
    return 1_000.0


async def test_a_controller_that_no_broker_answers_resigns_when_another_candidate_reaches_one(network: Network) -> None:
    await network.begin(brokers=[1, 2], candidates=[1, 2, 3])
    network.reached = {3: [2]}
    network.silent_candidates = {2}
    reigning = network.reign(1, brokers=[1, 2], silent_s=always_silent)
    await network.clock.advance(ISOLATION_S - 0.1)
    assert not reigning.done()
    await network.clock.advance(0.5)
    with pytest.raises(DeposedError, match="election process 3 reaches broker 2"):
        await reigning


@pytest.mark.parametrize("case", ["refused", "heard", "reached", "alone", "none reach", "others silent", "no brokers"])
async def test_a_controller_stays_in_office(network: Network, case: str) -> None:
    """Unless all registered brokers are silent, and another candidate says that it reaches one."""
    brokers = [] if case == "no brokers" else [1, 2]
    await network.begin(brokers=brokers, candidates=[1] if case == "alone" else [1, 2, 3])
    network.reached = {} if case == "none reach" else {2: [1], 3: [1]}
    network.refuses = case == "refused"
    if case == "reached":
        network.reached[1] = [2]
    if case == "others silent":
        network.silent_candidates = {2, 3}
    silent_s = (lambda: 2.9) if case == "heard" else always_silent
    reigning = network.reign(1, brokers=brokers, silent_s=silent_s)
    await silence(network, reigning, seconds=20.0)
    assert reigning.cancelled()
    assert network.asked <= 2 * 20.0 / ASK_INTERVAL_S


async def test_a_candidate_that_reaches_no_broker_lets_one_that_does_win(network: Network) -> None:
    await network.begin(brokers=[1], candidates=[1, 2])
    network.reached = {2: [1]}
    isolated, fit = network.campaign(1), network.campaign(2)
    await network.clock.advance(0.0)
    assert (await fit).epoch == 1
    await network.clock.advance(2 * HESITATION_S)
    assert not isolated.done()
    isolated.cancel()


async def test_who_looked_for_brokers_before_the_office_was_free_campaigns_without_another_look(
    network: Network,
) -> None:
    await network.begin(brokers=[1], candidates=[1])
    network.reached = {1: [1]}
    reach, store = network.reach(1), MemoryStore(network.server)
    assert await reach.prepare(store)
    network.reached = {}
    network.refuses = False
    await network.clock.advance(FRESH_S - 0.1)
    await asyncio.wait_for(reach.hesitate(store), timeout=DEADLINE_S)
    await network.clock.advance(0.2)
    hesitating = asyncio.create_task(reach.hesitate(store))
    await network.clock.advance(HESITATION_S - 0.1)
    assert not hesitating.done(), "a look counts for a while only"
    await network.clock.advance(0.2)
    await asyncio.wait_for(hesitating, timeout=DEADLINE_S)


async def test_candidates_that_reach_no_broker_wait_but_not_for_ever(network: Network) -> None:
    await network.begin(brokers=[1], candidates=[1, 2])
    campaigns = [network.campaign(1), network.campaign(2)]
    await network.clock.advance(HESITATION_S - 0.1)
    assert not any(campaign.done() for campaign in campaigns)
    await network.clock.advance(0.2)
    assert [campaign.done() for campaign in campaigns].count(True) == 1
    for campaign in campaigns:
        campaign.cancel()


@pytest.mark.parametrize("case", ["refused", "no brokers"])
async def test_a_cluster_that_was_killed_or_is_new_has_a_controller_at_once(network: Network, case: str) -> None:
    await network.begin(brokers=[1] if case == "refused" else [], candidates=[1])
    network.refuses = True
    campaign = network.campaign(1)
    await network.clock.advance(0.0)
    assert (await campaign).epoch == 1


async def test_what_people_put_among_the_registrations_keeps_nobody_from_office(network: Network) -> None:
    await network.begin(brokers=[], candidates=[])
    for name in ("nobody", "1x", "9" * 5_000):
        await network.outside.create(f"{paths.BROKER_IDS}/{name}", b"garbage")
    campaign = network.campaign(1)
    await network.clock.advance(0.0)
    assert (await campaign).epoch == 1


async def test_a_folder_of_registrations_that_is_gone_keeps_nobody_from_office() -> None:
    network = Network()
    reach, store = network.reach(1), MemoryStore(network.server)
    await reach.hesitate(store)
    assert await reach.for_others(store) is None


def test_who_resigned_lately_bears_the_silence_for_longer() -> None:
    assert isolation_patience_s([], 100.0) == ISOLATION_S
    assert isolation_patience_s([99.0], 100.0) == 2 * ISOLATION_S
    assert isolation_patience_s([90.0, 99.0], 100.0) == 4 * ISOLATION_S
    assert isolation_patience_s([90.0], 90.0 + ISOLATION_MEMORY_S) == ISOLATION_S


async def test_a_look_that_many_ask_for_is_taken_once() -> None:
    looks = 0
    answered = asyncio.Event()

    async def probe(_: Address) -> Contact:
        nonlocal looks
        looks += 1
        await answered.wait()
        return Contact.ACCEPTED

    network = Network()
    await network.begin(brokers=[1], candidates=[])
    reach = Reach(probe=probe, clock=network.clock, chance=random.Random(7))
    asking = [asyncio.create_task(reach.for_others(network.outside)) for _ in range(5)]
    await network.clock.advance(0.0)
    # One that gives up takes nothing from the others.
    asking[0].cancel()
    answered.set()
    assert await asyncio.gather(*asking[1:]) == [1, 1, 1, 1]
    assert looks == 1


async def test_the_first_that_is_found_ends_the_search() -> None:
    never = asyncio.Event()

    async def nothing() -> int | None:
        return None

    async def slow() -> int | None:
        await never.wait()
        return 1

    async def quick() -> int | None:
        return 2

    assert await first_found([slow(), nothing(), quick()]) == 2
    assert await first_found([nothing()]) is None
    assert await first_found([]) is None


@pytest.mark.parametrize("reached", [None, 0, 7])
async def test_a_candidate_is_asked_over_the_network(reached: int | None) -> None:
    """Broker 0 is a broker."""

    async def reached_broker() -> BrokerId | None:
        return None if reached is None else BrokerId(reached)

    address = Address(host="127.0.0.1", port=unused_port())
    assert await ask_candidate(address) is None
    registration = ServiceRegistration(
        name="regnum.election.v1.ControllerService",
        servicer=internal_servicer(ControllerRole(), reached_broker=reached_broker),
        add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
    )
    server = GrpcServer(address, [registration], supervisor=Supervisor("test"))
    await server.start()
    try:
        assert await ask_candidate(address) == reached
    finally:
        await server.stop()
