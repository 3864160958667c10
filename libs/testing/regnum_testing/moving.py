"""Partitions that a test moves: what is asked for, what brokers do meanwhile, and what is waited for."""

from collections.abc import Sequence

from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.reassignment.calls import ReassignmentRequest
from regnum_election.reign.events import IsrsWritten
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr, Membership

from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

WHO = "a test"
"""Who asks."""


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    """Broker ids."""
    return tuple(map(BrokerId, numbers))


async def created(controller: Controller, name: str, *assignments: Sequence[int]) -> TopicId:
    """Create a topic with these replicas of its partitions; its id."""
    request = TopicRequest(
        name=name,
        partitions=0,
        replication_factor=None,
        assignment=tuple((number, ids(*replicas)) for number, replicas in enumerate(assignments)),
        mutation=None,
    )
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created)
    return outcome.topic_id


async def ask(
    controller: Controller, topic: str, targets: dict[int, tuple[int, ...] | None], *, validate_only: bool = False
) -> list[Rejection | None]:
    """Ask for targets by partition number, None to cancel; a refusal or None for each, in order."""
    requests = [
        ReassignmentRequest(topic=topic, partition=number, target=None if target is None else ids(*target))
        for number, target in targets.items()
    ]
    return list(await controller.reassignments.alter(requests, validate_only=validate_only, who=WHO, wait_s=DEADLINE_S))


async def catch_up(cluster: FakeCluster, topic: str, partition: int, *joining: int) -> None:
    """The leader lets followers join the ISR, and reports it."""
    path = paths.leader_and_isr(topic, partition)
    node = await cluster.outside.get(path)
    state = LeaderAndIsr.decode(node.data)
    members = {
        BrokerId(id): Membership(broker_epoch=broker.epoch, log_id=broker.log_id)
        for id in joining
        if (broker := cluster.brokers[BrokerId(id)]) and BrokerId(id) not in state.isr
    }
    wider = with_isr(state, (*state.isr, *members), min_insync=2, joining=members)
    await cluster.outside.set(path, wider.encode(), version=node.stat.version)
    if cluster.controller is not None:
        cluster.controller.queue.put(IsrsWritten.unseen({PartitionKey(state.topic_id, partition)}))


async def grown(cluster: FakeCluster, topic: str, partition: int, *replicas: int) -> None:
    """Wait until the topic node assigns these replicas."""

    async def is_grown() -> bool:
        return (await cluster.topic(topic)).partitions[partition] == ids(*replicas)

    await until(is_grown, what=f"replicas {replicas}")


async def arrived(cluster: FakeCluster, topic: str, partition: int, *replicas: int) -> None:
    """Wait until it assigns these replicas and no reassignment of the partition is open."""

    async def has() -> bool:
        node = await cluster.topic(topic)
        return node.partitions[partition] == ids(*replicas) and partition not in node.reassigning

    await until(has, what=f"{topic}-{partition} at {replicas}")


def stopped(cluster: FakeCluster, id: int) -> set[tuple[str, int]]:
    """Topic and number of what a broker was told to delete because it went to others."""
    stops = cluster.brokers[BrokerId(id)].stops
    assert all(stop.delete and stop.reassigned and stop.leader_epoch >= 0 for stop in stops)
    return {(stop.topic, stop.partition) for stop in stops}
