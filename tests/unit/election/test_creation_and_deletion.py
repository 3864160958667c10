"""Topics created and deleted by request, whatever happens meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from regnum.types.v1 import errors_pb2
from regnum_election.decisions.rejection import Rejection
from regnum_election.topics.creation import Created
from regnum_election.topics.deletion import Deleted
from regnum_election.topics.requests import DeletionRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.nodes import DeletionNode, TopicNode
from regnum_service.errors import RegnumError
from regnum_testing.creating import create, wanted
from regnum_testing.interrupted_store import Act, interrupted
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def test_creation_goes_on_under_the_next_controller(cluster: FakeCluster) -> None:
    """A topic node with marks and no states yet is finished, not forgotten and not made anew."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    held = cluster.server.hold_write(touching=paths.leader_and_isr("t", 0))
    creating = asyncio.ensure_future(
        controller.topics.create((wanted("t"),), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    )
    await held.arrived.wait()
    assert cluster.controller_store is not None
    cluster.server.disconnect(cluster.controller_store.session_id)
    await cluster.end_reign()
    with pytest.raises(RegnumError, match="controller changed"):
        await creating
    assert (await cluster.topic("t")).creating == {0}
    await cluster.reign(2)
    state = await cluster.state("t", 0)
    assert state.controller_epoch == 2
    assert not (await cluster.topic("t")).creating


async def test_delete_topic_with_a_broker_away(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", partitions=2))
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    outcomes = (
        await controller.topics.delete(
            (DeletionRequest(name="t", topic_id="", mutation="m1"),), wait_s=DEADLINE_S, account=ANYBODY
        )
    ).outcomes
    assert outcomes == (Deleted(name="t", topic_id=id),)
    assert await cluster.outside.exists(paths.topic("t")) is None
    assert await cluster.outside.exists(paths.topic_id(id)) is None

    async def remaining() -> bool:
        record = DeletionNode.decode((await cluster.outside.get(paths.deletion(id))).data)
        return record.brokers == {BrokerId(3)}

    await until(remaining)
    repeat = (
        await controller.topics.delete(
            (DeletionRequest(name="t", topic_id="", mutation="m1"),), wait_s=DEADLINE_S, account=ANYBODY
        )
    ).outcomes
    assert repeat == outcomes
    (again,) = await create(controller, wanted("t", factor=2))
    assert again != id
    back = await cluster.register(3)
    await until(lambda: any(stop.topic_id == id and stop.delete for stop in back.stops))

    async def gone() -> bool:
        return await cluster.outside.exists(paths.deletion(id)) is None

    await until(gone)
    assert await cluster.outside.exists(paths.topic("t")) is not None


async def test_creation_is_refused_item_by_item(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    requests = (wanted("ok"), wanted("bad name!"), wanted("many", factor=4), wanted("none", partitions=0))
    outcomes = (
        await controller.topics.create(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    ).outcomes
    assert isinstance(outcomes[0], Created)
    codes = [outcome.code for outcome in outcomes[1:] if isinstance(outcome, Rejection)]
    assert codes == [
        errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION,
        errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR,
        errors_pb2.ERROR_CODE_INVALID_PARTITIONS,
    ]
    assert set(controller.picture.names) == {"ok"}


async def test_a_repeated_mutation_is_answered_and_not_carried_out_again(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    first = await create(controller, wanted("t", mutation="m"))
    await cluster.end_reign()
    following = await cluster.reign(2)
    assert await create(following, wanted("t", mutation="m")) == first
    (other,) = (
        await following.topics.create(
            (wanted("t", mutation="n"),), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY
        )
    ).outcomes
    assert isinstance(other, Rejection)
    assert other.code == errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS


async def test_validate_only_changes_nothing(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (outcome,) = (
        await controller.topics.create((wanted("t"),), validate_only=True, wait_s=DEADLINE_S, account=ANYBODY)
    ).outcomes
    assert outcome == Created(topic_id=TopicId(""), partitions=1, replication_factor=3)
    assert await cluster.outside.exists(paths.topic("t")) is None


async def test_marks_of_a_controller_that_died_while_creating_go_with_the_next_reign(cluster: FakeCluster) -> None:
    """Else a leaderAndISR that is lost much later would be taken for one still to be made (S14)."""
    await cluster.begin(1, 2, 3)
    (id,) = await create(await cluster.reign(), wanted("t", partitions=2))
    await cluster.end_reign()
    node = await cluster.outside.get(paths.topic("t"))
    marked = replace(TopicNode.decode(node.data), creating=frozenset({0, 1}))
    await cluster.outside.set(paths.topic("t"), marked.encode(), version=node.stat.version)
    await cluster.reign(2)
    assert not (await cluster.topic("t")).creating

    await cluster.end_reign()
    stat = await cluster.outside.exists(paths.leader_and_isr("t", 0))
    assert stat is not None
    await cluster.outside.delete(paths.leader_and_isr("t", 0), version=stat.version)
    controller = await cluster.reign(3)
    assert controller.picture.partitions[PartitionKey(id, 0)].trouble is not None
    assert await cluster.outside.exists(paths.leader_and_isr("t", 0)) is None


async def test_a_deletion_record_outlives_the_nodes_of_a_damaged_topic(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    (id,) = await create(await cluster.reign(), wanted("t", partitions=2))
    await cluster.end_reign()
    record = DeletionNode(topic="t", brokers=frozenset(BrokerId(id) for id in (1, 2, 3)))
    await cluster.outside.create(paths.deletion(id), record.encode())
    cluster.server.overwrite(paths.topic("t"), b"garbage")
    await cluster.reign(2)

    async def gone() -> bool:
        if await cluster.outside.exists(paths.deletion(id)) is not None:
            return False
        assert await cluster.outside.exists(paths.topic_id(id)) is None
        return await cluster.outside.exists(paths.topic("t")) is None

    await until(gone)


async def test_a_broker_that_refuses_to_delete_and_then_obeys_has_confirmed(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=1))
    broker = cluster.brokers[BrokerId(1)]
    broker.stop_errors.append(errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR)
    await controller.topics.delete(
        [DeletionRequest(name="t", topic_id="", mutation=None)], wait_s=DEADLINE_S, account=ANYBODY
    )

    async def gone() -> bool:
        return await cluster.outside.exists(paths.deletion(id)) is None

    await until(gone)
    assert not broker.stop_errors
    assert len(broker.stops) == 2


async def test_a_guard_that_goes_while_a_deletion_is_recorded_does_not_end_the_reign(cluster: FakeCluster) -> None:
    """A person removes the topic's guard between the controller's look and its record of the deletion."""
    await cluster.begin(1)
    acts: dict[str, Act] = {}
    interrupted(cluster, acts)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=1))
    acts[paths.deletion(id)] = lambda: cluster.outside.delete(paths.topic_id(id), version=None)
    for path in (paths.leader_and_isr("t", 0), paths.partition("t", 0), paths.topic("t")):
        await cluster.outside.delete(path, version=None)
    await until(lambda: controller.picture.partitions[PartitionKey(id, 0)].trouble is not None)
    await create(controller, wanted("other", factor=1))
    assert not acts, "the deletion was about to be recorded"
    assert await cluster.outside.exists(paths.deletion(id)) is None
