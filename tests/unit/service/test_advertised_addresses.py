"""An address belongs to one live process of a role: the newcomer waits for one session, and ends with words."""

import asyncio

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import NoNode
from regnum_coordination.port import Delete, Set
from regnum_coordination.recipes.membership import Joined, Membership, TakenByAnotherError
from regnum_coordination.timing import Backoff
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_model.nodes import Address, AddressNode
from regnum_service import addressee
from regnum_service.advertised import claims_of
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import within

SESSION_S = 6.0
HERE = {"client": Address(host="a.example", port=9092), "internal": Address(host="a.example", port=9093)}
ELSEWHERE = {"client": Address(host="a.example", port=9094), "internal": Address(host="a.example", port=9095)}


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def broker(store: MemoryStore, clock: FakeClock, id: int, listeners: dict[str, Address]) -> Membership:
    return Membership(
        store,
        clock,
        path=paths.broker_id(BrokerId(id)),
        guard=paths.broker_epoch(BrokerId(id)),
        encode=lambda registration: b"%d %d" % (id, registration),
        is_predecessor=lambda data: data.startswith(b"%d " % id),
        patience_s=SESSION_S,
        claims=claims_of(paths.BROKER_ADDRESSES, addressee.broker(id), listeners),
        backoff=Backoff(first_s=0.1, longest_s=0.1, chance=lambda: 1.0),
    )


async def lapsed(joining: "asyncio.Task[Joined]", clock: FakeClock, seconds: float) -> bool:
    """Let time pass; whether it has ended by then."""
    for _ in range(round(seconds * 10)):
        if joining.done():
            break
        await clock.advance(0.1)
    return joining.done()


async def test_an_address_is_written_with_the_registration_and_goes_with_it(
    server: MemoryServer, clock: FakeClock
) -> None:
    store = MemoryStore(server)
    await broker(store, clock, 1, HERE).join()
    found = sorted((await store.children(paths.BROKER_ADDRESSES, current=True)).names)
    assert found == ["client@a.example:9092", "internal@a.example:9093"]
    node = await store.get(f"{paths.BROKER_ADDRESSES}/{found[0]}")
    assert (node.stat.ephemeral_owner, AddressNode.decode(node.data).holder) == (store.session_id, "broker-1")
    registration = await store.get(paths.broker_id(BrokerId(1)))
    assert node.stat.creation_id == registration.stat.creation_id, "one transaction"


@pytest.mark.parametrize("shared", ["client", "internal"])
async def test_who_comes_second_waits_for_a_session_and_ends_with_words(
    server: MemoryServer, clock: FakeClock, shared: str
) -> None:
    await broker(MemoryStore(server), clock, 1, HERE).join()
    late = MemoryStore(server)
    joining = asyncio.ensure_future(broker(late, clock, 2, {**ELSEWHERE, shared: HERE[shared]}).join())
    assert not await lapsed(joining, clock, SESSION_S - 0.5)
    assert await lapsed(joining, clock, 1.0)
    with pytest.raises(TakenByAnotherError) as refused:
        await joining
    for word in ("broker-1", str(HERE[shared]), f"its {shared} listener", "broker-2", f"--{shared}-advertised"):
        assert word in str(refused.value)
    assert await late.exists(paths.broker_id(BrokerId(2))) is None
    assert await late.exists(paths.broker_epoch(BrokerId(2))) is None, "nothing of it is written"


async def test_the_address_of_a_broker_that_has_died_is_free_with_its_session(
    server: MemoryServer, clock: FakeClock
) -> None:
    """A Pod that gets the address of one that is gone, or a broker that was given another id."""
    dead = MemoryStore(server)
    await broker(dead, clock, 1, HERE).join()
    joining = asyncio.ensure_future(broker(MemoryStore(server), clock, 2, HERE).join())
    assert not await lapsed(joining, clock, SESSION_S / 2)
    server.expire(dead.session_id)
    assert (await within(joining)).registration == 0


async def test_a_broker_that_was_killed_is_back_at_once_with_its_address(
    server: MemoryServer, clock: FakeClock
) -> None:
    dead, born = MemoryStore(server), MemoryStore(server)
    await broker(dead, clock, 1, HERE).join()
    assert (await within(broker(born, clock, 1, HERE).join())).registration == 1
    server.expire(dead.session_id)
    node = await born.get(paths.advertised(paths.BROKER_ADDRESSES, "client", HERE["client"]))
    assert node.stat.ephemeral_owner == born.session_id, "it outlives the session of the life before"


async def test_a_fenced_broker_has_its_address_when_it_registers_again(server: MemoryServer, clock: FakeClock) -> None:
    store = MemoryStore(server)
    first = await broker(store, clock, 1, HERE).join()
    fence = (Set(paths.broker_epoch(BrokerId(1)), b"fenced", 0), Delete(paths.broker_id(BrokerId(1)), 0))
    await store.multi(fence)
    again = await within(broker(store, clock, 1, HERE).join())
    assert again.creation_id > first.creation_id


async def test_other_ports_and_other_listeners_of_one_host_are_no_conflict(
    server: MemoryServer, clock: FakeClock
) -> None:
    """Behind one NAT brokers differ in the port; one address may be two listeners in two networks."""
    await broker(MemoryStore(server), clock, 1, HERE).join()
    await within(broker(MemoryStore(server), clock, 2, ELSEWHERE).join())
    crossed = {"client": HERE["internal"], "internal": HERE["client"]}
    await within(broker(MemoryStore(server), clock, 3, crossed).join())
    store = MemoryStore(server)
    assert len((await store.children(paths.BROKER_IDS, current=True)).names) == 3


async def test_a_claim_that_cannot_be_read_is_anothers(server: MemoryServer, clock: FakeClock) -> None:
    person = MemoryStore(server)
    path = paths.advertised(paths.BROKER_ADDRESSES, "client", HERE["client"])
    await person.create(path, b"mine", make_parents=True)
    joining = asyncio.ensure_future(broker(MemoryStore(server), clock, 1, HERE).join())
    assert await lapsed(joining, clock, SESSION_S + 1)
    with pytest.raises(TakenByAnotherError, match=r"cannot be read.*delete it in the store"):
        await joining


async def test_a_claim_that_is_taken_while_it_looks_is_waited_for(server: MemoryServer, clock: FakeClock) -> None:
    """Two that start at once: one is refused."""
    joins = [asyncio.ensure_future(broker(MemoryStore(server), clock, id, HERE).join()) for id in (1, 2)]
    for _ in range(80):
        await clock.advance(0.1)
    ended = await asyncio.gather(*joins, return_exceptions=True)
    assert sorted(type(one) for one in ended if not isinstance(one, Joined)) == [TakenByAnotherError]


@pytest.mark.parametrize("host", ["fe80::1%eth0", "a/b", "ä.example", "..", "a@b", "x" * 253])
async def test_every_host_makes_a_path(server: MemoryServer, host: str) -> None:
    store = MemoryStore(server)
    path = paths.advertised(paths.BROKER_ADDRESSES, "client", Address(host=host, port=1))
    assert path.count("/") == 3
    with pytest.raises(NoNode):
        await store.get(path)
