"""``controller.quota.window.num`` and ``.size.seconds``: the burst of a quota that has none of its own follows."""

from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.recipes.stored_quotas import StoreReader, read_quotas
from regnum_election.decisions.rejection import Rejection
from regnum_model.bucket import Limit, Windows
from regnum_model.config_changes import Alteration, Operation, Resource, ResourceType
from regnum_model.configs import QUOTA_WINDOW_NUM, QUOTA_WINDOW_SIZE_SECONDS
from regnum_model.quota_changes import EntityChange, LimitChange
from regnum_model.quotas import CHANGES, RATE_KEY, QuotaEntity
from regnum_testing.quota_world import QuotaWorld
from regnum_testing.waiting import DEADLINE_S, until

ANN = QuotaEntity(user="ann")
BOB = QuotaEntity(user="bob")


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    await world.begin()
    yield world
    await world.close()


async def set_rate(world: QuotaWorld, entity: QuotaEntity, rate: float) -> None:
    change = EntityChange(entity=entity, limits=(LimitChange(key=RATE_KEY, value=rate),))
    assert await world.controller.quota_calls.alter((change,), validate_only=False, wait_s=DEADLINE_S) == (None,)


async def set_windows(world: QuotaWorld, **values: str | None) -> Rejection | None:
    keys = {"num": QUOTA_WINDOW_NUM, "size_s": QUOTA_WINDOW_SIZE_SECONDS}
    operations = tuple(Operation(key=keys[name], value=value) for name, value in values.items())
    alteration = Alteration(resource=Resource(type=ResourceType.CLUSTER), operations=operations)
    (refused,) = await world.controller.configs.alter([alteration], validate_only=False, wait_s=DEADLINE_S)
    return refused


async def announced(world: QuotaWorld) -> frozenset[str]:
    return frozenset((await world.cluster.outside.children(CHANGES)).names)


async def test_bursts_follow_the_windows_at_run_time_and_those_that_are_set_stay(world: QuotaWorld) -> None:
    await set_rate(world, ANN, 2.0)
    await world.set_quota(2.0, 7.0, BOB)
    book = world.controller.quotas.book
    assert book.table.limits == {ANN: Limit(rate=2.0, burst=22.0), BOB: Limit(rate=2.0, burst=7.0)}
    assert await set_windows(world, num="10", size_s="3") is None
    await until(lambda: book.table.windows == Windows(num=10, size_s=3), what="the windows are read")
    assert book.table.limits == {ANN: Limit(rate=2.0, burst=60.0), BOB: Limit(rate=2.0, burst=7.0)}
    # Whoever else reads the store finds the same: the quota process.
    assert (await read_quotas(StoreReader(world.cluster.outside))).table.limits == book.table.limits
    assert await set_windows(world, num=None, size_s=None) is None
    await until(lambda: book.table.limits[ANN].burst == 22.0, what="the default is back")


async def test_only_a_change_of_windows_is_announced_to_those_who_follow_quotas(world: QuotaWorld) -> None:
    before = await announced(world)
    assert await set_windows(world, num="5") is None
    once = await announced(world)
    assert len(once - before) == 1
    assert await set_windows(world, num="5") is None
    other = Alteration(
        resource=Resource(type=ResourceType.CLUSTER),
        operations=(Operation(key="auto.leader.rebalance.enable", value="false"),),
    )
    assert await world.controller.configs.alter([other], validate_only=False, wait_s=DEADLINE_S) == (None,)
    assert await announced(world) == once


@pytest.mark.parametrize("value", ["0", "-3", "1001", "nan", "1e3", ""])
async def test_windows_that_are_none_are_refused_and_change_nothing(world: QuotaWorld, value: str) -> None:
    refused = await set_windows(world, num=value)
    assert refused is not None
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_CONFIG
    assert "a whole number from 1 to 1000" in refused.message
    assert await announced(world) == frozenset()


async def test_windows_that_nobody_can_read_are_kafkas(world: QuotaWorld) -> None:
    """Written by hand (safety rule S14): the limits count all the same."""
    await set_rate(world, ANN, 2.0)
    outside = world.cluster.outside
    data = b'{"version":1,"config":{"controller.quota.window.num":"many"}}'
    await outside.set("/config/cluster", data, version=None)
    table = (await read_quotas(StoreReader(outside))).table
    assert (table.windows, table.limits) == (Windows(), {ANN: Limit(rate=2.0, burst=22.0)})
