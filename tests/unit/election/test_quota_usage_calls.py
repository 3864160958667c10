"""DescribeQuotaUsage: who uses quotas, asked of whoever decides."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.admission.quota_messages import ENTITIES_MAX
from regnum_election.admission.usage import ANSWER_S
from regnum_election.candidacy.role import ControllerRole
from regnum_election.servicers.admin import AdminServicer
from regnum_model.bucket import Bucket
from regnum_model.quota_matching import BucketKey
from regnum_model.quotas import DEFAULT, QuotaEntity
from regnum_service.errors import RegnumError
from regnum_testing.clock import settle
from regnum_testing.quota_world import APP, QuotaWorld
from regnum_testing.served import Caller

CONTEXT: Any = Caller(20.0)


@pytest.fixture
async def world() -> AsyncIterator[QuotaWorld]:
    world = QuotaWorld()
    await world.begin()
    yield world
    await world.close()


async def usage(world: QuotaWorld, limit: int = 0) -> admin_pb2.DescribeQuotaUsageResponse:
    role = ControllerRole()
    role.hold(world.controller)
    return await AdminServicer(role).DescribeQuotaUsage(admin_pb2.DescribeQuotaUsageRequest(limit=limit), CONTEXT)


async def test_the_process_that_decides_is_asked_and_the_waits_in_the_queue_are_counted(world: QuotaWorld) -> None:
    await world.start_process(7)
    await world.set_quota(5.0, 10.0, QuotaEntity(client_id=DEFAULT))
    await world.create([f"t{number}" for number in range(20)], account=APP)
    found = await usage(world)
    assert (found.quota_id, found.buckets) == (7, 1)
    (one,) = found.usages
    assert (one.HasField("user"), one.client_id) == (False, "app")
    assert (one.tokens, one.limit_rate, one.limit_burst, one.throttle_time_ms) == (-1.0, 5.0, 10.0, 200)
    waits = {wait.kind: wait for wait in found.queue_waits}
    assert sum(waits["mutations"].counts) >= 1
    assert len(waits["mutations"].counts) == len(waits["mutations"].bounds_s) + 1


@pytest.mark.parametrize("gone", ["dead", "hangs", "left"])
async def test_while_none_answers_the_controller_tells_what_it_knows(world: QuotaWorld, gone: str) -> None:
    process = await world.start_process(7)
    await world.set_quota(5.0, 10.0)
    await world.create(["a", "b", "c"])
    if gone == "left":
        process.leave()
    else:
        setattr(process, gone, True)
    await settle()
    asking = asyncio.create_task(usage(world))
    await settle()
    await world.clock.advance(ANSWER_S if gone == "hangs" else 0.0)
    found = await asking
    assert found.quota_id == -1
    (one,) = found.usages
    assert (one.HasField("user"), one.HasField("client_id"), one.tokens) == (
        False,
        False,
        7.0 if gone != "hangs" else 10.0,
    )
    assert one.idle_ms == -1


async def test_so_many_are_shown_as_are_asked_for_and_5_000_at_most(world: QuotaWorld) -> None:
    await world.set_quota(5.0, 10.0, QuotaEntity(client_id=DEFAULT))
    kept = world.controller.quotas.usages._kept
    for number in range(ENTITIES_MAX):
        kept.reported(BucketKey(None, f"c{number}"), Bucket(1.0, world.clock.monotonic()))
    assert [one.client_id for one in (await usage(world, 2)).usages] == ["c4999", "c4998"], "used last"
    assert len((await usage(world)).usages) == 100
    every = await usage(world, 2**31 - 1)
    assert (len(every.usages), every.buckets) == (ENTITIES_MAX, ENTITIES_MAX)


async def test_a_negative_limit_is_refused(world: QuotaWorld) -> None:
    with pytest.raises(RegnumError, match="limit is -1") as refused:
        await usage(world, -1)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
