"""The controller over a memory store, with fake brokers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Group, Outcome
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.decisions.relief import CutOff
from regnum_election.reign.events import BrokerDead, IsrsWritten, LeaderCutOff, Superseded
from regnum_election.reign.reign import DeposedError, Reign
from regnum_election.topics.creation import Created
from regnum_election.topics.deletion import Deleted
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, ElectionId, PartitionKey, TopicId
from regnum_model.insync import with_isr
from regnum_model.nodes import DeletionNode, LeaderAndIsr, Membership, TopicNode
from regnum_service.errors import RegnumError
from regnum_testing.reigning import ANYBODY, FakeCluster, until
from regnum_testing.waiting import DEADLINE_S


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


def wanted(name: str, partitions: int = 1, factor: int = 3, mutation: str | None = None) -> TopicRequest:
    return TopicRequest(name=name, partitions=partitions, replication_factor=factor, assignment=(), mutation=mutation)


def assigned(name: str, *replicas: int) -> TopicRequest:
    assignment = ((0, tuple(BrokerId(id) for id in replicas)),)
    return TopicRequest(name=name, partitions=0, replication_factor=None, assignment=assignment, mutation=None)


async def create(controller: Controller, *requests: TopicRequest) -> list[TopicId]:
    outcomes = (
        await controller.topics.create(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    ).outcomes
    ids: list[TopicId] = []
    for outcome in outcomes:
        assert isinstance(outcome, Created), outcome
        ids.append(outcome.topic_id)
    return ids


async def test_create_topic_writes_and_tells(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("orders", partitions=4))
    node = await cluster.topic("orders")
    assert node.topic_id == id
    assert not node.creating
    for number in range(4):
        state = await cluster.state("orders", number)
        assert state.leader == node.partitions[number][0]
        assert state.isr == node.partitions[number]
        assert state.leader_epoch == 0
        key = PartitionKey(id, number)
        await until(lambda key=key, state=state: cluster.all_told((1, 2, 3), key, state.leader))
        for broker in (1, 2, 3):
            assert cluster.told(broker)[key].is_new
            assert cluster.told(broker)[key].min_insync_replicas == 2
    leaders = {number: replicas[0] for number, replicas in node.partitions.items()}
    await until(lambda: cluster.metadata.topics == {"orders": leaders})


async def test_broker_death_moves_leadership(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    key = PartitionKey(id, 0)
    cluster.kill(1)
    await until(lambda: cluster.all_told((2, 3), key, 2))
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 1, (2, 3))


async def test_follower_death_shrinks_the_isr_and_tells_the_leader_alone(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    key = PartitionKey(id, 0)
    before = len(cluster.brokers[BrokerId(2)].requests)
    cluster.kill(3)
    await until(lambda: list(cluster.told(1)[key].state.isr) == [1, 2])
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr) == (1, 0, (1, 2))
    assert len(cluster.brokers[BrokerId(2)].requests) == before


async def test_last_member_is_kept_and_leads_again_when_back(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2))
    cluster.kill(1)
    await until(lambda: cluster.all_told((2,), PartitionKey(id, 0), 2))
    cluster.kill(2)

    async def offline() -> bool:
        return (await cluster.state("t", 0)).leader == -1

    await until(offline)
    state = await cluster.state("t", 0)
    assert state.isr == (2,)
    assert state.elr == (1,)
    back = await cluster.register(1)
    await until(lambda: back.leaders().get(PartitionKey(id, 0)) == 1, what="the eligible replica leads")
    state = await cluster.state("t", 0)
    assert state.members[BrokerId(1)].broker_epoch == back.epoch


async def test_bounce_gets_a_new_epoch_before_init(cluster: FakeCluster) -> None:
    """A leader that comes back faster than anybody notices has failed first (safety rule S10)."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    cluster.server.hold_watches()
    old = cluster.brokers[BrokerId(1)]
    back = await cluster.register(1)
    assert back.epoch > old.epoch
    cluster.server.release_watches()
    key = PartitionKey(id, 0)
    await until(lambda: key in back.states)
    first = back.requests[0]
    assert first.init
    assert first.broker_epoch == back.epoch
    assert first.partitions[0].state.leader == 2
    assert first.partitions[0].state.leader_epoch == 1
    assert 1 not in first.partitions[0].state.isr


async def test_fence_by_lifeline(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    dead = cluster.brokers[BrokerId(1)]
    controller.queue.put(BrokerDead(broker=dead.id, epoch=dead.epoch, registration=dead.registration, evidence="test"))
    await until(lambda: cluster.all_told((2, 3), PartitionKey(id, 0), 2))
    assert await cluster.outside.exists(paths.broker_id(dead.id)) is None
    guard = await cluster.outside.exists(paths.broker_epoch(dead.id))
    assert guard is not None
    assert guard.version == dead.registration + 1


async def test_fence_of_an_earlier_registration_changes_nothing(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    old = cluster.brokers[BrokerId(1)]
    back = await cluster.register(1)
    controller.queue.put(BrokerDead(broker=old.id, epoch=old.epoch, registration=old.registration, evidence="test"))
    await until(lambda: PartitionKey(id, 0) in back.states)
    assert await cluster.outside.exists(paths.broker_id(old.id)) is not None


async def test_next_controller_sends_init_to_all(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, wanted("a", partitions=700), wanted("b", partitions=2))
    await cluster.end_reign()
    for broker in cluster.brokers.values():
        broker.requests.clear()
    cluster.kill(3)
    following = await cluster.reign(2)
    assert following.reign.epoch == 2
    for id in (1, 2):
        broker = cluster.brokers[BrokerId(id)]
        await until(lambda broker=broker: sum(len(r.partitions) for r in broker.requests if r.init) == 702)
        parts = [(r.part, r.parts) for r in broker.requests if r.init]
        assert parts == [(0, 2), (1, 2)]
        assert all(p.state.leader != 3 for r in broker.requests for p in r.partitions)

    async def shrunk() -> bool:
        paths_ = [paths.leader_and_isr("a", number) for number in range(700)]
        nodes = await cluster.outside.get_many(paths_)
        return all(node is not None and 3 not in LeaderAndIsr.decode(node.data).isr for node in nodes)

    await until(shrunk)


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


async def test_hand_written_topic_is_taken_up(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await cluster.outside.create(paths.topic("bare"), b'{"0":[1,2],"1":[3,1]}')
    await until(lambda: "bare" in controller.picture.names)
    id = controller.picture.names["bare"]
    await until(lambda: cluster.all_told((1, 2), PartitionKey(id, 0), 1))
    await until(lambda: cluster.all_told((1, 3), PartitionKey(id, 1), 3))
    node = await cluster.topic("bare")
    assert node.topic_id == id
    assert not node.creating
    assert await cluster.outside.exists(paths.topic_id(id)) is not None


async def test_hand_written_garbage_is_left_alone(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await cluster.outside.create(paths.topic("broken"), b"{not json")
    await create(controller, wanted("fine"))
    assert "broken" not in controller.picture.names
    assert (await cluster.outside.get(paths.topic("broken"))).data == b"{not json"


async def test_topic_removed_by_hand_is_deleted(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    for path in (paths.leader_and_isr("t", 0), paths.partition("t", 0), paths.topic("t")):
        await cluster.outside.delete(path, version=None)
    for number in (1, 2):
        broker = cluster.brokers[BrokerId(number)]
        await until(lambda broker=broker: any(stop.topic_id == id and stop.delete for stop in broker.stops))

    async def gone() -> bool:
        return (
            await cluster.outside.exists(paths.topic_id(id)) is None
            and await cluster.outside.exists(paths.deletion(id)) is None
        )

    await until(gone)
    assert id not in controller.picture.topics


async def test_topic_removed_by_hand_while_no_controller_reigned(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    await cluster.end_reign()
    for path in (paths.leader_and_isr("t", 0), paths.partition("t", 0), paths.topic("t")):
        await cluster.outside.delete(path, version=None)
    await cluster.reign(2)
    broker = cluster.brokers[BrokerId(1)]
    await until(lambda: any(stop.topic_id == id and stop.delete for stop in broker.stops))

    async def gone() -> bool:
        return await cluster.outside.exists(paths.deletion(id)) is None

    await until(gone)
    assert await cluster.outside.exists(paths.topic_id(id)) is None


async def test_missing_state_is_offline_and_never_epoch_zero(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=2))
    await cluster.end_reign()
    await cluster.outside.delete(paths.leader_and_isr("t", 0), version=None)
    following = await cluster.reign(2)
    partition = following.picture.partitions[PartitionKey(id, 0)]
    assert partition.trouble is not None
    assert await cluster.outside.exists(paths.leader_and_isr("t", 0)) is None
    await until(lambda: cluster.metadata.topics == {"t": {0: -1}})


async def test_unknown_outcome_is_resolved_by_repeating(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    cluster.server.lose_reply(touching=paths.leader_and_isr("t", 0))
    cluster.kill(1)
    await until(lambda: cluster.all_told((2, 3), PartitionKey(id, 0), 2))
    assert (await cluster.state("t", 0)).leader_epoch == 1


async def test_conflict_with_a_leaders_own_write_goes_round_again(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    path = paths.leader_and_isr("t", 0)
    node = await cluster.outside.get(path)
    state = LeaderAndIsr.decode(node.data)
    shrunk = LeaderAndIsr.encode(
        LeaderAndIsr(
            topic_id=state.topic_id,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=(BrokerId(1), BrokerId(3)),
            elr=(),
            members={id: state.members[id] for id in (BrokerId(1), BrokerId(3))},
            controller_epoch=state.controller_epoch,
        )
    )
    await cluster.outside.set(path, shrunk, version=node.stat.version)
    cluster.kill(1)
    await until(lambda: cluster.all_told((2, 3), PartitionKey(id, 0), 3))
    after = await cluster.state("t", 0)
    assert (after.leader, after.isr) == (3, (3,))


async def test_isr_reports_update_the_picture(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    path = paths.leader_and_isr("t", 0)
    node = await cluster.outside.get(path)
    state = LeaderAndIsr.decode(node.data)
    members = {id: state.members[id] for id in (BrokerId(1), BrokerId(2))}
    shrunk = LeaderAndIsr(
        topic_id=state.topic_id,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=(BrokerId(1), BrokerId(2)),
        elr=(),
        members=members,
        controller_epoch=state.controller_epoch,
    )
    await cluster.outside.set(path, shrunk.encode(), version=node.stat.version)
    controller.queue.put(IsrsWritten.unseen({PartitionKey(id, 0)}))

    def known() -> bool:
        held = controller.picture.partitions[PartitionKey(id, 0)].held
        return held is not None and held.state.isr == (1, 2) and held.version == 1

    await until(known)
    assert (await cluster.outside.get(path)).stat.version == 1, "taken up, and not written again"


async def test_a_fenced_write_deposes(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    await cluster.reign()
    stat = await cluster.outside.exists(paths.CONTROLLER_EPOCH)
    assert stat is not None
    await cluster.outside.set(paths.CONTROLLER_EPOCH, b"9", version=stat.version)
    assert cluster.controller is not None
    with pytest.raises(Exception, match="controller changed"):
        await cluster.controller.topics.create((wanted("t"),), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert cluster.running is not None
    with pytest.raises(DeposedError):
        await cluster.running
    assert await cluster.outside.exists(paths.topic("t")) is None


async def test_a_broker_that_has_seen_a_later_epoch_deposes(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    cluster.brokers[BrokerId(2)].controller_epoch = 41
    await cluster.reign()
    assert cluster.running is not None
    with pytest.raises(DeposedError) as deposed:
        await cluster.running
    assert deposed.value.seen == 41


async def test_a_broker_that_shows_an_epoch_out_of_nowhere_deposes_nobody(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    controller.queue.put(Superseded(seen=ControllerEpoch(2**31 - 1)))
    await create(controller, wanted("orders", partitions=1))
    assert cluster.running is not None
    assert not cluster.running.done()


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


async def test_controlled_shutdown_moves_leaders_and_isrs(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (led, followed, alone) = await create(controller, assigned("a", 1, 2), assigned("b", 2, 1), assigned("c", 1))
    broker = cluster.brokers[BrokerId(1)]
    remaining = await controller.brokers.controlled_shutdown(broker.id, broker.epoch, wait_s=DEADLINE_S)
    assert remaining == 1
    assert (await cluster.state("a", 0)).leader == 2
    assert (await cluster.state("a", 0)).isr == (2,)
    assert (await cluster.state("b", 0)).isr == (2,)
    assert (await cluster.state("c", 0)).leader == 1
    await until(lambda: cluster.all_told((1, 2), PartitionKey(led, 0), 2))
    await until(lambda: any(stop.topic_id == followed and not stop.delete for stop in broker.stops))
    assert not any(stop.topic_id == alone for stop in broker.stops)


async def test_controlled_shutdown_of_an_earlier_registration_is_refused(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    old = cluster.brokers[BrokerId(1)].epoch
    await cluster.register(1)
    controller = await cluster.reign()
    with pytest.raises(Exception, match="registered again"):
        await controller.brokers.controlled_shutdown(BrokerId(1), old, wait_s=DEADLINE_S)


async def test_producer_ids_never_repeat(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    broker = cluster.brokers[BrokerId(1)]
    first = await controller.brokers.allocate_producer_ids(broker.id, broker.epoch, wait_s=DEADLINE_S)
    await cluster.end_reign()
    following = await cluster.reign(2)
    second = await following.brokers.allocate_producer_ids(broker.id, broker.epoch, wait_s=DEADLINE_S)
    assert first == (0, 1000)
    assert second == (1000, 1000)


async def test_a_slow_broker_does_not_hold_others_up(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    cluster.brokers[BrokerId(3)].held = asyncio.Event()
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", 1, 2, 3))
    cluster.kill(1)
    await until(lambda: cluster.all_told((2,), PartitionKey(id, 0), 2))
    held = cluster.brokers[BrokerId(3)].held
    assert held is not None
    held.set()
    await until(lambda: cluster.all_told((3,), PartitionKey(id, 0), 2))


def test_every_write_of_a_reign_is_fenced() -> None:
    reign = Reign(controller_id=ElectionId(1), epoch=ControllerEpoch(3), epoch_version=2)
    assert reign.fence == Check(paths.CONTROLLER_EPOCH, 2)


async def test_leaders_go_back_to_preferred_replicas(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign(balance_interval_s=0.05)
    (id,) = await create(controller, assigned("t", 1, 2))
    key = PartitionKey(id, 0)
    cluster.kill(1)
    await until(lambda: cluster.all_told((2,), key, 2))
    back = await cluster.register(1)
    path = paths.leader_and_isr("t", 0)
    node = await cluster.outside.get(path)
    joined = with_isr(
        LeaderAndIsr.decode(node.data),
        (BrokerId(2), BrokerId(1)),
        min_insync=2,
        joining={BrokerId(1): Membership(broker_epoch=back.epoch, log_id=back.log_id)},
    )
    await cluster.outside.set(path, joined.encode(), version=node.stat.version)
    controller.queue.put(IsrsWritten.unseen({key}))
    await until(lambda: cluster.all_told((1, 2), key, 1))
    assert (await cluster.state("t", 0)).leader_epoch == 2


@pytest.mark.parametrize("call", ["controlled_shutdown", "allocate_producer_ids"])
async def test_a_refusal_that_nobody_waits_for_any_more_does_not_end_the_reign(cluster: FakeCluster, call: str) -> None:
    await cluster.begin(1)
    controller = await cluster.reign()
    assert cluster.controller_store is not None
    session_id = cluster.controller_store.session_id
    cluster.server.disconnect(session_id)
    with pytest.raises(RegnumError) as caught:
        await getattr(controller.brokers, call)(BrokerId(1), BrokerEpoch(1), wait_s=0.05)
    assert caught.value.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT
    cluster.server.reconnect(session_id)
    await create(controller, wanted("later", factor=1))


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


class HandsBeforeARecord(MemoryStore):
    """Somebody removes the topic's guard by hand between a controller's look and its record of the deletion."""

    def __init__(self, server: MemoryServer, topics: list[TopicId]) -> None:
        super().__init__(server)
        self._server = server
        self._topics = topics
        """Whose guards go, each once."""

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        written = {operation.path for group in groups for operation in group}
        for id in [id for id in self._topics if paths.deletion(id) in written]:
            self._topics.remove(id)
            await MemoryStore(self._server).delete(paths.topic_id(id), version=None)
        return await super().write_batch(groups, fence=fence)


async def test_a_guard_that_goes_while_a_deletion_is_recorded_does_not_end_the_reign(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    guards_to_go: list[TopicId] = []
    cluster.open_store = lambda server: HandsBeforeARecord(server, guards_to_go)
    controller = await cluster.reign()
    (id,) = await create(controller, wanted("t", factor=1))
    guards_to_go.append(id)
    for path in (paths.leader_and_isr("t", 0), paths.partition("t", 0), paths.topic("t")):
        await cluster.outside.delete(path, version=None)
    await until(lambda: controller.picture.partitions[PartitionKey(id, 0)].trouble is not None)
    await create(controller, wanted("other", factor=1))
    assert not guards_to_go, "the deletion was about to be recorded"
    assert await cluster.outside.exists(paths.deletion(id)) is None


async def test_a_mistyped_topic_id_deletes_nothing(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    (id,) = await create(await cluster.reign(), wanted("t"))
    await cluster.end_reign()
    mistyped = TopicId("B" * 22)
    cluster.server.overwrite(paths.topic("t"), replace(await cluster.topic("t"), topic_id=mistyped).encode())
    controller = await cluster.reign(2)
    assert controller.picture.partitions[PartitionKey(mistyped, 0)].trouble is not None
    await create(controller, wanted("other"))
    assert await cluster.outside.exists(paths.topic_id(id)) is not None
    assert await cluster.outside.exists(paths.deletion(id)) is None
    assert (await cluster.state("t", 0)).topic_id == id
    assert not any(broker.stops for broker in cluster.brokers.values())


async def cut_off(cluster: FakeCluster, controller: Controller, leader: int, *followers: int) -> None:
    event = LeaderCutOff(
        leader=BrokerId(leader),
        epoch=cluster.brokers[BrokerId(leader)].epoch,
        cut_off=CutOff(followers=frozenset(BrokerId(id) for id in followers), isolated=frozenset()),
    )
    controller.queue.put(event)
    # The queue is empty, and what came after the event has been done.
    await controller.brokers.controlled_shutdown(BrokerId(4), cluster.brokers[BrokerId(4)].epoch, wait_s=DEADLINE_S)


async def test_a_leader_cut_off_from_its_followers_hands_over_once_in_a_while(cluster: FakeCluster) -> None:
    """Each partition on its own: followers that reach the leader keep it."""
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    moved, _ = await create(controller, assigned("moved", 1, 2, 3), assigned("kept", 1, 2, 4))
    await cut_off(cluster, controller, 1, 2)
    assert (await cluster.state("moved", 0)).leader == 1
    await cut_off(cluster, controller, 1, 2, 3)
    state = await cluster.state("moved", 0)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (2, 1, (2, 3), ())
    await until(lambda: cluster.all_told((1, 2, 3), PartitionKey(moved, 0), 2))
    state = await cluster.state("kept", 0)
    assert (state.leader, state.leader_epoch) == (1, 0)

    # Now the other way round: the partition has moved a moment ago.
    path = paths.leader_and_isr("moved", 0)
    node = await cluster.outside.get(path)
    found = LeaderAndIsr.decode(node.data)
    epoch = cluster.brokers[BrokerId(1)].epoch
    joined = {BrokerId(1): Membership(broker_epoch=epoch, log_id=cluster.brokers[BrokerId(1)].log_id)}
    grown = with_isr(found, (*found.isr, BrokerId(1)), min_insync=2, joining=joined)
    await cluster.outside.set(path, grown.encode(), version=node.stat.version)
    controller.queue.put(IsrsWritten.unseen({PartitionKey(moved, 0)}))

    def known() -> bool:
        held = controller.picture.partitions[PartitionKey(moved, 0)].held
        return held is not None and held.state == grown

    await until(known)
    await cut_off(cluster, controller, 2, 1, 3)
    assert (await cluster.state("moved", 0)).leader == 2


async def test_a_cut_is_judged_by_the_isr_that_the_write_checks(cluster: FakeCluster) -> None:
    """The leader has shrunk its ISR to itself, and the controller has not heard of it yet."""
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    await create(controller, assigned("t", 1, 2, 3))
    path = paths.leader_and_isr("t", 0)
    node = await cluster.outside.get(path)
    shrunk = with_isr(LeaderAndIsr.decode(node.data), (BrokerId(1),), min_insync=2)
    await cluster.outside.set(path, shrunk.encode(), version=node.stat.version)
    await cut_off(cluster, controller, 1, 2, 3)
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (1, 0, (1,), (2, 3))
