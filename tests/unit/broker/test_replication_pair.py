"""Leaders and followers as real brokers of one process."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from regnum.broker.v1 import log_pb2
from regnum.replication.v1 import replication_pb2, replication_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_broker.replication.leader import FollowerStream, Leadership
from regnum_coordination.port import Check, Delete
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId
from regnum_testing.batches import batch_of, values_of
from regnum_testing.broker_world import TOPIC_ID, BrokerWorld
from regnum_testing.waiting import DEADLINE_S, eventually


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[BrokerWorld]:
    made = BrokerWorld(tmp_path)
    await made.begin()
    yield made
    await made.close()


def contents(world: BrokerWorld, id: int) -> list[bytes | None]:
    log = world.brokers[BrokerId(id)].partition().log
    return list(values_of(log.read(log.log_start_offset, bytes_max=1 << 20)))


async def test_acknowledged_by_all_means_written_by_all(world: BrokerWorld) -> None:
    await world.start(1, 2, 3)
    await world.elect(1, [1, 2, 3], min_insync=2)
    result = await world.produce(1, batch_of(b"a", b"b"))
    assert (result.error_code, result.base_offset) == (errors_pb2.ERROR_CODE_NONE, 0)
    assert contents(world, 1) == contents(world, 2) == contents(world, 3) == [b"a", b"b"]
    assert world.brokers[BrokerId(1)].partition().high_watermark == 2


async def test_nothing_is_acknowledged_while_a_member_is_away(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2], tell=[1])
    result = await world.produce(1, batch_of(b"a"), timeout_ms=300)
    assert result.error_code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    assert "did not confirm in time: waiting for broker 2;" in result.error_message
    assert world.brokers[BrokerId(1)].partition().high_watermark == 0
    await world.elect(1, [1, 2], epoch=1)
    result = await world.produce(1, batch_of(b"b"))
    assert (result.error_code, result.base_offset) == (errors_pb2.ERROR_CODE_NONE, 1)


async def test_a_request_that_says_nothing_of_acks_waits_for_all(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2], tell=[1])
    item = log_pb2.ProducePartition(topic="t", partition=0, record_batch=batch_of(b"a"))
    response = await world.call(1, log_pb2.ProduceRequest(timeout_ms=300, partitions=[item]))
    assert response.results[0].error_code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT


async def test_a_leader_deposed_while_it_waits_says_that_it_has_appended(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2], tell=[1])
    first = await world.produce(1, batch_of(b"leader only"), acks=log_pb2.ACKS_LEADER)
    assert first.error_code == errors_pb2.ERROR_CODE_NONE
    waiting = world.produce(1, batch_of(b"lost"))
    leader = world.brokers[BrokerId(1)].partition()

    async def depose() -> None:
        async def waits() -> bool:
            return len(leader.acks) == 1

        await eventually(waits)
        await world.elect(2, [1, 2], epoch=1)

    result, _ = await asyncio.gather(waiting, depose())
    assert result.error_code == errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND
    never = await world.produce(1, batch_of(b"never"))
    assert never.error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, "nothing of this one was appended"


async def test_a_deposed_leaders_tail_gives_way_to_the_new_leaders_log(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2])
    await world.produce(1, batch_of(b"common"))
    await world.elect(2, [1, 2], epoch=1, tell=[2])
    await world.produce(1, batch_of(b"orphan"), acks=log_pb2.ACKS_LEADER)
    await world.produce(2, batch_of(b"new"), acks=log_pb2.ACKS_LEADER)
    await world.elect(2, [1, 2], epoch=2)
    result = await world.produce(2, batch_of(b"last"))
    assert result.error_code == errors_pb2.ERROR_CODE_NONE
    assert contents(world, 1) == contents(world, 2) == [b"common", b"new", b"last"]


async def test_a_follower_that_caught_up_enters_the_isr_with_its_log(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1], replicas=[1, 2], tell=[1])
    await world.produce(1, batch_of(b"a"))
    order = world.order(await world.state(), 0, replicas=[1, 2])
    await world.send(2, [order])
    await world.isr_is(1, 2)
    assert (await world.state()).members[BrokerId(2)] == await world.membership(2)
    assert contents(world, 2) == [b"a"]


async def test_a_follower_whose_registration_is_not_live_stays_outside(world: BrokerWorld) -> None:
    """Defect D8: the guard of its registration moved on after its fetch."""
    await world.start(1, 2)
    guard = await world.store.get(paths.broker_epoch(BrokerId(2)))
    await world.store.set(paths.broker_epoch(BrokerId(2)), b"", version=guard.stat.version)
    await world.elect(1, [1], replicas=[1, 2])
    leadership = world.brokers[BrokerId(1)].partition().role

    async def was_refused() -> bool:
        return leadership.retry_isr_s > 0  # type: ignore[union-attr]

    await eventually(was_refused)
    assert (await world.state()).isr == (BrokerId(1),)


async def test_a_leader_that_lost_its_registration_changes_no_isr(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1], replicas=[1, 2], tell=[1])
    guard = await world.store.get(paths.broker_epoch(BrokerId(1)))
    node = await world.store.get(paths.broker_id(BrokerId(1)))
    epoch = node.stat.creation_id
    await world.store.multi(
        [
            Check(paths.broker_epoch(BrokerId(1)), guard.stat.version),
            Delete(paths.broker_id(BrokerId(1)), node.stat.version),
        ]
    )
    assert epoch > 0
    leader = world.brokers[BrokerId(1)].partition()
    await world.send(2, [world.order(await world.state(), 0, replicas=[1, 2])])

    async def tried() -> bool:
        return leader.role is None or leader.role.retry_isr_s > 0  # type: ignore[attr-defined]

    await eventually(tried)
    assert (await world.state()).isr == (BrokerId(1),)


async def test_an_isr_write_without_an_answer_is_repeated_until_it_is_definite(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1], replicas=[1, 2], tell=[1])
    path = paths.leader_and_isr("t", 0)
    world.server.lose_reply(touching=path)
    await world.send(2, [world.order(await world.state(), 0, replicas=[1, 2])])
    await world.isr_is(1, 2)
    leader = world.brokers[BrokerId(1)].partition()

    async def settled() -> bool:
        return leader.version == 1 and leader.role.proposed_isr is None  # type: ignore[union-attr]

    await eventually(settled)
    assert (await world.state()).isr == (BrokerId(1), BrokerId(2))


async def test_a_leader_adopts_what_another_wrote_in_its_epoch(world: BrokerWorld) -> None:
    await world.start(1, 2)
    state = await world.elect(1, [1], replicas=[1, 2], tell=[1])
    path = paths.leader_and_isr("t", 0)
    await world.store.set(path, state.encode(), version=0)
    await world.send(2, [world.order(state, 0, replicas=[1, 2])])
    await world.isr_is(1, 2)
    assert world.brokers[BrokerId(1)].leads()


async def test_a_leader_steps_down_when_the_store_names_another(world: BrokerWorld) -> None:
    await world.start(1, 2)
    state = await world.elect(1, [1], replicas=[1, 2], tell=[1])
    order = world.order(state, 0, replicas=[1, 2])
    await world.elect(2, [1, 2], epoch=1, tell=[])
    await world.send(2, [order])
    leader = world.brokers[BrokerId(1)].partition()

    async def stepped_down() -> bool:
        return leader.role is None

    await eventually(stepped_down)
    result = await world.produce(1, batch_of(b"a"), acks=log_pb2.ACKS_LEADER)
    assert result.error_code == errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER


async def test_a_leader_outlives_damage_to_its_node(world: BrokerWorld) -> None:
    """Without its role it could not take the same epoch again, and nobody would raise it (trace T4)."""
    await world.start(1, 2)
    state = await world.elect(1, [1], replicas=[1, 2], tell=[1])
    path = paths.leader_and_isr("t", 0)
    await world.store.set(path, b"garbage", version=0)
    await world.send(2, [world.order(state, 0, replicas=[1, 2])])
    leadership = world.brokers[BrokerId(1)].partition().role

    async def was_refused() -> bool:
        return leadership.retry_isr_s > 0  # type: ignore[union-attr]

    await eventually(was_refused)
    assert world.brokers[BrokerId(1)].leads()
    await world.store.set(path, state.encode(), version=1)
    await world.isr_is(1, 2)
    assert world.brokers[BrokerId(1)].leads()


async def test_too_few_in_sync_means_nothing_is_appended(world: BrokerWorld) -> None:
    await world.start(1)
    await world.elect(1, [1], replicas=[1], min_insync=2)
    result = await world.produce(1, batch_of(b"a"))
    assert result.error_code == errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS
    assert world.brokers[BrokerId(1)].partition().log.log_end_offset == 0


async def test_the_high_watermark_stands_still_below_min_insync(world: BrokerWorld) -> None:
    await world.start(1)
    await world.elect(1, [1], replicas=[1], min_insync=2)
    result = await world.produce(1, batch_of(b"a"), acks=log_pb2.ACKS_LEADER)
    assert result.error_code == errors_pb2.ERROR_CODE_NONE
    assert world.brokers[BrokerId(1)].partition().high_watermark == 0


async def test_a_follower_hears_of_its_leader_before_the_leader_does(world: BrokerWorld) -> None:
    """The position waits in the leader's session and counts as soon as the order comes."""
    await world.start(1, 2)
    state = await world.elect(1, [1, 2], tell=[])
    order = world.order(state, 0)
    await world.send(2, [order])
    await world.send(1, [order])
    result = await world.produce(1, batch_of(b"a"))
    assert result.error_code == errors_pb2.ERROR_CODE_NONE


async def test_a_fetch_with_a_broker_epoch_out_of_nowhere_locks_nobody_out(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2], min_insync=2)
    address = world.brokers[BrokerId(1)].settings.internal_listen
    stub = replication_pb2_grpc.ReplicationServiceStub(world.channel(address))
    hostile = stub.FetchReplica(timeout=DEADLINE_S)
    position = replication_pb2.FetchPosition(topic_id=TOPIC_ID, partition=0, last_fetched_epoch=-1)
    await hostile.write(
        replication_pb2.FetchReplicaRequest(replica_id=2, broker_epoch=2**63 - 1, max_wait_ms=0, positions=[position])
    )
    await hostile.read()
    hostile.cancel()
    result = await world.produce(1, batch_of(b"by both"))
    assert result.error_code == errors_pb2.ERROR_CODE_NONE
    assert (await world.state()).isr == (1, 2)


async def test_a_fetch_of_an_earlier_life_than_the_member_is_not_counted(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2], min_insync=2)
    leadership = world.brokers[BrokerId(1)].partition().role
    assert isinstance(leadership, Leadership)
    epoch, node = await world.registration(2)
    for life, counted in ((BrokerEpoch(epoch - 1), False), (epoch, True)):
        stream = FollowerStream(broker=BrokerId(2), broker_epoch=life, registration=node.registration, polled_s=0.0)
        assert leadership.record_fetch(stream, offset=0, now_s=0.0) is counted


async def test_a_wiped_follower_copies_everything_again(world: BrokerWorld, tmp_path: Path) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2])
    await world.produce(1, batch_of(b"a", b"b"))
    await world.stop(2)
    shutil.rmtree(tmp_path / "broker-2")
    await world.start(2)
    await world.elect(1, [1], replicas=[1, 2], epoch=1)
    await world.isr_is(1, 2)
    assert contents(world, 2) == [b"a", b"b"]


async def end_of(world: BrokerWorld, id: int, *, partition: int = 0, at_ms: int | None = None) -> log_pb2.OffsetResult:
    query = log_pb2.OffsetQuery(topic="t", partition=partition)
    if at_ms is None:
        query.latest.CopyFrom(log_pb2.LatestOffset())
    else:
        query.at_or_after.FromMilliseconds(at_ms)
    (result,) = (
        await world.log(id).ListOffsets(log_pb2.ListOffsetsRequest(queries=[query]), timeout=DEADLINE_S)
    ).results
    return result


async def test_a_new_leader_names_no_end_before_it_knows_what_is_committed(world: BrokerWorld) -> None:
    """KIP-207. Steps: 1 commits with 2; 2 has the record and not the watermark, and leads; 1 comes back."""
    await world.start(1, 2)
    await world.elect(1, [1, 2], tell=[1])
    await world.produce(1, batch_of(b"a", timestamp_ms=1_000), acks=1)
    follower = world.order(await world.state(), 0)
    await world.send(2, [follower])
    await world.log_ends_at(2, 1)
    await world.elect(2, [1, 2], epoch=1, tell=[1])
    world.brokers[BrokerId(2)].partition().high_watermark = 0
    await world.elect(2, [1, 2], epoch=2, tell=[2])
    for at_ms in (None, 500):
        result = await end_of(world, 2, at_ms=at_ms)
        assert (result.error_code, result.offset) == (errors_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE, -1)
        assert "min.insync.replicas" not in result.error_message
    assert (await end_of(world, 2, at_ms=5_000)).error_code == errors_pb2.ERROR_CODE_NONE
    await world.elect(2, [1, 2], epoch=3)

    async def known() -> bool:
        return (await end_of(world, 2)).offset == 1

    await eventually(known)


async def test_a_new_leader_without_min_insync_says_what_it_lacks(world: BrokerWorld) -> None:
    await world.start(1, 2)
    await world.elect(1, [1, 2])
    await world.produce(1, batch_of(b"a"))
    world.brokers[BrokerId(2)].partition().high_watermark = 0
    await world.elect(2, [2], replicas=[1, 2], epoch=1, min_insync=2, tell=[2])
    result = await end_of(world, 2)
    assert result.error_code == errors_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE
    assert "min.insync.replicas" in result.error_message


async def test_acknowledged_records_of_a_quiet_partition_are_seen_at_once_under_the_next_leader(
    world: BrokerWorld,
) -> None:
    """Beside a partition that is never quiet, as long as its follower lives."""
    await world.start(1, 2)
    await world.elect(1, [1, 2], topic="t", partition=0)
    await world.elect(1, [1, 2], topic="t", partition=1)
    busy = True

    async def keep_busy() -> None:
        while busy:
            await world.produce(1, batch_of(b"busy"), partition=0)

    keeping = asyncio.create_task(keep_busy())
    await world.produce(1, batch_of(b"quiet"), partition=1)

    async def told() -> bool:
        return world.brokers[BrokerId(2)].partition(1).high_watermark == 1

    await eventually(told)
    busy = False
    await keeping
    await world.elect(2, [2], replicas=[1, 2], partition=1, epoch=1, tell=[2])
    assert (await end_of(world, 2, partition=1)).offset == 1
