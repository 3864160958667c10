"""What the controller writes into the event log: every change of a partition's state, with why and who."""

from collections.abc import AsyncIterator, Sequence

import pytest
from regnum.types.v1 import events_pb2 as words
from regnum_election.controller import Controller
from regnum_election.history.events import AssignmentsEntry, OtherEntry, PartitionRow, PartitionsEntry, weight_of
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.reassignment.calls import ReassignmentRequest
from regnum_election.reign.events import BrokerDead, IsrsWritten
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_telemetry import conventions, tracing
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str, *replicas: int) -> TopicId:
    assignment = ((0, tuple(BrokerId(id) for id in replicas)),)
    request = TopicRequest(name=name, partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    answer = await controller.topics.create((request,), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answer.outcomes
    assert isinstance(outcome, Created)
    return outcome.topic_id


def others(cluster: FakeCluster, kind: words.EventKind.ValueType) -> list[OtherEntry]:
    return [one for one in cluster.recorded if isinstance(one, OtherEntry) and one.kind == kind]


def changes(cluster: FakeCluster, id: TopicId) -> list[tuple[PartitionsEntry, PartitionRow]]:
    found = [one for one in cluster.recorded if isinstance(one, PartitionsEntry)]
    return [(one, row) for one in found for row in one.rows if row.key.topic_id == id]


def last_cause(cluster: FakeCluster, id: TopicId) -> words.EventCause.ValueType:
    return changes(cluster, id)[-1][0].reason.cause


def fence(cluster: FakeCluster, controller: Controller, id: int, *, cause: str) -> None:
    dead = cluster.brokers[BrokerId(id)]
    dead.down = True
    controller.queue.put(
        BrokerDead(
            broker=dead.id,
            epoch=dead.epoch,
            registration=dead.registration,
            evidence="the port refused twice",
            cause=cause,
        )
    )


async def test_a_death_is_written_down_with_its_evidence(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await create(controller, "t", 1, 2, 3)
    epoch = cluster.brokers[BrokerId(1)].epoch
    fence(cluster, controller, 1, cause=conventions.CAUSE_LIFELINE)
    await until(lambda: cluster.all_told((2, 3), PartitionKey(id, 0), 2))
    (fenced,) = others(cluster, words.EVENT_KIND_BROKER_FENCED)
    assert (fenced.broker, fenced.broker_epoch) == (1, epoch)
    assert fenced.reason.cause == words.EVENT_CAUSE_LIFELINE_BROKEN
    assert fenced.reason.evidence == "the port refused twice"
    assert others(cluster, words.EVENT_KIND_BROKER_GONE) == [], "it is said once"
    entry, row = changes(cluster, id)[-1]
    assert entry.reason.evidence == "the port refused twice"
    assert (entry.reason.cause, entry.controller) == (words.EVENT_CAUSE_LIFELINE_BROKEN, 1)
    assert row.before is not None
    assert (row.before.leader, row.after.leader, row.after.leader_epoch) == (1, 2, 1)
    assert row.version == (await cluster.outside.get(paths.leader_and_isr("t", 0))).stat.version


async def test_every_cause_is_told_from_the_others(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await create(controller, "t", 1, 2, 3)
    key = PartitionKey(id, 0)
    assert last_cause(cluster, id) == words.EVENT_CAUSE_CREATION
    assert others(cluster, words.EVENT_KIND_TOPIC_CREATED)[0].topic == "t"

    path = paths.leader_and_isr("t", 0)
    node = await cluster.outside.get(path)
    shrunk = with_isr(LeaderAndIsr.decode(node.data), (BrokerId(1), BrokerId(2)), min_insync=2)
    await cluster.outside.set(path, shrunk.encode(), version=node.stat.version)
    controller.queue.put(IsrsWritten.unseen({key}))
    await until(lambda: last_cause(cluster, id) == words.EVENT_CAUSE_LEADER_ISR)
    assert changes(cluster, id)[-1][1].after.isr == (1, 2)

    broker = cluster.brokers[BrokerId(1)]
    await controller.brokers.controlled_shutdown(broker.id, broker.epoch, wait_s=DEADLINE_S)
    assert last_cause(cluster, id) == words.EVENT_CAUSE_CONTROLLED_SHUTDOWN
    assert [one.broker for one in others(cluster, words.EVENT_KIND_BROKER_STOPPING)] == [1]

    cluster.kill(2)
    await until(lambda: bool(others(cluster, words.EVENT_KIND_BROKER_GONE)))
    await until(lambda: changes(cluster, id)[-1][1].after.leader == 1)
    assert last_cause(cluster, id) == words.EVENT_CAUSE_REGISTRATION_CHANGED

    await cluster.register(4)
    await until(lambda: [one.broker for one in others(cluster, words.EVENT_KIND_BROKER_REGISTERED)] == [4])

    request = DeletionRequest(name="t", topic_id=None, mutation=None)
    await controller.topics.delete((request,), wait_s=DEADLINE_S, account=ANYBODY)
    assert [one.topic_id for one in others(cluster, words.EVENT_KIND_TOPIC_DELETED)] == [id]


async def states(cluster: FakeCluster, names: Sequence[str]) -> dict[str, LeaderAndIsr]:
    return {name: await cluster.state(name, 0) for name in names}


async def test_the_log_leaves_no_change_out_and_invents_none(cluster: FakeCluster) -> None:
    """Each change begins where the one before ended, over two reigns, and the last is what the store holds."""
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    ids = {
        name: await create(controller, name, *replicas)
        for name, replicas in {"a": (1, 2, 3), "b": (2, 3, 4), "c": (3, 4, 1), "d": (4, 1, 2)}.items()
    }
    fence(cluster, controller, 1, cause=conventions.CAUSE_SILENCE)
    await until(lambda: changes(cluster, ids["a"])[-1][1].after.leader == 2)
    cluster.kill(2)
    await until(lambda: changes(cluster, ids["a"])[-1][1].after.leader == 3)
    # Not in the middle of a change: what a killed controller wrote and did not write down is nobody's to tell.
    await until(lambda: changes(cluster, ids["c"])[-1][1].after.isr == (3, 4))
    await until(lambda: changes(cluster, ids["d"])[-1][1].after.isr == (4,))
    await cluster.end_reign()
    cluster.kill(3)
    await cluster.reign(2)
    await until(lambda: changes(cluster, ids["b"])[-1][1].after.leader == 4)
    for name, id in ids.items():
        before: LeaderAndIsr | None = None
        rows = [row for _, row in changes(cluster, id)]
        for row in rows:
            assert row.before == before
            before = row.after

        async def is_last(name: str = name, row: PartitionRow = rows[-1]) -> bool:
            return await cluster.state(name, 0) == row.after

        await until(is_last)


async def test_places_grow_by_what_was_written_and_begin_anew_with_each_reign(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, "t", 1, 2, 3)
    first = len(cluster.recorded)
    await cluster.end_reign()
    await cluster.reign(2)
    for reign in (cluster.recorded[:first], cluster.recorded[first:]):
        number = 1
        for entry in reign:
            assert entry.position.number == number
            number += weight_of(entry)
        assert isinstance(reign[0], OtherEntry)
        assert reign[0].kind == words.EVENT_KIND_CONTROLLER_ELECTED
    assert cluster.recorded[first].position > cluster.recorded[first - 1].position
    assert cluster.recorded[first].controller == 2


def moves(cluster: FakeCluster) -> list[tuple[str, int, tuple[BrokerId, ...], tuple[BrokerId, ...], str]]:
    """What the log says of reassignments: what, which partition, from where, to where, who asked."""
    return [
        (words.EventKind.Name(one.kind).rpartition("_")[2], row.key.partition, (*row.before,), (*row.after,), who)
        for one in cluster.recorded
        if isinstance(one, AssignmentsEntry)
        for row in one.rows
        for who in [one.reason.who]
    ]


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


async def reassign(controller: Controller, *target: int) -> None:
    request = ReassignmentRequest(topic="t", partition=0, target=ids(*target) or None)
    done = await controller.reassignments.alter([request], validate_only=False, who="ann", wait_s=DEADLINE_S)
    assert done == (None,)


async def join(cluster: FakeCluster, key: PartitionKey, *joining: int) -> None:
    """The leader takes new replicas into the ISR, and reports it."""
    path = paths.leader_and_isr("t", key.partition)
    node = await cluster.outside.get(path)
    state = LeaderAndIsr.decode(node.data)
    brokers = [cluster.brokers[BrokerId(id)] for id in joining]
    members = {one.id: Membership(broker_epoch=one.epoch, log_id=one.log_id) for one in brokers}
    wider = with_isr(state, (*state.isr, *members), min_insync=2, joining=members)
    await cluster.outside.set(path, wider.encode(), version=node.stat.version)
    assert cluster.controller is not None
    cluster.controller.queue.put(IsrsWritten.unseen({key}))


async def test_a_reassignment_is_told_from_who_asked_to_the_switch(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2), 0)
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    with tracing.within(trace):
        await reassign(controller, 3, 4)
    await until(lambda: len(moves(cluster)) == 2)
    await join(cluster, key, 3, 4)
    await until(lambda: len(moves(cluster)) == 3)
    assert moves(cluster) == [
        ("STARTED", 0, ids(1, 2), ids(3, 4), "ann"),
        ("MOVING", 0, ids(1, 2), ids(1, 2, 3, 4), ""),
        ("COMPLETED", 0, ids(1, 2), ids(3, 4), ""),
    ]
    told = [one for one in cluster.recorded if isinstance(one, AssignmentsEntry)]
    assert told[0].reason.traceparent == trace
    assert {one.reason.cause for one in told} == {words.EVENT_CAUSE_REASSIGNMENT}
    assert last_cause(cluster, key.topic_id) == words.EVENT_CAUSE_REASSIGNMENT


async def test_a_reassignment_called_back_says_who_called_and_when_it_was_over(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    await create(controller, "t", 1, 2)
    await reassign(controller, 3, 4)
    await until(lambda: len(moves(cluster)) == 2)
    await reassign(controller)
    await until(lambda: len(moves(cluster)) == 4)
    assert moves(cluster)[2:] == [
        ("CANCELLED", 0, ids(3, 4), ids(1, 2), "ann"),
        ("UNDONE", 0, ids(1, 2, 3, 4), ids(1, 2), ""),
    ]


async def test_what_a_successor_finishes_it_tells(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", 1, 2), 0)
    await reassign(controller, 3, 4)
    await until(lambda: len(moves(cluster)) == 2)
    await cluster.end_reign()
    await cluster.reign(2)
    await join(cluster, key, 3, 4)
    await until(lambda: len(moves(cluster)) == 3)
    assert moves(cluster)[2] == ("COMPLETED", 0, ids(1, 2), ids(3, 4), "")


async def test_a_single_partition_that_is_added_is_one(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, "t", 1, 2)
    one_more = AdditionRequest(name="t", total=2, assignment=(), mutation=None)
    await controller.partitions.add([one_more], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY, who="ann")
    (added,) = others(cluster, words.EVENT_KIND_PARTITIONS_ADDED)
    assert added.detail == "1 before, 2 now: partition 1 is new"


async def test_partitions_that_are_added_and_removed_are_told_with_who_asked(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    id = await create(controller, "t", 1, 2)
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    with tracing.within(trace):
        await controller.partitions.add(
            [AdditionRequest(name="t", total=4, assignment=(), mutation=None)],
            validate_only=False,
            wait_s=DEADLINE_S,
            account=ANYBODY,
            who="ann",
        )
        await controller.partitions.remove(
            [RemovalRequest(name="t", topic_id=id, partitions=(3,), mutation=None)],
            validate_only=False,
            wait_s=DEADLINE_S,
            account=ANYBODY,
            who="bob",
        )
    (added,) = others(cluster, words.EVENT_KIND_PARTITIONS_ADDED)
    (removed,) = others(cluster, words.EVENT_KIND_PARTITIONS_REMOVED)
    assert (added.count, added.detail) == (3, "1 before, 4 now: partitions 1 to 3 are new")
    assert (removed.count, removed.detail) == (1, "4 before, 3 now: partition 3 went")
    assert [(one.reason.who, one.reason.traceparent) for one in (added, removed)] == [("ann", trace), ("bob", trace)]
