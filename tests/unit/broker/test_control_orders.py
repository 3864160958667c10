"""Which orders of a controller a broker takes (safety rules S7, S10 to S13; defects D19, D20)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from regnum.broker.v1 import log_pb2
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.cluster.orders.stops import REPLICAS_PER_DELETION
from regnum_model import paths
from regnum_model.ids import BrokerId, LeaderEpoch, LogId, PartitionKey, TopicId
from regnum_service.status import from_rpc_error
from regnum_testing.batches import batch_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld, refusal
from regnum_testing.lifeline_controllers import Controllers
from regnum_testing.waiting import DEADLINE_S, eventually

OTHER_LIFE = TopicId("U" * 22)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    await made.start(1)
    yield made
    await made.close()


async def stop(
    world: BrokerWorld, *, partition: int = 0, leader_epoch: int = -2, delete: bool = True, topic_id: str = TOPIC_ID
) -> int:
    epoch, _ = await world.registration(1)
    response = await world.control(1).StopReplica(
        control_pb2.StopReplicaRequest(
            controller_id=1,
            controller_epoch=world.controller_epoch,
            broker_epoch=epoch,
            partitions=[
                control_pb2.StopReplicaPartition(
                    topic="t", topic_id=topic_id, partition=partition, leader_epoch=leader_epoch, delete=delete
                )
            ],
        ),
        timeout=DEADLINE_S,
    )
    return response.results[0].error_code


async def test_a_replaced_controller_is_refused_and_told_the_newest_epoch(world: BrokerWorld) -> None:
    await world.send(1, [], controller_epoch=7)
    error = await refusal(world.send(1, [], controller_epoch=6))
    assert error.code == errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
    assert error.metadata["controller_epoch"] == "7"


async def test_an_order_for_an_earlier_life_is_refused_and_one_for_a_later_is_taken(world: BrokerWorld) -> None:
    epoch, _ = await world.registration(1)
    error = await refusal(world.send(1, [], broker_epoch=epoch - 1))
    assert error.code == errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH
    await world.send(1, [], broker_epoch=epoch + 1)


async def test_more_partitions_than_a_message_may_have(world: BrokerWorld) -> None:
    state = await world.elect(1, [1], tell=[])
    error = await refusal(world.send(1, [world.order(state, 0)] * 501))
    assert error.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_a_repeated_order_changes_nothing(world: BrokerWorld) -> None:
    state = await world.elect(1, [1])
    role = world.brokers[BrokerId(1)].partition().role
    await world.send(1, [world.order(state, 0)])
    assert world.brokers[BrokerId(1)].partition().role is role


@pytest.mark.parametrize("version", [5, 4])
async def test_a_leader_takes_another_min_insync_up_from_an_order_it_knows(world: BrokerWorld, version: int) -> None:
    """The next controller repeats the state, or has not heard yet of what the leader wrote itself."""
    state = await world.elect(1, [1], tell=[])
    await world.send(1, [world.order(state, 5)])
    role = world.brokers[BrokerId(1)].partition().role
    await world.send(1, [world.order(state, version, min_insync=2)])
    partition = world.brokers[BrokerId(1)].partition()
    assert (partition.role, partition.version) == (role, 5)
    refused = await world.produce(1, batch_of(b"under two"))
    assert refused.error_code == errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS
    await world.send(1, [world.order(state, version, min_insync=1)])
    assert (await world.produce(1, batch_of(b"under one"))).error_code == errors_pb2.ERROR_CODE_NONE


@pytest.mark.parametrize("version", [5, 4, 6])
async def test_a_replica_acts_by_other_settings_from_an_order_that_changes_nothing_else(
    world: BrokerWorld, version: int
) -> None:
    state = await world.elect(1, [1], tell=[])
    await world.send(1, [world.order(state, 5)])
    order = world.order(state, version)
    order.settings.max_message_bytes = 2_000
    order.settings.segment_bytes = 1
    await world.send(1, [order])
    partition = world.brokers[BrokerId(1)].partition()
    assert partition.settings.segment_bytes == 1024 * 1024, "what is out of range is put into it"
    refused = await world.produce(1, batch_of(bytes(2_000)))
    assert refused.error_code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE
    assert "2000" in refused.error_message
    assert (await world.produce(1, batch_of(bytes(1_000)))).error_code == errors_pb2.ERROR_CODE_NONE
    await world.send(1, [world.order(state, version)])
    taken = await world.produce(1, batch_of(bytes(2_000)))
    assert taken.error_code == errors_pb2.ERROR_CODE_NONE, "what nobody sets any more is the broker's own"


async def test_a_larger_value_of_the_topic_goes_before_the_brokers_own(world: BrokerWorld) -> None:
    state = await world.elect(1, [1], tell=[])
    order = world.order(state, 5)
    order.settings.max_message_bytes = 2_000_000
    await world.send(1, [order])
    assert (await world.produce(1, batch_of(bytes(1_500_000)))).error_code == errors_pb2.ERROR_CODE_NONE
    refused = await world.produce(1, batch_of(bytes(2_500_000)))
    assert refused.error_code == errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE


async def test_a_follower_keeps_its_log_by_the_settings_too(world: BrokerWorld) -> None:
    state = await world.elect(1, [1], replicas=[1, 2], tell=[])
    follows = replace(state, leader=BrokerId(2), isr=(BrokerId(2),), leader_epoch=LeaderEpoch(4))
    follows = replace(follows, members={BrokerId(2): state.members[BrokerId(1)]})
    order = world.order(follows, 7, replicas=[1, 2])
    order.settings.segment_ms = 5_000
    await world.send(1, [order])
    partition = world.brokers[BrokerId(1)].partition()
    assert partition.settings.segment_ms == 5_000
    again = world.order(follows, 7, replicas=[1, 2])
    await world.send(1, [again])
    assert partition.settings.segment_ms is None


async def test_what_is_kept_is_as_the_order_says_and_without_limit_where_it_says_so(world: BrokerWorld) -> None:
    state = await world.elect(1, [1], tell=[])
    kept: list[tuple[int | None, int | None]] = []
    for size_bytes, age_ms in ((10_000_000, 5_000), (-1, -1), (-7, 2**62)):
        order = world.order(state, 5)
        order.settings.retention_bytes, order.settings.retention_ms = size_bytes, age_ms
        await world.send(1, [order])
        settings = world.brokers[BrokerId(1)].partition().log.settings
        kept.append((settings.retention_bytes, settings.retention_ms))
    assert kept == [(10_000_000, 5_000), (None, None), (None, 2**53)], "nothing is deleted for a value that is none"


async def test_an_older_order_is_answered_none_and_ignored(world: BrokerWorld) -> None:
    state = await world.elect(1, [1], epoch=3)
    older = replace(state, leader=BrokerId(2), isr=(BrokerId(2), BrokerId(1)), leader_epoch=LeaderEpoch(2))
    older = replace(older, members={**state.members, BrokerId(2): state.members[BrokerId(1)]})
    response = await world.send(1, [world.order(older, 9)])
    assert response.results[0].error_code == errors_pb2.ERROR_CODE_NONE
    assert world.brokers[BrokerId(1)].leads()


async def test_the_same_epoch_with_a_higher_version_changes_the_isr_only(world: BrokerWorld) -> None:
    state = await world.elect(1, [1], replicas=[1, 2], tell=[1])
    role = world.brokers[BrokerId(1)].partition().role
    wider = replace(
        state,
        isr=(BrokerId(1), BrokerId(2)),
        members={**state.members, BrokerId(2): state.members[BrokerId(1)]},
    )
    await world.send(1, [world.order(wider, 5, replicas=[1, 2])])
    partition = world.brokers[BrokerId(1)].partition()
    assert partition.role is role
    assert partition.version == 5
    assert role.state.isr == (BrokerId(1), BrokerId(2))  # type: ignore[union-attr]


async def test_leading_with_another_log_is_refused(world: BrokerWorld) -> None:
    state = await world.elect(1, [1], tell=[])
    foreign = replace(state, members={BrokerId(1): replace(state.members[BrokerId(1)], log_id=LogId("another"))})
    response = await world.send(1, [world.order(foreign, 0)])
    assert response.results[0].error_code == errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR
    assert world.brokers[BrokerId(1)].broker.replicas.get(PartitionKey(TOPIC_ID, 0)) is None


async def test_a_restarted_leader_needs_a_new_epoch(world: BrokerWorld) -> None:
    """Traces T3 and T4: the old epoch is refused, so the controller must raise it."""
    state = await world.elect(1, [1], epoch=4)
    await world.produce(1, batch_of(b"kept"))
    await world.stop(1)
    await world.start(1)
    assert not world.brokers[BrokerId(1)].leads()
    response = await world.send(1, [world.order(state, 0)])
    assert response.results[0].error_code == errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
    await world.elect(1, [1], epoch=5)
    result = await world.produce(1, batch_of(b"more"))
    assert (result.error_code, result.base_offset) == (errors_pb2.ERROR_CODE_NONE, 1)


async def test_orders_that_contradict_themselves_are_refused_one_by_one(world: BrokerWorld) -> None:
    good = await world.elect(1, [1], tell=[])
    nameless = world.order(good, 0, topic="a/b")
    memberless = world.order(good, 0, partition=1)
    del memberless.members[:]
    negative = world.order(good, 0, partition=-1)
    response = await world.send(1, [nameless, memberless, negative, world.order(good, 0), world.order(good, 0)])
    wrong, right = errors_pb2.ERROR_CODE_INVALID_REQUEST, errors_pb2.ERROR_CODE_NONE
    assert [result.error_code for result in response.results] == [wrong, wrong, wrong, right, wrong]


@pytest.mark.parametrize("topic_id", [".", "..", "", "a/b", "x", "T" * 23, "T" * 21 + "/"])
async def test_what_is_no_topic_id_names_no_folder(world: BrokerWorld, topic_id: str) -> None:
    state = await world.elect(1, [1], tell=[])
    order = world.order(state, 0)
    order.topic_id = topic_id
    response = await world.send(1, [order])
    assert response.results[0].error_code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert await stop(world, topic_id=topic_id) == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert len(world.brokers[BrokerId(1)].broker.replicas) == 0
    assert world.brokers[BrokerId(1)].supervisor.failure is None


async def test_a_controller_epoch_out_of_nowhere_is_refused_and_the_controller_goes_on(world: BrokerWorld) -> None:
    for epoch in (2**31 - 1, 2**16 + 1):
        error = await refusal(world.send(1, [], controller_epoch=epoch))
        assert error.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    await world.elect(1, [1])
    assert world.brokers[BrokerId(1)].leads()


async def test_a_high_controller_epoch_is_believed_when_the_store_says_so(world: BrokerWorld) -> None:
    await world.store.create(paths.CONTROLLER_EPOCH, b"1000000")
    await world.send(1, [], controller_epoch=1_000_000)
    error = await refusal(world.send(1, [], controller_epoch=999_999))
    assert error.code == errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH


async def test_a_leader_epoch_out_of_nowhere_is_refused_and_the_next_reign_goes_on(world: BrokerWorld) -> None:
    good = await world.elect(1, [1])
    for epoch in (2**31 - 1, 2**16 + 1):
        wrong = world.order(replace(good, leader_epoch=LeaderEpoch(epoch)), 1)
        response = await world.send(1, [wrong])
        assert response.results[0].error_code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    await world.elect(1, [1], epoch=1)
    result = await world.produce(1, batch_of(b"still the leader"))
    assert result.error_code == errors_pb2.ERROR_CODE_NONE


async def test_a_high_leader_epoch_is_believed_when_the_store_says_so(world: BrokerWorld) -> None:
    await world.elect(1, [1], epoch=1_000_000)
    assert world.brokers[BrokerId(1)].leads()


async def test_numbers_that_no_node_may_hold_are_refused(world: BrokerWorld) -> None:
    good = await world.elect(1, [1], tell=[])
    huge = world.order(good, 0, partition=2**31 - 1)
    leader = world.order(good, 0)
    leader.state.leader = -2
    replica = world.order(good, 0)
    replica.state.replicas.append(-1)
    member = world.order(good, 0)
    member.members[0].broker_epoch = -1
    recorded = world.order(good, 0)
    recorded.recorded_controller_epoch = 2**31 - 1
    response = await world.send(1, [huge, leader, replica, member, recorded])
    assert {result.error_code for result in response.results} == {errors_pb2.ERROR_CODE_INVALID_REQUEST}


async def test_another_life_of_a_topic_takes_the_name_and_leaves_the_old_files(world: BrokerWorld) -> None:
    await world.elect(1, [1])
    await world.produce(1, batch_of(b"former"))
    await world.elect(1, [1], topic_id=OTHER_LIFE, epoch=1)
    result = await world.produce(1, batch_of(b"later"))
    assert result.base_offset == 0
    running = world.brokers[BrokerId(1)]
    assert running.partition().role is None
    assert running.partition().log.log_end_offset == 1
    request = log_pb2.ProduceRequest(
        acks=log_pb2.ACKS_LEADER,
        partitions=[log_pb2.ProducePartition(topic="t", topic_id=TOPIC_ID, partition=0, record_batch=batch_of(b"x"))],
    )
    response = await world.call(1, request)
    assert response.results[0].error_code == errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID


async def test_deleting_a_topic_removes_its_replicas(world: BrokerWorld) -> None:
    await world.elect(1, [1], epoch=3)
    assert await stop(world, partition=-1) == errors_pb2.ERROR_CODE_NONE
    assert len(world.brokers[BrokerId(1)].broker.replicas) == 0
    result = await world.produce(1, batch_of(b"a"))
    assert result.error_code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION


async def test_appends_come_between_portions_of_a_large_deletion(world: BrokerWorld) -> None:
    """One job of the writer for all of them would hold every append up until the last file is gone."""
    count = 2 * REPLICAS_PER_DELETION + 1
    state = await world.elect(1, [1], tell=[])
    for start in range(0, count, 250):
        numbers = range(start, min(start + 250, count))
        await world.send(1, [world.order(state, 0, partition=number) for number in numbers])
    running = world.brokers[BrokerId(1)].broker
    storage = running._storage
    assert storage is not None
    assert len(storage.directory.replicas) == len(running.replicas) == count
    seen: list[int] = []

    async def look() -> None:
        """What appends are: jobs of the same writer."""
        while len(storage.directory.replicas):
            seen.append(await storage.write(lambda: len(storage.directory.replicas)))

    looking = asyncio.create_task(look())
    assert await stop(world, partition=-1) == errors_pb2.ERROR_CODE_NONE
    await looking
    assert len(running.replicas) == 0
    assert any(0 < left < count for left in seen), seen


async def test_a_stop_of_an_earlier_epoch_is_refused(world: BrokerWorld) -> None:
    await world.elect(1, [1], epoch=3)
    assert await stop(world, leader_epoch=2) == errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
    assert world.brokers[BrokerId(1)].leads()
    assert await stop(world, leader_epoch=3, delete=False) == errors_pb2.ERROR_CODE_NONE
    assert world.brokers[BrokerId(1)].partition().role is None


async def test_stopping_what_is_not_here_is_done_already(world: BrokerWorld) -> None:
    assert await stop(world, topic_id=OTHER_LIFE) == errors_pb2.ERROR_CODE_NONE


async def test_a_full_set_that_is_short_deletes_nothing(world: BrokerWorld) -> None:
    await world.elect(1, [1])
    epoch, _ = await world.registration(1)
    await world.control(1).LeaderAndIsr(
        control_pb2.LeaderAndIsrRequest(
            controller_id=1, controller_epoch=1, broker_epoch=epoch, init=True, part=0, parts=1
        ),
        timeout=DEADLINE_S,
    )
    assert world.brokers[BrokerId(1)].leads()


async def test_a_lost_session_registers_anew_and_gives_leadership_up(world: BrokerWorld) -> None:
    await world.elect(1, [1])
    running = world.brokers[BrokerId(1)]
    before, node = await world.registration(1)
    world.server.expire(running.sessions[-1])

    async def registered_anew() -> bool:
        identity = running.broker.fence.identity
        return identity is not None and identity.broker_epoch > before

    await eventually(registered_anew)
    after, node_after = await world.registration(1)
    assert after > before
    assert node_after.registration == node.registration + 1
    assert node_after.directories == node.directories
    assert not running.leads()
    error = await refusal(world.send(1, [], broker_epoch=before))
    assert error.code == errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH


async def test_a_leader_that_everybody_else_is_cut_off_from_serves_only_what_it_leads_alone(world: BrokerWorld) -> None:
    """Safety rule S8: no store, no controller, and the follower of partition 0 has not been told to fetch."""
    await world.start(2)
    await world.elect(1, [1, 2], partition=0, tell=[1])
    await world.elect(1, [1], partition=1)
    running = world.brokers[BrokerId(1)]
    world.store_away = True
    world.server.expire(running.sessions[-1])

    async def sent_away() -> bool:
        result = await world.produce(1, batch_of(b"a"), acks=log_pb2.ACKS_LEADER)
        return result.error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER

    await eventually(sent_away)
    assert running.leads(0)
    alone = await world.produce(1, batch_of(b"a"), acks=log_pb2.ACKS_LEADER, partition=1)
    assert alone.error_code == errors_pb2.ERROR_CODE_NONE
    world.store_away = False


async def test_a_leader_sends_clients_away_while_the_controller_says_that_its_orders_go_astray(
    world: BrokerWorld,
) -> None:
    """Safety rule S8: it has session and lifeline, and the follower of the partition has not been told to fetch."""
    await world.start(2)
    await world.elect(1, [1, 2], tell=[1])
    controllers = Controllers(world)
    await controllers.next()
    assert controllers.thread is not None

    async def produced() -> int:
        return (await world.produce(1, batch_of(b"a"), acks=log_pb2.ACKS_LEADER)).error_code

    async def sent_away() -> bool:
        return await produced() == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER

    async def served() -> bool:
        return await produced() == errors_pb2.ERROR_CODE_NONE

    controllers.thread.tell_misdirected(controllers.epoch, frozenset({BrokerId(1)}))
    await eventually(sent_away)
    assert world.brokers[BrokerId(1)].leads(0)
    controllers.thread.tell_misdirected(controllers.epoch, frozenset())
    await eventually(served)
    await controllers.end()


async def test_a_fenced_broker_sends_clients_away_and_does_not_register_without_a_lifeline(world: BrokerWorld) -> None:
    await world.elect(1, [1])
    running = world.brokers[BrokerId(1)]
    path = paths.broker_id(BrokerId(1))
    node = await world.store.get(path)
    await world.store.delete(path, version=node.stat.version)

    async def sends_away() -> bool:
        result = await world.produce(1, batch_of(b"a"))
        return result.error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER

    await eventually(sends_away)
    assert await world.store.exists(path) is None
    assert running.supervisor.failure is None


async def test_a_batch_of_garbage_is_no_order(world: BrokerWorld) -> None:
    call = world.channel(world.brokers[BrokerId(1)].settings.internal_listen).unary_unary(
        "/regnum.replication.v1.ReplicaControlService/LeaderAndIsr"
    )
    with pytest.raises(grpc.RpcError) as raised:
        await call(b"\xff\xff\xff", timeout=DEADLINE_S)
    assert from_rpc_error(raised.value).code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def logs(world: BrokerWorld, *keys: PartitionKey, **epochs: int) -> control_pb2.GetReplicaLogInfoResponse:
    epoch, _ = await world.registration(1)
    request = control_pb2.GetReplicaLogInfoRequest(
        controller_id=1,
        controller_epoch=epochs.get("controller_epoch", world.controller_epoch),
        broker_epoch=epochs.get("broker_epoch", epoch),
        queries=[control_pb2.ReplicaLogQuery(topic_id=key.topic_id, partition=key.partition) for key in keys],
    )
    try:
        return await world.control(1).GetReplicaLogInfo(request, timeout=DEADLINE_S)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from None


async def test_a_broker_tells_what_its_logs_hold_and_that_it_leads_still(world: BrokerWorld) -> None:
    await world.elect(1, [1], epoch=4)
    for value in (b"a", b"b"):
        await world.produce(1, batch_of(value))
    epoch, node = await world.registration(1)
    told = await logs(world, PartitionKey(TOPIC_ID, 0), PartitionKey(OTHER_LIFE, 0))
    assert told.broker_epoch == epoch
    here, nowhere = told.replicas
    assert (here.last_written_leader_epoch, here.current_leader_epoch) == (4, 4)
    assert (here.log_start_offset, here.high_watermark, here.log_end_offset) == (0, 2, 2)
    assert here.leading
    assert {here.log_id, nowhere.log_id} == set(node.directories.values())
    assert nowhere.error_code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
    assert nowhere.last_written_leader_epoch == -1


async def test_an_epoch_in_which_nothing_was_written_is_told_too(world: BrokerWorld) -> None:
    await world.elect(1, [1], epoch=4)
    await world.produce(1, batch_of(b"a"))
    await world.elect(1, [1], epoch=9)
    (here,) = (await logs(world, PartitionKey(TOPIC_ID, 0))).replicas
    assert (here.last_written_leader_epoch, here.current_leader_epoch) == (4, 9)


async def test_a_replaced_controller_and_one_that_means_an_earlier_life_hear_nothing_of_logs(
    world: BrokerWorld,
) -> None:
    await world.send(1, [], controller_epoch=7)
    error = await refusal(logs(world, controller_epoch=6))
    assert error.code == errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
    epoch, _ = await world.registration(1)
    error = await refusal(logs(world, controller_epoch=7, broker_epoch=epoch - 1))
    assert error.code == errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH
    error = await refusal(logs(world, *[PartitionKey(TOPIC_ID, 0)] * 1_001, controller_epoch=7))
    assert error.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_an_order_to_delete_a_removed_partition_leaves_one_alone_that_was_added_since(world: BrokerWorld) -> None:
    """It carries the leader epoch of the tombstone (safety rule S2)."""
    await world.elect(1, [1], epoch=3)
    assert await stop(world, leader_epoch=2) == errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
    assert world.brokers[BrokerId(1)].leads()
    assert await stop(world, leader_epoch=4) == errors_pb2.ERROR_CODE_NONE
    assert world.brokers[BrokerId(1)].broker.replicas.get(PartitionKey(TOPIC_ID, 0)) is None


async def test_a_replica_without_a_role_is_as_new_as_its_log(world: BrokerWorld) -> None:
    """After a start nothing but the log says which leader epoch a replica has seen."""
    await world.elect(1, [1], epoch=3)
    await world.stop(1)
    await world.start(1)
    assert world.brokers[BrokerId(1)].partition().role is None
    assert await stop(world, leader_epoch=2) == errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH
    assert world.brokers[BrokerId(1)].broker.replicas.get(PartitionKey(TOPIC_ID, 0)) is not None
    assert await stop(world, leader_epoch=4) == errors_pb2.ERROR_CODE_NONE
