"""The internal topic of consumer groups, as brokers ask for it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.partitions.requests import AdditionRequest
from regnum_election.topics.internal import OFFSETS_CONFIGS
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model.config_changes import Alteration, Operation, Resource, ResourceType
from regnum_model.configs import topic_config
from regnum_model.ids import BrokerId
from regnum_model.topics import OFFSETS_TOPIC
from regnum_testing.internal_calls import internal_servicer
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S


class OneReign:
    """An office with a controller in it."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def controller(self) -> Controller:
        return self._controller


class Call:
    """A call whose caller has time."""

    def time_remaining(self) -> float | None:
        return DEADLINE_S


async def nobody_reached() -> BrokerId | None:
    return None


@pytest.fixture
async def cluster():
    made = FakeCluster()
    await made.begin(1, 2, 3)
    yield made
    await made.close()


async def asking(cluster: FakeCluster, controller: Controller, *, epoch: int | None = None) -> int:
    role: Any = OneReign(controller)
    context: Any = Call()
    servicer = internal_servicer(role, reached_broker=nobody_reached)
    broker = cluster.brokers[BrokerId(1)]
    request = controller_pb2.CreateOffsetsTopicRequest(
        broker_id=1, broker_epoch=broker.epoch if epoch is None else epoch, partitions=4
    )
    return (await servicer.CreateOffsetsTopic(request, context)).error_code


async def test_many_ask_at_once_and_it_is_created_once(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    codes = await asyncio.gather(*(asking(cluster, controller) for _ in range(20)))
    assert sorted(codes) == [errors_pb2.ERROR_CODE_NONE] + 19 * [errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS]
    assert cluster.controller_store is not None
    settings = (await cluster.controller_store.get(topic_config(OFFSETS_TOPIC))).data
    for _, value in OFFSETS_CONFIGS:
        assert value.encode() in settings, "a group of many members is one large record"


async def test_clients_neither_create_nor_delete_nor_alter_it(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    wanted = TopicRequest(name=OFFSETS_TOPIC, partitions=1, replication_factor=1, assignment=(), mutation=None)

    async def created() -> Sequence[object]:
        return (
            await controller.topics.create([wanted], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
        ).outcomes

    (refused,) = await created()
    assert isinstance(refused, Rejection)
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
    assert controller.picture.topic_named(OFFSETS_TOPIC) is None
    assert await asking(cluster, controller) == errors_pb2.ERROR_CODE_NONE
    topic = controller.picture.topic_named(OFFSETS_TOPIC)
    assert topic is not None
    (refused,) = await created()
    assert isinstance(refused, Rejection)
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
    deletions = [
        DeletionRequest(name=OFFSETS_TOPIC, topic_id="", mutation=None),
        DeletionRequest(name="", topic_id=topic.id, mutation=None),
        DeletionRequest(name=OFFSETS_TOPIC, topic_id=topic.id, mutation=None),
    ]
    for deletion in deletions:
        (gone,) = (await controller.topics.delete([deletion], wait_s=DEADLINE_S, account=ANYBODY)).outcomes
        assert isinstance(gone, Rejection)
        assert gone.code == errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
    resource = Resource(type=ResourceType.TOPIC, name=OFFSETS_TOPIC)
    alteration = Alteration(resource=resource, operations=(Operation(key="max.message.bytes", value="1024"),))
    (altered,) = await controller.configs.alter([alteration], validate_only=False, wait_s=DEADLINE_S)
    assert altered is not None
    assert altered.code == errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION
    assert controller.picture.topic_named(OFFSETS_TOPIC) == topic


async def test_its_number_of_partitions_stays(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    assert await asking(cluster, controller) == errors_pb2.ERROR_CODE_NONE
    answered = await controller.partitions.add(
        [AdditionRequest(name=OFFSETS_TOPIC, total=9, assignment=(), mutation=None)],
        validate_only=False,
        wait_s=DEADLINE_S,
        account=ANYBODY,
    )
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Rejection)
    assert outcome.code == errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION


async def test_an_earlier_life_of_a_broker_creates_nothing(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    assert await asking(cluster, controller, epoch=0) == errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH
