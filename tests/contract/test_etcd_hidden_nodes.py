"""Keys below a node that no listing shows, which only ``etcdctl put`` can make: they must not keep the node alive."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from regnum_coordination.errors import NotEmpty
from regnum_coordination.recipes.leadership import Leadership, Loss
from regnum_model.ids import ElectionId
from regnum_service.clock import SystemClock
from regnum_testing.coordination_worlds import EtcdWorld
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.waiting import within

HIDDEN = ("/controller/.", "/controller/..", "/controller/a/b", "/controller//x", "/controller/" + "d/" * 1500)
"""Names that are none, a grandchild without its parent, an empty name, and one deeper than anything may recurse."""


@pytest_asyncio.fixture
async def world(etcd_server: EtcdServer) -> AsyncIterator[EtcdWorld]:
    made = EtcdWorld(etcd_server, "/hidden")
    yield made
    await made.close()


async def test_what_no_listing_shows_is_no_child_and_blocks_no_election(world: EtcdWorld) -> None:
    """Safety rule S7."""
    one, two = await world.open(), await world.open()
    first, second = (Leadership(store, SystemClock(), id=ElectionId(id)) for id, store in ((1, one), (2, two)))
    reign = await within(first.campaign())
    holding = asyncio.create_task(first.hold(reign))
    for path in HIDDEN:
        await world.overwrite(path, b"x")
    assert (await one.children("/controller", current=True)).names == ()
    with pytest.raises(NotEmpty):
        await one.delete("/controller", version=0)
    await world.overwrite("/controllers", b"a neighbour")
    await world.overwrite("/controller", b"garbage")
    assert await within(holding) in {Loss.FOREIGN_CONTENT, Loss.NODE}
    assert (await within(second.campaign())).epoch == 2
    assert (await one.get("/controllers")).data == b"a neighbour"
