"""Brokers that are being drained get no new replicas, whoever reigns, until somebody takes that back."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from regnum.types.v1 import errors_pb2
from regnum.types.v1 import events_pb2 as words
from regnum_election.brokers.description import describe_brokers
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.health.messages import describe_health
from regnum_election.history.events import OtherEntry
from regnum_election.partitions.addition import Added, AdditionOutcome
from regnum_election.partitions.requests import AdditionRequest
from regnum_election.reassignment.calls import ReassignmentRequest
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId
from regnum_service.errors import RegnumError
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.standing_by import FakeStandby
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str, *, partitions: int = 6, factor: int = 2) -> Created | Rejection:
    request = TopicRequest(
        name=name, partitions=partitions, replication_factor=factor, assignment=(), mutation=None, configs=()
    )
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    return answered.outcomes[0]


async def add(controller: Controller, total: int, *replicas: int) -> AdditionOutcome:
    assignment = ((total - 1, tuple(map(BrokerId, replicas))),) if replicas else ()
    request = AdditionRequest(name="t", total=total, assignment=assignment, mutation=None)
    answered = await controller.partitions.add([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    return answered.outcomes[0]


async def move(controller: Controller, *target: int) -> Rejection | None:
    request = ReassignmentRequest(topic="t", partition=0, target=tuple(map(BrokerId, target)) or None)
    (outcome,) = await controller.reassignments.alter([request], validate_only=False, who="a test", wait_s=DEADLINE_S)
    return outcome


async def drain(controller: Controller, id: int, *, undo: bool = False, validate_only: bool = False) -> bool:
    return await controller.brokers.draining.drain(
        BrokerId(id), undo=undo, validate_only=validate_only, who="ann", wait_s=DEADLINE_S
    )


async def placed(cluster: FakeCluster, name: str) -> set[int]:
    return {int(id) for replicas in (await cluster.topic(name)).partitions.values() for id in replicas}


async def test_nothing_new_is_placed_on_a_broker_that_is_drained_until_that_is_taken_back(
    cluster: FakeCluster,
) -> None:
    controller = await cluster.reign()
    assert isinstance(await create(controller, "t"), Created)
    assert await placed(cluster, "t") == {1, 2, 3}
    assert await drain(controller, 2)
    assert not await drain(controller, 2), "a repeat changes nothing"
    assert isinstance(await create(controller, "u"), Created)
    assert await placed(cluster, "u") == {1, 3}
    assert await add(controller, 9) == Added(total=9)
    node = await cluster.topic("t")
    assert {int(id) for number in (6, 7, 8) for id in node.partitions[number]} == {1, 3}
    assert await drain(controller, 2, undo=True)
    assert isinstance(await create(controller, "v"), Created)
    assert await placed(cluster, "v") == {1, 2, 3}


async def test_what_a_person_names_for_new_replicas_is_refused_and_what_is_there_may_stay(
    cluster: FakeCluster,
) -> None:
    controller = await cluster.reign()
    request = TopicRequest(
        name="t",
        partitions=0,
        replication_factor=None,
        assignment=((0, (BrokerId(1), BrokerId(2))),),
        mutation=None,
    )
    await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    await drain(controller, 3)
    refused = await move(controller, 1, 3)
    assert refused is not None
    assert "brokers [3] are being drained" in refused.message
    assert "--undo" in refused.message
    added = await add(controller, 2, 3, 1)
    assert isinstance(added, Rejection)
    assert "brokers [3] are being drained" in added.message
    named = replace(request, name="u", assignment=((0, (BrokerId(1), BrokerId(3))),))
    created = await controller.topics.create([named], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = created.outcomes
    assert isinstance(outcome, Rejection)
    assert outcome.code == errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT
    assert "partition 0: brokers [3] are being drained; choose others" in outcome.message
    await drain(controller, 2)
    assert await move(controller, 2, 1) is None, "2 has it already"


async def test_with_too_few_others_it_is_said_what_to_do(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await drain(controller, 2)
    refused = await create(controller, "t", factor=3)
    assert isinstance(refused, Rejection)
    assert "brokers [2] are being drained" in refused.message
    assert "regnum brokers drain ID --undo" in refused.message


async def test_every_later_controller_knows_it(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await drain(controller, 2)
    await cluster.end_reign()
    controller = await cluster.reign(2)
    assert isinstance(await create(controller, "t"), Created)
    assert await placed(cluster, "t") == {1, 3}
    cluster.kill(2)
    await until(lambda: BrokerId(2) not in controller.picture.brokers)
    await cluster.register(2)
    await until(lambda: BrokerId(2) in controller.picture.brokers)
    assert controller.picture.draining == {2}, "a restart of the broker changes nothing"


async def test_a_standby_that_succeeds_knows_it(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    assert isinstance(await create(controller, "t"), Created)
    standby = FakeStandby(lambda: cluster.controller, cluster.clock)
    standby.start()
    try:
        await until(standby.has_all)
        await drain(controller, 2)
        standby.hold()
        await cluster.end_reign()
        followed = await standby.follower.take()
        assert followed is not None
        controller = await cluster.reign(2, followed=followed)
        assert controller.picture.draining == {2}
    finally:
        standby.release()


async def test_it_is_shown_and_told(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await drain(controller, 2)
    described = {one.id: one.draining for one in await describe_brokers(controller.picture, ())}
    assert described == {1: False, 2: True, 3: False}
    health = await describe_health(controller.health, most=1)
    assert [one.broker_id for one in health.brokers if one.draining] == [2]
    await drain(controller, 2, undo=True)
    told = [
        (one.kind, one.broker, one.reason.who)
        for one in cluster.recorded
        if isinstance(one, OtherEntry)
        and one.kind in {words.EVENT_KIND_BROKER_DRAINING, words.EVENT_KIND_BROKER_DRAINING_ENDED}
    ]
    assert told == [
        (words.EVENT_KIND_BROKER_DRAINING, 2, "ann"),
        (words.EVENT_KIND_BROKER_DRAINING_ENDED, 2, "ann"),
    ]


async def test_a_look_changes_nothing_and_nobody_drains_a_broker_that_is_not_there(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    assert await drain(controller, 2, validate_only=True)
    assert not controller.picture.draining
    assert await cluster.outside.exists(paths.draining(BrokerId(2))) is None
    with pytest.raises(RegnumError) as unknown:
        await drain(controller, 9)
    assert unknown.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_a_forgotten_broker_is_drained_no_more(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await drain(controller, 2)
    cluster.kill(2)
    await until(lambda: BrokerId(2) not in controller.picture.brokers)
    await controller.forgetting.forget(BrokerId(2), validate_only=True, who="ann", wait_s=DEADLINE_S)
    assert controller.picture.draining == {2}
    await controller.forgetting.forget(BrokerId(2), validate_only=False, who="ann", wait_s=DEADLINE_S)
    assert not controller.picture.draining
    assert await cluster.outside.exists(paths.draining(BrokerId(2))) is None
