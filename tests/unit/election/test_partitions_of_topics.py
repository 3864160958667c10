"""Partitions added to topics and removed from them: what is written, told, refused, and what is left behind."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from regnum.types.v1 import errors_pb2
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.partitions.addition import Added, AdditionOutcome
from regnum_election.partitions.removal import RemovalOutcome, Removed
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.recovery.calls import RecoveryRequest
from regnum_election.topics.creation import Created
from regnum_election.topics.deletion import Deleted
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey, TopicId
from regnum_model.nodes import DeletionNode, PartitionDeletionNode
from regnum_model.reassignment import Reassignment
from regnum_service.errors import ExitStatus, traits_of
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until
from structlog.testing import capture_logs

SOON_S = 0.02


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def create(controller: Controller, partitions: int = 2, name: str = "t", factor: int = 2) -> TopicId:
    request = TopicRequest(name=name, partitions=partitions, replication_factor=factor, assignment=(), mutation=None)
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created), outcome
    return outcome.topic_id


async def add(
    controller: Controller,
    total: int,
    *,
    name: str = "t",
    assignment: Sequence[tuple[int, Sequence[int]]] = (),
    mutation: str | None = None,
    validate_only: bool = False,
    beside: Sequence[str] = (),
) -> AdditionOutcome:
    """What comes of one topic; a call with others beside it does not wait long for numbers to be free."""
    requests = [
        AdditionRequest(
            name=topic,
            total=total,
            assignment=[(number, tuple(map(BrokerId, ids))) for number, ids in assignment],
            mutation=mutation,
        )
        for topic in (name, *beside)
    ]
    answered = await controller.partitions.add(
        requests, validate_only=validate_only, wait_s=DEADLINE_S, account=ANYBODY
    )
    return answered.outcomes[0]


async def remove(
    controller: Controller,
    *partitions: int,
    name: str = "t",
    topic_id: str = "",
    mutation: str | None = None,
    validate_only: bool = False,
) -> RemovalOutcome:
    request = RemovalRequest(name=name, topic_id=topic_id, partitions=partitions, mutation=mutation)
    answered = await controller.partitions.remove(
        [request], validate_only=validate_only, wait_s=DEADLINE_S, account=ANYBODY
    )
    return answered.outcomes[0]


async def closed(controller: Controller) -> None:
    removals = controller._context.removals
    await until(lambda: not len(removals) and not removals.begun, what="every broker confirmed")


def code(outcome: AdditionOutcome | RemovalOutcome) -> int:
    assert isinstance(outcome, Rejection), outcome
    return outcome.code


async def test_partitions_are_added_led_and_told(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await create(controller)
    assert await add(controller, 5) == Added(total=5)
    node = await cluster.topic("t")
    assert sorted(node.partitions) == [0, 1, 2, 3, 4]
    assert not node.creating
    for number in (2, 3, 4):
        state = await cluster.state("t", number)
        assert (state.leader_epoch, state.leader) == (0, node.partitions[number][0])
        assert cluster.all_told(node.partitions[number], PartitionKey(id, number), state.leader)
    assert controller.picture.topics[id].partitions == (0, 1, 2, 3, 4)


async def test_added_partitions_go_on_with_the_placement(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    await create(controller, 4)
    await add(controller, 8)
    leaders = [ids[0] for _, ids in sorted((await cluster.topic("t")).partitions.items())]
    assert leaders[:4] == leaders[4:]
    assert sorted(leaders[:4]) == [1, 2, 3, 4]


async def test_partitions_are_added_where_the_caller_says(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller)
    assert await add(controller, 0, assignment=[(3, (2, 1)), (2, (3, 1))]) == Added(total=4)
    node = await cluster.topic("t")
    assert (node.partitions[2], node.partitions[3]) == ((3, 1), (2, 1))
    for bad in ([(4, (1,))], [(5, (1, 2))], [(4, (1, 1))], [(4, (1, 9))], [(4, (1, 2)), (4, (2, 3))]):
        refused = await add(controller, 0, assignment=bad)
        assert code(refused) == errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT, bad
    assert sorted((await cluster.topic("t")).partitions) == [0, 1, 2, 3]


async def test_what_cannot_be_added_changes_nothing(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    await create(controller)
    before = (await cluster.outside.get(paths.topic("t"))).data
    assert code(await add(controller, 2)) == errors_pb2.ERROR_CODE_INVALID_PARTITIONS
    assert code(await add(controller, -1)) == errors_pb2.ERROR_CODE_INVALID_PARTITIONS
    assert code(await add(controller, 2**31 - 1)) == errors_pb2.ERROR_CODE_INVALID_PARTITIONS
    assert code(await add(controller, 3, name="u")) == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    assert code(await add(controller, 3, mutation="m" * 65)) == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert await add(controller, 3, validate_only=True) == Added(total=3)
    assert (await cluster.outside.get(paths.topic("t"))).data == before


async def test_a_repeat_of_either_is_answered_and_not_carried_out(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    await create(controller)
    assert await add(controller, 4, mutation="a") == Added(total=4)
    assert await add(controller, 4, mutation="a") == Added(total=4)
    assert await remove(controller, 3, mutation="b") == Removed(total=3)
    await closed(controller)
    assert await add(controller, 4, mutation="c") == Added(total=4)
    # Somebody has added it again since: the repeat must not take that one away.
    assert await remove(controller, 3, mutation="b") == Removed(total=4)
    await cluster.end_reign()
    controller = await cluster.reign()
    assert await remove(controller, 3, mutation="b") == Removed(total=4)


async def test_removed_partitions_leave_a_tombstone_and_nothing_else(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, 4)
    before = await cluster.outside.get(paths.leader_and_isr("t", 3))
    assert await remove(controller, 3, 2) == Removed(total=2)
    await closed(controller)
    node = await cluster.topic("t")
    assert sorted(node.partitions) == [0, 1]
    assert not node.removing
    state = await cluster.state("t", 3)
    assert state.removed
    assert (state.leader, state.leader_epoch, state.isr) == (NO_LEADER, 1, ())
    assert (await cluster.outside.get(paths.leader_and_isr("t", 3))).stat.version == before.stat.version + 1
    for broker in (1, 2):
        stops = [stop for stop in cluster.brokers[BrokerId(broker)].stops if stop.delete]
        assert {(stop.topic_id, stop.partition, stop.leader_epoch) for stop in stops} == {(id, 2, 1), (id, 3, 1)}
    assert (await cluster.outside.children(paths.DELETE_PARTITIONS)).names == ()
    assert set(controller.picture.partitions) == {PartitionKey(id, 0), PartitionKey(id, 1)}


async def test_only_the_highest_partitions_go_and_never_the_last(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, 4)
    before = (await cluster.outside.get(paths.topic("t"))).data
    for numbers, expected in (
        ((2,), errors_pb2.ERROR_CODE_INVALID_PARTITIONS),
        ((0, 3), errors_pb2.ERROR_CODE_INVALID_PARTITIONS),
        ((0, 1, 2, 3), errors_pb2.ERROR_CODE_INVALID_PARTITIONS),
        ((4,), errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION),
        ((-1,), errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION),
        ((), errors_pb2.ERROR_CODE_INVALID_REQUEST),
        ((3, 3), errors_pb2.ERROR_CODE_INVALID_REQUEST),
    ):
        assert code(await remove(controller, *numbers)) == expected, numbers
    assert code(await remove(controller, 3, topic_id="x" * 22)) == errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID
    assert await remove(controller, 3, topic_id=id, validate_only=True) == Removed(total=3)
    assert (await cluster.outside.get(paths.topic("t"))).data == before


async def test_a_number_added_again_goes_on_from_version_and_epoch_of_the_one_removed(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, 2)
    await remove(controller, 1)
    await closed(controller)
    version = (await cluster.outside.get(paths.leader_and_isr("t", 1))).stat.version
    assert await add(controller, 2) == Added(total=2)
    state = await cluster.state("t", 1)
    assert (state.leader_epoch, state.removed) == (2, False)
    assert (await cluster.outside.get(paths.leader_and_isr("t", 1))).stat.version == version + 1
    assert controller.picture.partitions[PartitionKey(id, 1)].tombstone is None


async def test_a_number_is_not_given_again_before_every_broker_has_deleted_its_files(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await create(controller, 2, factor=3)
    await cluster.register(4)
    cluster.kill(2)
    await until(lambda: 4 in controller.picture.brokers and 2 not in controller.picture.brokers)
    await remove(controller, 1)
    record = paths.partition_deletion(id, 1)

    async def names_the_absent() -> bool:
        return PartitionDeletionNode.decode((await cluster.outside.get(record)).data).brokers == {2}

    await until(names_the_absent)
    refused = await add(controller, 2, beside=["none"])
    assert isinstance(refused, Rejection)
    assert "brokers [2] have not deleted them" in refused.message
    assert "regnum brokers unregister" in refused.message
    await cluster.register(2)
    await closed(controller)
    stops = [stop for stop in cluster.brokers[BrokerId(2)].stops if stop.delete]
    epoch = (await cluster.state("t", 1)).leader_epoch
    assert [(stop.partition, stop.leader_epoch) for stop in stops] == [(1, epoch)]
    assert await cluster.outside.exists(record) is None
    assert await add(controller, 2) == Added(total=2)


async def test_whoever_adds_waits_for_the_removed_one_to_be_gone(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, 2, factor=3)
    cluster.brokers[BrokerId(3)].stop_errors = [errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR]
    await remove(controller, 1)
    assert len(controller._context.removals)
    assert await add(controller, 2) == Added(total=2)
    assert (await cluster.state("t", 1)).leader_epoch == 2


async def test_deleting_the_topic_takes_tombstones_and_records_with_it(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await create(controller, 3, factor=3)
    cluster.kill(3)
    await until(lambda: 3 not in controller.picture.brokers)
    await remove(controller, 1, 2)
    assert len(controller._context.removals) == 2
    request = DeletionRequest(name="t", topic_id="", mutation=None)
    answered = await controller.topics.delete([request], wait_s=DEADLINE_S, account=ANYBODY)
    assert answered.outcomes == (Deleted(name="t", topic_id=id),)
    assert not len(controller._context.removals)
    assert await cluster.outside.exists(paths.topic("t")) is None
    assert (await cluster.outside.children(paths.DELETE_PARTITIONS)).names == ()
    # Whoever was away learns of the topic's end, and with it of all its partitions.
    record = DeletionNode.decode((await cluster.outside.get(paths.deletion(id))).data)
    assert 3 in record.brokers
    again = await create(controller, 3)
    assert again != id
    assert (await cluster.state("t", 2)).leader_epoch == 0


async def test_a_broker_that_had_nothing_but_a_removed_partition_learns_of_the_topics_end(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await create(controller, 1)
    first = (await cluster.topic("t")).partitions[0]
    other = next(one for one in (1, 2, 3) if one not in first)
    await add(controller, 2, assignment=[(1, (other, first[0]))])
    cluster.kill(other)
    await until(lambda: other not in controller.picture.brokers)
    await remove(controller, 1)
    request = DeletionRequest(name="t", topic_id="", mutation=None)
    await controller.topics.delete([request], wait_s=DEADLINE_S, account=ANYBODY)
    assert other in DeletionNode.decode((await cluster.outside.get(paths.deletion(id))).data).brokers
    await cluster.register(other)
    await until(lambda: not len(controller._context.deletions))
    (stop,) = cluster.brokers[BrokerId(other)].stops
    assert (stop.topic_id, stop.partition) == (id, -1)


async def test_a_partition_that_a_person_put_back_into_the_node_is_offline_and_says_why(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, 2)
    whole = (await cluster.outside.get(paths.topic("t"))).data
    await remove(controller, 1)
    await closed(controller)
    await cluster.end_reign()
    await cluster.outside.set(paths.topic("t"), whole, version=None)
    controller = await cluster.reign()
    partition = controller.picture.partitions[PartitionKey(id, 1)]
    assert "was removed" in (partition.trouble or "")
    assert code(await remove(controller, 1)) == errors_pb2.ERROR_CODE_INVALID_REQUEST
    # Nor is it elected from what brokers may have: its leader epochs would begin anew.
    request = RecoveryRequest(topic="t", partitions=(1,), first_partition=0, accept_loss=True, who="me")
    recovered = await controller.recoveries.recover(request, wait_s=DEADLINE_S)
    assert "was removed" in (recovered.recoveries[0].rejection or pytest.fail("recovered")).message
    assert (await cluster.state("t", 1)).removed


async def test_a_state_that_nobody_removed_stands_in_the_way_of_a_new_partition(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    await create(controller, 2)
    state = (await cluster.outside.get(paths.leader_and_isr("t", 1))).data
    await cluster.outside.create(paths.leader_and_isr("t", 2), state, make_parents=True)
    refused = await add(controller, 3)
    assert isinstance(refused, Rejection)
    assert traits_of(refused.code).exit_status is ExitStatus.CONFLICT
    assert "remove that node" not in refused.message, "its version and leader epoch would go with it"
    assert sorted((await cluster.topic("t")).partitions) == [0, 1]


async def test_a_state_that_cannot_be_read_keeps_its_partition_on_its_way_out_until_it_is_mended(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    id = await create(controller, 3)
    path = paths.leader_and_isr("t", 2)
    whole = (await cluster.outside.get(path)).data
    cluster.server.overwrite(path, b"garbage")
    assert await remove(controller, 1, 2) == Removed(total=1)
    assert (await cluster.state("t", 1)).removed
    assert set((await cluster.topic("t")).removing) == {2}
    assert code(await add(controller, 3, beside=["none"])) == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    assert not [stop for stop in cluster.brokers[BrokerId(1)].stops if stop.partition == 2]
    await cluster.outside.set(path, whole, version=None)
    await closed(controller)
    assert (await cluster.state("t", 2)).removed
    assert await add(controller, 3) == Added(total=3)
    assert controller.picture.topics[id].partitions == (0, 1, 2)


async def test_a_leader_that_writes_while_its_partition_is_removed_loses(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    await create(controller, 2)
    path = paths.leader_and_isr("t", 1)
    # Its ISR write is there before the tombstone, and the picture does not know.
    cluster.server.overwrite(path, (await cluster.outside.get(path)).data)
    assert await remove(controller, 1) == Removed(total=1)
    assert (await cluster.state("t", 1)).removed
    await closed(controller)


async def test_a_broker_that_never_comes_back_is_waited_for_no_more_when_it_is_forgotten(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, 2)
    cluster.kill(2)
    await until(lambda: 2 not in controller.picture.brokers)
    await remove(controller, 1)
    looked = await controller.forgetting.forget(BrokerId(2), validate_only=True, who="me", wait_s=DEADLINE_S)
    assert looked.deletions == 1
    await controller.forgetting.forget(BrokerId(2), validate_only=False, who="me", wait_s=DEADLINE_S)
    await closed(controller)
    assert await cluster.outside.exists(paths.partition_deletions(id)) is None


async def test_a_death_between_the_steps_of_an_addition_waits_for_one_of_them(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, 1, factor=2)
    id = await create(controller, 1, name="other", factor=2)
    leader = controller.picture.partitions[PartitionKey(id, 0)].replicas[0]
    adding = asyncio.create_task(add(controller, 1_001))
    await until(lambda: len(controller.picture.partitions) > 2)
    cluster.kill(leader)
    await until(lambda: controller.picture.partitions[PartitionKey(id, 0)].held.state.leader != leader)  # type: ignore[union-attr]
    waiting = sum(partition.held is None for partition in controller.picture.partitions.values())
    assert waiting > 0, "the failover came before the last of the new partitions"
    await adding


async def test_numbers_that_the_topic_node_says_are_going_are_not_given(cluster: FakeCluster) -> None:
    """Or the node would name them twice, and nobody could read it any more."""
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    await create(controller, 2)
    node, path = await cluster.topic("t"), paths.topic("t")
    cluster.server.overwrite(path, replace(node, removing={2: (BrokerId(1),)}).encode())
    assert code(await add(controller, 3)) == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert sorted((await cluster.topic("t")).partitions) == [0, 1]


async def test_everybody_whom_the_topic_node_names_is_waited_for(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, 2)
    node, path = await cluster.topic("t"), paths.topic("t")
    said = replace(
        node,
        partitions={**node.partitions, 1: (*node.partitions[1], BrokerId(4))},
        reassigning={1: Reassignment(origin=node.partitions[1], target=(BrokerId(5),))},
        left={1: (BrokerId(6),)},
    )
    cluster.server.overwrite(path, said.encode())
    assert await remove(controller, 1) == Removed(total=1)
    removals = controller._context.removals
    await until(lambda: not removals.begun and removals.waiting_for(id, (1,)) == {4, 5, 6})


async def test_a_state_that_stays_unreadable_is_looked_at_less_and_less_often(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    await create(controller, 2)
    cluster.server.overwrite(paths.leader_and_isr("t", 1), b"garbage")
    with capture_logs() as logs:
        await remove(controller, 1)
        for _ in range(100):
            async for _ in controller._remover.resume():
                pass
    looked = [entry for entry in logs if entry["event"] == "state of a removed partition cannot be read"]
    assert 2 <= len(looked) <= 8


async def test_a_topic_that_is_deleted_with_a_removal_begun_leaves_nothing_in_memory(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, 2)
    burial = controller._remover._burial
    held = controller.picture.partitions[PartitionKey(id, 1)].held
    assert held is not None
    burial.remember(PartitionKey(id, 1), held)
    controller._context.removals.drop_topic(id)
    async for _ in burial.bury([id]):
        pass
    assert not burial._known


async def test_an_order_that_a_broker_refused_is_not_repeated_when_nobody_waits_for_it(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, 2)
    one = cluster.brokers[BrokerId(1)]
    one.stop_errors += [errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH]
    await remove(controller, 1)
    dispatch = controller._dispatch._brokers[BrokerId(1)]
    await until(lambda: bool(dispatch._refusals.stops))
    # A person takes the record away: the next confirmation finds it gone.
    record = paths.partition_deletion(id, 1)
    await cluster.outside.delete(record, version=None)
    removal = controller._context.removals.get(PartitionKey(id, 1))
    assert removal is not None
    controller._context.removals.confirmed(BrokerId(1), removal.key)
    controller._context.removals.confirmed(BrokerId(2), removal.key)
    await controller._remover.records.settle([removal.key])
    assert not len(controller._context.removals)
    assert not dispatch._refusals.stops
