"""Safety rules S2 and S5: registration, takeover, and everybody else's nodes."""

import asyncio

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import BadVersion, SessionExpired
from regnum_coordination.port import Check, Delete, Set
from regnum_coordination.recipes.membership import Joined, Membership, TakenByAnotherError
from regnum_coordination.timing import Backoff
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import within

PATH, GUARD = "/brokers/ids/7", "/brokers/epochs/7"


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def _membership(store: MemoryStore, clock: FakeClock, name: str, *, guard: str | None = GUARD) -> Membership:
    """A process whose predecessors carry its own name."""
    return Membership(
        store,
        clock,
        path=PATH,
        guard=guard,
        encode=lambda registration: f"{name} {registration}".encode(),
        is_predecessor=lambda data: data.startswith(name.encode()),
        patience_s=6.0,
        backoff=Backoff(first_s=0.1, longest_s=0.1, chance=lambda: 1.0),
    )


async def _join(membership: Membership, clock: FakeClock, seconds: float = 8.0) -> Joined:
    task = asyncio.create_task(membership.join())
    for _ in range(round(seconds * 10)):
        if task.done():
            break
        await clock.advance(0.1)
    return await within(task)


async def test_the_first_registration(server: MemoryServer, clock: FakeClock) -> None:
    store = MemoryStore(server)
    joined = await _membership(store, clock, "a").join()
    node, guard = await store.get(PATH), await store.get(GUARD)
    assert joined == Joined(creation_id=node.stat.creation_id, registration=0)
    assert (node.data, node.stat.ephemeral_owner) == (b"a 0", store.session_id)
    assert (guard.stat.version, guard.stat.ephemeral_owner) == (0, None)


async def test_every_registration_raises_the_guard(server: MemoryServer, clock: FakeClock) -> None:
    store = MemoryStore(server)
    first = await _membership(store, clock, "a").join()
    server.expire(store.session_id)
    again = MemoryStore(server)
    second = await _membership(again, clock, "a").join()
    assert (first.registration, second.registration) == (0, 1)
    assert second.creation_id > first.creation_id
    assert (await again.get(PATH)).data == b"a 1"
    assert (await again.get(GUARD)).stat.version == 1


async def test_taking_over_the_own_predecessor_at_once(server: MemoryServer, clock: FakeClock) -> None:
    """Kill -9 and a start before the session times out."""
    dead = MemoryStore(server)
    old = await _membership(dead, clock, "a").join()
    born = MemoryStore(server)
    new = await within(_membership(born, clock, "a").join())
    assert new.creation_id > old.creation_id
    assert new.registration == 1
    assert (await born.get(PATH)).stat.ephemeral_owner == born.session_id
    server.expire(dead.session_id)
    assert await born.exists(PATH) is not None


async def test_a_delayed_fence_of_the_predecessor_misses_the_successor(server: MemoryServer, clock: FakeClock) -> None:
    """Safety rule S2: both nodes are at version 0; the guard tells them apart."""
    dead, controller, born = MemoryStore(server), MemoryStore(server), MemoryStore(server)
    old = await _membership(dead, clock, "a").join()
    await _membership(born, clock, "a").join()
    assert old.registration is not None
    with pytest.raises(BadVersion):
        await controller.multi([Set(GUARD, b"", old.registration), Delete(PATH, 0)])
    assert await born.exists(PATH) is not None


async def test_another_owner_is_waited_for(server: MemoryServer, clock: FakeClock) -> None:
    other, store = MemoryStore(server), MemoryStore(server)
    await _membership(other, clock, "other").join()
    task = asyncio.create_task(_membership(store, clock, "a").join())
    await clock.advance(5.0)
    assert not task.done()
    server.expire(other.session_id)
    joined = await within(task)
    assert joined.registration == 1


async def test_another_owner_that_stays_is_a_clear_error(server: MemoryServer, clock: FakeClock) -> None:
    other, store = MemoryStore(server), MemoryStore(server)
    await _membership(other, clock, "other").join()
    with pytest.raises(TakenByAnotherError, match=rf"{PATH} is held by another live process.*another id"):
        await _join(_membership(store, clock, "a"), clock)
    assert (await store.get(PATH)).stat.ephemeral_owner == other.session_id
    assert server.watches_open() == 0


async def test_a_node_written_by_hand_is_a_clear_error(server: MemoryServer, clock: FakeClock) -> None:
    store = MemoryStore(server)
    await store.create("/brokers/ids", b"", make_parents=True)
    server.overwrite(PATH, b"by hand")
    with pytest.raises(TakenByAnotherError, match="written by hand"):
        await _join(_membership(store, clock, "a"), clock)


async def test_a_lost_answer_costs_no_second_registration(server: MemoryServer, clock: FakeClock) -> None:
    store = MemoryStore(server)
    server.lose_reply(touching=PATH)
    joined = await _join(_membership(store, clock, "a"), clock)
    node = await store.get(PATH)
    assert joined == Joined(creation_id=node.stat.creation_id, registration=0)
    assert (await store.get(GUARD)).stat.version == 0


async def test_a_lost_answer_to_the_takeover(server: MemoryServer, clock: FakeClock) -> None:
    dead, born = MemoryStore(server), MemoryStore(server)
    await _membership(dead, clock, "a").join()
    server.lose_reply(session_id=born.session_id, touching=PATH)
    joined = await _join(_membership(born, clock, "a"), clock)
    assert joined.registration == 1
    assert (await born.get(PATH)).stat.ephemeral_owner == born.session_id


async def test_fenced_and_registered_again_by_the_same_session(server: MemoryServer, clock: FakeClock) -> None:
    store, controller = MemoryStore(server), MemoryStore(server)
    membership = _membership(store, clock, "a")
    joined = await membership.join()
    gone = asyncio.create_task(membership.wait_gone(joined))
    await settle()
    assert not gone.done()
    await controller.multi([Set(GUARD, b"", 0), Delete(PATH, 0)])
    await within(gone)
    again = await membership.join()
    assert (again.registration, again.creation_id > joined.creation_id) == (2, True)


async def test_wait_gone_sees_through_a_bounce(server: MemoryServer, clock: FakeClock) -> None:
    store = MemoryStore(server)
    membership = _membership(store, clock, "a")
    joined = await membership.join()
    server.hold_watches()
    gone = asyncio.create_task(membership.wait_gone(joined))
    await settle()
    await membership.leave(joined)
    again = await membership.join()
    server.release_watches()
    await within(gone)
    assert again.creation_id > joined.creation_id


async def test_a_registration_overwritten_by_hand_is_made_anew(server: MemoryServer, clock: FakeClock) -> None:
    store, person = MemoryStore(server), MemoryStore(server)
    membership = _membership(store, clock, "a")
    joined = await membership.join()
    gone = asyncio.create_task(membership.wait_gone(joined))
    await person.set(PATH, b"a with a remark", version=0)
    await settle()
    assert not gone.done()
    await person.set(PATH, b"garbage", version=1)
    await within(gone)
    again = await membership.join()
    assert (again.registration, again.creation_id > joined.creation_id) == (1, True)
    assert (await store.get(PATH)).data == b"a 1"


async def test_leaving_leaves_the_successor_alone(server: MemoryServer, clock: FakeClock) -> None:
    old_store, new_store = MemoryStore(server), MemoryStore(server)
    old = _membership(old_store, clock, "a")
    joined = await old.join()
    await _membership(new_store, clock, "a").join()
    await old.leave(joined)
    assert (await new_store.get(PATH)).stat.ephemeral_owner == new_store.session_id
    await new_store.multi([Check(GUARD, 1)])


async def test_without_a_guard(server: MemoryServer, clock: FakeClock) -> None:
    store = MemoryStore(server)
    joined = await _membership(store, clock, "a", guard=None).join()
    assert joined.registration is None
    assert (await store.get(PATH)).data == b"a 0"
    assert await store.exists(GUARD) is None


async def test_a_session_that_ends_meanwhile(server: MemoryServer, clock: FakeClock) -> None:
    other, store = MemoryStore(server), MemoryStore(server)
    await _membership(other, clock, "other").join()
    task = asyncio.create_task(_membership(store, clock, "a").join())
    await settle()
    server.expire(store.session_id)
    with pytest.raises(SessionExpired):
        await within(task)


async def test_a_registration_that_somebody_removes_is_made_again_as_long_as_the_session_lasts(
    server: MemoryServer, clock: FakeClock
) -> None:
    store, hand = MemoryStore(server), MemoryStore(server)
    membership = _membership(store, clock, "a", guard=None)
    joined = await membership.join()
    staying = asyncio.create_task(membership.stay(joined))
    for _ in range(3):
        await settle()
        await hand.delete(PATH, version=None)
        await settle()
        # Not at once: whoever removes it again and again is not outrun.
        assert await hand.exists(PATH) is None
        await clock.advance(0.2)
        assert (await hand.get(PATH)).stat.ephemeral_owner == store.session_id
    server.expire(store.session_id)
    with pytest.raises(SessionExpired):
        await within(staying)


async def test_a_registration_that_another_process_took_over_is_left_to_it(
    server: MemoryServer, clock: FakeClock
) -> None:
    store, other = MemoryStore(server), MemoryStore(server)
    membership = _membership(store, clock, "a", guard=None)
    staying = asyncio.create_task(membership.stay(await membership.join()))
    await settle()
    await other.delete(PATH, version=None)
    await other.create(PATH, b"b 0", ephemeral=True)
    await clock.advance(10.0)
    with pytest.raises(TakenByAnotherError):
        await within(staying)
    assert (await other.get(PATH)).data == b"b 0"
