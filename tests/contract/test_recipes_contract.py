"""The recipes on every driver: what they rely on is the same everywhere."""

import asyncio

import pytest
from regnum_coordination.port import Check, Create, Expired, Fenced, Store
from regnum_coordination.recipes.leadership import Leadership, Loss
from regnum_coordination.recipes.membership import Claims, Membership, TakenByAnotherError
from regnum_model.ids import ElectionId
from regnum_service.clock import SystemClock
from regnum_testing.coordination_worlds import World
from regnum_testing.waiting import within


async def test_succession_by_expiry_hand_edit_and_fence(world: World) -> None:
    one, two = await world.open(), await world.open()
    first, second = (Leadership(store, SystemClock(), id=ElectionId(id)) for id, store in ((1, one), (2, two)))
    reign = await within(first.campaign())
    waiting = asyncio.create_task(second.campaign())
    holding = asyncio.create_task(first.hold(reign))
    await world.overwrite("/controller", b'{"version":1,"brokerid":-1,"timestamp":"0"}')
    assert await within(holding) in {Loss.FOREIGN_CONTENT, Loss.NODE}
    successor = await within(waiting)
    assert (reign.epoch, successor.epoch) == (1, 2)
    assert await one.write_batch([(Create("/late", b""),)], fence=reign.fence) == (Fenced(),)
    waiting = asyncio.create_task(first.campaign())
    assert await within(first.fence(reign.epoch_version)) is False
    await within(first.fence(successor.epoch_version))  # False if the candidate's reign has begun by its last look
    assert (await within(waiting)).epoch == 3
    await world.expire(one)
    assert (await within(second.campaign())).epoch == 4
    assert await one.write_batch([(Create("/late", b""),)]) == (Expired(),)


async def test_a_tree_below_the_node_blocks_no_election(world: World) -> None:
    """Safety rule S7: whatever a person puts there goes with it."""
    store = await world.open()
    for path in ("/controller", "/controller/x", "/controller/x/y", "/controller/x/z", "/controller/w", "/neighbour"):
        await store.create(path, b"?")
    assert (await within(Leadership(store, SystemClock(), id=ElectionId(1)).campaign())).epoch == 1
    assert (await store.children("/controller", current=True)).names == ()
    assert await store.exists("/neighbour", current=True) is not None


async def test_a_registration_is_taken_over_by_its_next_incarnation(world: World) -> None:
    def member(store: Store) -> Membership:
        return Membership(
            store,
            SystemClock(),
            path="/brokers/ids/1",
            guard="/brokers/epochs/1",
            encode=lambda registration: f"mine {registration}".encode(),
            is_predecessor=lambda data: data.startswith(b"mine"),
            patience_s=1.0,
        )

    dead, born = await world.open(), await world.open()
    old = await within(member(dead).join())
    gone = asyncio.create_task(member(dead).wait_gone(old))
    new = await within(member(born).join())
    await within(gone)
    assert (old.registration, new.registration) == (0, 1)
    assert new.creation_id > old.creation_id
    await world.expire(dead)
    await born.multi([Check("/brokers/ids/1", 0), Check("/brokers/epochs/1", 1)])


async def test_what_a_registration_claims_belongs_to_one_at_a_time(world: World) -> None:
    def member(store: Store, id: int, patience_s: float) -> Membership:
        return Membership(
            store,
            SystemClock(),
            path=f"/brokers/ids/{id}",
            guard=f"/brokers/epochs/{id}",
            encode=lambda registration: b"%d %d" % (id, registration),
            is_predecessor=lambda data: data.startswith(b"%d " % id),
            patience_s=patience_s,
            claims=Claims(
                paths=("/brokers/addresses/client@a:1", "/brokers/addresses/internal@[::1]:2"),
                data=b"%d" % id,
                taken=lambda path, data: f"{path} is {data.decode()}'s",
            ),
        )

    one, again, two = await world.open(), await world.open(), await world.open()
    await within(member(one, 1, 1.0).join())
    with pytest.raises(TakenByAnotherError, match=r"/brokers/addresses/client@a:1 is 1's"):
        await within(member(two, 2, 0.2).join())
    await within(member(again, 1, 1.0).join())
    await world.expire(one)
    assert await two.exists("/brokers/addresses/client@a:1", current=True) is not None
    waiting = asyncio.create_task(member(two, 2, 60.0).join())
    await world.expire(again)
    assert (await within(waiting)).registration == 0
    assert (await two.get("/brokers/addresses/internal@[::1]:2")).data == b"2"
