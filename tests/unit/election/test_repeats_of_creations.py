"""A creation, or an addition of partitions, that is repeated before each partition has its first leader."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.partitions.addition import Added
from regnum_election.partitions.requests import AdditionRequest
from regnum_election.topics.creation import Created
from regnum_model import paths
from regnum_model.ids import PartitionKey
from regnum_testing.creating import create, wanted
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

CREATION = wanted("t", factor=2, mutation="m")
ADDITION = AdditionRequest(name="t", total=2, assignment=(), mutation="m")


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def ask(controller: Controller, request: object) -> object:
    """The outcome of a creation or an addition."""
    if isinstance(request, AdditionRequest):
        added = await controller.partitions.add([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
        return added.outcomes[0]
    created = await controller.topics.create([CREATION], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    return created.outcomes[0]


@pytest.mark.parametrize(("wish", "partition"), [(CREATION, 0), (ADDITION, 1)], ids=["creation", "addition"])
async def test_a_repeat_is_told_that_it_is_done_when_each_partition_has_had_a_leader(
    cluster: FakeCluster, wish: object, partition: int
) -> None:
    """The controller dies after the topic node, and the brokers of the replicas after it. Then they come back."""
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    if wish is ADDITION:
        await create(controller, wanted("t", factor=2))
    held = cluster.server.hold_write(touching=paths.leader_and_isr("t", partition))
    asking = asyncio.ensure_future(ask(controller, wish))
    await held.arrived.wait()
    assert cluster.controller_store is not None
    cluster.server.disconnect(cluster.controller_store.session_id)
    await cluster.end_reign()
    asking.cancel()
    for id in (1, 2):
        cluster.kill(id)
    await cluster.register(3)
    controller = await cluster.reign(2)
    early = await ask(controller, wish)
    assert isinstance(early, Rejection), early
    assert early.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    for id in (1, 2):
        await cluster.register(id)
    key = PartitionKey(controller.picture.names["t"], partition)
    await until(lambda: controller.picture.partitions[key].is_led)
    assert isinstance(await ask(controller, wish), Created | Added)
    for id in (1, 2):
        cluster.kill(id)
    await until(lambda: not controller.picture.partitions[key].is_led)
    assert isinstance(await ask(controller, wish), Created | Added), "it had a leader, and repeats wait for no other"
