"""What a failover costs grows with the partitions that it moves, and not with those that there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Group, Node, Outcome
from regnum_election.reign.events import BrokerDead
from regnum_election.state.context import ControllerContext
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_election.topics.settling import (
    FIRST_PARTITIONS_PER_WRITE,
    PARTITIONS_PER_TURN,
    PARTITIONS_PER_WRITE,
    urgent_parts,
)
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_testing.election_values import cluster as picture_of
from regnum_testing.election_values import topic
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import until

AFFECTED = 60
"""Partitions that the victim leads."""


class CountingStore(MemoryStore):
    """How much the controller asks of the store."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.calls = self.nodes_read = self.groups = 0

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        self.calls += 1
        self.nodes_read += len(paths)
        return await super().get_many(paths, current=current)

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        self.calls += 1
        self.groups += len(groups)
        return await super().write_batch(groups, fence=fence)


@dataclass(frozen=True, slots=True)
class Cost:
    calls: int
    nodes_read: int
    groups: int
    told: int
    """Partitions in LeaderAndIsr messages."""
    changes: int
    """Partitions in changes of metadata."""


async def cost_of_a_failover(others: int) -> Cost:
    """Kill the leader of AFFECTED partitions, where so many more have nothing to do with it."""
    cluster = FakeCluster()
    cluster.open_store = CountingStore
    await cluster.begin(1, 2, 3, 4)
    controller = await cluster.reign()
    wanted = [
        TopicRequest(
            name=name,
            partitions=0,
            replication_factor=None,
            assignment=tuple((number, replicas) for number in range(count)),
            mutation=None,
        )
        for name, count, replicas in (
            ("led", AFFECTED, (BrokerId(1), BrokerId(2), BrokerId(3))),
            ("others", others, (BrokerId(2), BrokerId(3), BrokerId(4))),
        )
    ]
    answer = await controller.topics.create(wanted, validate_only=False, wait_s=60.0, account=ANYBODY)
    assert all(isinstance(outcome, Created) for outcome in answer.outcomes), answer.outcomes
    led = answer.outcomes[0]
    assert isinstance(led, Created)
    store = cluster.controller_store
    assert isinstance(store, CountingStore)
    await until(lambda: len(cluster.told(3)) == AFFECTED + others)
    store.calls = store.nodes_read = store.groups = 0
    for broker in cluster.brokers.values():
        broker.requests.clear()
    published = len(cluster.metadata.messages)
    victim = cluster.brokers[BrokerId(1)]
    victim.down = True
    controller.queue.put(
        BrokerDead(broker=victim.id, epoch=victim.epoch, registration=victim.registration, evidence="test")
    )
    keys = [PartitionKey(led.topic_id, number) for number in range(AFFECTED)]
    await until(lambda: all(cluster.all_told((2, 3), key, 2) for key in keys))
    # The watch says that the registration went, and it is looked for.
    await until(lambda: store.nodes_read > 0 and controller.queue.is_empty)
    told = sum(len(request.partitions) for broker in cluster.brokers.values() for request in broker.requests)
    messages = cluster.metadata.messages[published:]
    changes = sum(len(topic.partitions) for message in messages for topic in message.topics)
    cost = Cost(store.calls, store.nodes_read, store.groups, told, changes)
    await cluster.close()
    return cost


async def test_a_failover_costs_the_same_however_many_partitions_there_are() -> None:
    few, many = await cost_of_a_failover(60), await cost_of_a_failover(1_200)
    assert few == many
    assert (few.groups, few.told) == (AFFECTED + 1, 2 * AFFECTED)
    assert (few.nodes_read, few.changes) == (1, AFFECTED)


async def test_the_first_leaders_are_not_kept_waiting_until_the_last_partition_was_looked_at() -> None:
    """With 50,000 partitions on the broker all of them were looked at before the first new leader was written."""
    total = 4 * PARTITIONS_PER_TURN
    added = topic("t", *[(1, 2) if number % 3 == 0 else (2, 1) for number in range(total)])
    picture = picture_of(2, topics=[added])
    looked: list[PartitionKey] = []

    class Keys(list[PartitionKey]):
        def __iter__(self):  # type: ignore[no-untyped-def]
            for key in super().__iter__():
                looked.append(key)
                yield key

    context = cast("ControllerContext", SimpleNamespace(picture=picture))
    rest: list[PartitionKey] = []
    parts = urgent_parts(context, Keys(picture.of_broker(BrokerId(1))), {BrokerId(1)}, rest)
    first = await anext(parts)
    assert len(first) == FIRST_PARTITIONS_PER_WRITE
    assert len(looked) == PARTITIONS_PER_TURN
    further = [part async for part in parts]
    sizes = [len(part) for part in further]
    assert sizes[:3] == [2 * len(first), 4 * len(first), PARTITIONS_PER_WRITE]
    assert max(sizes) == PARTITIONS_PER_WRITE
    urgent = [*first, *[key for part in further for key in part]]
    assert sorted([*urgent, *rest]) == sorted(looked)
    assert {key.partition % 3 for key in urgent} == {0}
    assert {key.partition % 3 for key in rest} == {1, 2}


async def test_busy_partitions_have_their_leaders_before_any_idle_one() -> None:
    """A dozen partitions under load waited in line with a thousand idle ones: 0.4 s instead of 0.1."""
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    replicas = (BrokerId(1), BrokerId(2), BrokerId(3))
    followed = (BrokerId(2), BrokerId(1), BrokerId(3))
    wanted = [
        TopicRequest(
            name=name,
            partitions=0,
            replication_factor=None,
            assignment=tuple((number, assigned) for number in range(count)),
            mutation=None,
        )
        for name, count, assigned in (("idle", 300, replicas), ("led", 4, replicas), ("followed", 4, followed))
    ]
    answer = await controller.topics.create(wanted, validate_only=False, wait_s=60.0, account=ANYBODY)
    ids = [outcome.topic_id for outcome in answer.outcomes if isinstance(outcome, Created)]
    keys = [PartitionKey(id, number) for id in ids[1:] for number in (1, 2)]
    for broker in cluster.brokers.values():
        broker.requests.clear()
    victim = cluster.brokers[BrokerId(1)]
    victim.down = True
    controller.queue.put(
        BrokerDead(
            broker=victim.id,
            epoch=victim.epoch,
            registration=victim.registration,
            evidence="test",
            # One that nobody knows, and one that is named twice: a broker may say anything.
            busy=(PartitionKey(TopicId("gone"), 1), keys[0], *keys),
        )
    )
    idle = [PartitionKey(ids[0], number) for number in range(300)]
    await until(lambda: all(cluster.all_told((2, 3), key, 2) for key in idle))
    told = [item for request in cluster.brokers[BrokerId(2)].requests for item in request.partitions]
    first = told[: len(keys)]
    assert {PartitionKey(TopicId(item.topic_id), item.state.partition) for item in first} == set(keys)
    assert {tuple(item.state.isr) for item in first} == {(2, 3)}, "the dead broker is out of those it followed, too"
    await cluster.close()


@pytest.mark.parametrize("brokers_lost", [{BrokerId(1)}, frozenset[BrokerId]()])
async def test_nothing_is_urgent_where_nobody_led(brokers_lost: frozenset[BrokerId]) -> None:
    picture = picture_of(2, topics=[topic("t", (2, 1), (2, 1))])
    context = cast("ControllerContext", SimpleNamespace(picture=picture))
    rest: list[PartitionKey] = []
    parts = urgent_parts(context, picture.of_broker(BrokerId(1)), brokers_lost, rest)
    assert [part async for part in parts] == []
    assert len(rest) == 2
