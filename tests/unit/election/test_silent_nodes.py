"""What stands in the store only for repeats of the change that emptied it goes when no repeat can come any more."""

from collections.abc import AsyncIterator

import pytest
from regnum_election.state.silent_nodes import SWEEP_S
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import AclBinding, Entry, Permission, ResourcePattern
from regnum_model.acls.filters import AclFilter
from regnum_model.acls.nodes import path_of
from regnum_model.mutations import REPEATED_MS
from regnum_testing.clock import settle
from regnum_testing.quota_world import QuotaWorld
from regnum_testing.waiting import DEADLINE_S


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    await world.begin()
    yield world
    await world.close()


def pattern(name: str) -> ResourcePattern:
    return ResourcePattern(type=ResourceType.TOPIC, name=name)


async def add(world: QuotaWorld, name: str) -> None:
    entry = Entry(principal="User:a", host="*", operation=Operation.READ, permission=Permission.ALLOW)
    added = await world.controller.acls.create(
        [AclBinding(pattern=pattern(name), entry=entry)], validate_only=False, wait_s=DEADLINE_S, mutation="add"
    )
    assert added == (None,)


async def remove(world: QuotaWorld, name: str) -> None:
    wanted = AclFilter(type=ResourceType.TOPIC, name=name)
    (removed,) = await world.controller.acls.delete(
        [wanted], validate_only=False, wait_s=DEADLINE_S, mutation=f"remove-{name}"
    )
    assert removed.refused is None


async def stand(world: QuotaWorld) -> set[str]:
    paths = {name: path_of(pattern(name)) for name in ("kept", "old", "young")}
    return {name for name, path in paths.items() if await world.cluster.outside.exists(path) is not None}


async def test_nodes_whose_rules_were_removed_go_when_nobody_repeats_the_removal_any_more(world: QuotaWorld) -> None:
    for name in ("kept", "old"):
        await add(world, name)
    await remove(world, "old")
    world.clock.skip(SWEEP_S)
    await world.clock.advance(10.0)
    await settle()
    assert await stand(world) == {"kept", "old"}, "it may be asked for"
    world.clock.skip(REPEATED_MS / 1000)
    await add(world, "young")
    await remove(world, "young")
    await world.clock.advance(10.0)
    await settle()
    assert await stand(world) == {"kept", "young"}
