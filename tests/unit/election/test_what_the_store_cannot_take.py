"""What a client or a person makes too large, or names as no path can be named, concerns them and ends no reign."""

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryStore
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.port import Check, Group, Outcome
from regnum_coordination.requests import MAX_BYTES
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.nodes import TopicIdNode
from regnum_model.quota_changes import EntityChange, LimitChange
from regnum_model.quotas import RATE_KEY, QuotaEntity, QuotaNode
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

FIRST = 2_000_000_000
"""Broker ids of ten digits make nodes large."""


class RefusingStore(MemoryStore):
    """A server whose limits, or access list, forbid some paths."""

    refused: ClassVar[set[str]] = set()

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Refuse."""
        for group in groups:
            if any(operation.path in self.refused and not isinstance(operation, Check) for operation in group):
                raise InvalidRequest("forbidden")
        return await super().write_batch(groups, fence=fence)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    RefusingStore.refused.clear()
    cluster = FakeCluster()
    cluster.open_store = RefusingStore
    yield cluster
    await cluster.close()


def wanted(name: str, *, partitions: int = 1, factor: int = 1) -> TopicRequest:
    return TopicRequest(name=name, partitions=partitions, replication_factor=factor, assignment=(), mutation=None)


async def create(controller: Controller, *requests: TopicRequest) -> tuple[Created | Rejection, ...]:
    return (await controller.topics.create(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)).outcomes


async def works(cluster: FakeCluster, controller: Controller, name: str = "after") -> None:
    """The reign goes on."""
    (outcome,) = await create(controller, wanted(name))
    assert isinstance(outcome, Created), outcome
    assert cluster.running is not None
    assert not cluster.running.done()


async def test_a_topic_that_is_too_large_refuses_its_client_and_nobody_else(cluster: FakeCluster) -> None:
    await cluster.begin(*range(FIRST, FIRST + 18))
    controller = await cluster.reign()
    small, large, other = await create(
        controller, wanted("small"), wanted("large", partitions=10_000, factor=18), wanted("other")
    )
    assert isinstance(small, Created)
    assert isinstance(other, Created)
    assert isinstance(large, Rejection)
    assert large.code == errors_pb2.ERROR_CODE_INVALID_PARTITIONS
    await works(cluster, controller)


async def test_a_deletion_with_a_mutation_id_of_a_megabyte_is_refused(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    await create(controller, wanted("t"))
    request = DeletionRequest(name="t", topic_id="", mutation="m" * (MAX_BYTES + 1))
    answered = await controller.topics.delete((request,), wait_s=DEADLINE_S, account=ANYBODY)
    (refused,) = answered.outcomes
    assert isinstance(refused, Rejection)
    assert "t" in controller.picture.names
    await works(cluster, controller)


async def test_a_deletion_that_cannot_be_recorded_is_refused(cluster: FakeCluster) -> None:
    """A person may have written a hundred thousand brokers into the topic: the record is to name them all."""
    await cluster.begin(1)
    controller = await cluster.reign()
    await create(controller, wanted("t"))
    RefusingStore.refused.add(paths.deletion(controller.picture.names["t"]))
    answered = await controller.topics.delete(
        (DeletionRequest(name="t", topic_id="", mutation=None),), wait_s=DEADLINE_S, account=ANYBODY
    )
    (refused,) = answered.outcomes
    assert isinstance(refused, Rejection)
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert "t" in controller.picture.names
    await works(cluster, controller)


async def test_a_hand_written_topic_that_cannot_be_written_back_is_left_alone(cluster: FakeCluster) -> None:
    """It was just small enough, and an id and marks make it larger."""
    await cluster.begin(1)
    RefusingStore.refused.add(paths.topic("large"))
    await cluster.outside.create(paths.topic("large"), b'{"0":[1]}')
    controller = await cluster.reign()
    assert "large" not in controller.picture.names
    await works(cluster, controller)


@pytest.mark.parametrize("topic", ["", ".", "../up", "a//b", "nul\0", "\ud800", "x" * 990_000])
async def test_a_guard_that_names_what_no_path_can_be_ends_no_reign(cluster: FakeCluster, topic: str) -> None:
    await cluster.begin(1)
    await cluster.outside.create(paths.topic_id(TopicId("g" * 22)), TopicIdNode(topic=topic).encode())
    controller = await cluster.reign()
    await works(cluster, controller)
    assert cluster.running is not None
    assert not cluster.running.done()


@pytest.mark.parametrize("topic", ["", "../up", "nul\0", "\ud800"])
async def test_a_deletion_record_that_names_what_no_path_can_be_ends_no_reign(cluster: FakeCluster, topic: str) -> None:
    await cluster.begin(1)
    id = TopicId("g" * 22)
    await cluster.outside.create(paths.topic_id(id), TopicIdNode(topic=topic).encode())
    record = b'{"version":1,"topic":%s,"brokers":[1]}' % TopicIdNode(topic=topic).encode().split(b":", 2)[2][:-1]
    await cluster.outside.create(paths.deletion(id), record)
    controller = await cluster.reign()
    await works(cluster, controller)
    assert cluster.running is not None
    assert not cluster.running.done()


async def test_a_quota_whose_node_would_grow_too_large_is_refused(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    entity = QuotaEntity(user="ann")
    for folder in entity.folders:
        if await cluster.outside.exists(folder) is None:
            await cluster.outside.create(folder, b"", make_parents=True)
    standing = QuotaNode(config={"other": "x" * (MAX_BYTES - 70)}).encode()
    await cluster.outside.create(entity.path, standing, make_parents=True)
    change = EntityChange(entity=entity, limits=(LimitChange(key=RATE_KEY, value=1.5),))
    (refused,) = await controller.quota_calls.alter((change,), validate_only=False, wait_s=DEADLINE_S)
    assert isinstance(refused, Rejection)
    await works(cluster, controller)


async def test_a_state_that_the_store_does_not_take_is_trouble_of_its_partition(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    await create(controller, wanted("t", factor=2))
    key = PartitionKey(controller.picture.names["t"], 0)
    leader = (await cluster.state("t", 0)).leader
    RefusingStore.refused.add(paths.leader_and_isr("t", 0))
    cluster.kill(leader)
    await until(lambda: controller.picture.partitions[key].trouble is not None)
    survivor = BrokerId(3 - leader)
    assert survivor in controller.picture.brokers
    await works(cluster, controller)
