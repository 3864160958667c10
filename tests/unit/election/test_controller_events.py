"""What the controller writes into the event log: every change of a partition's state, with why and who."""

from collections.abc import AsyncIterator, Sequence

import pytest
from regnum.types.v1 import events_pb2 as words
from regnum_election.controller import Controller
from regnum_election.history.events import OtherEntry, PartitionRow, PartitionsEntry, weight_of
from regnum_election.reign.events import BrokerDead, IsrsWritten
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr
from regnum_telemetry import conventions
from regnum_testing.reigning import ANYBODY, FakeCluster, until
from regnum_testing.waiting import DEADLINE_S


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
