"""Brokers that cannot use their replicas: who leads then, and what the next reign knows of it."""

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

import pytest
from regnum_coordination.drivers.memory import MemoryStore
from regnum_coordination.port import Check, Group, Outcome
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Cluster, HeldState, Partition, Topic
from regnum_election.decisions.leadership import Change, ChangeKind, Refusal, first_state, hand_over, prefer, settle
from regnum_election.dispatch.control_requests import partition_state
from regnum_election.dispatch.refusals import OFFLINE_INTERVAL_S
from regnum_election.reign.events import EventQueue, ReplicasOffline, ReplicasUsable
from regnum_election.reign.writability import DiskSaid
from regnum_election.reign.writing import GROUPS_PER_WRITE
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model.ids import NO_LEADER, BrokerEpoch, BrokerId, PartitionKey, TopicId
from regnum_testing.clock import FakeClock
from regnum_testing.election_values import TOPIC_ID, broker, replicas, state, surroundings, topic
from regnum_testing.election_values import cluster as picture_of
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import until


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str, *assignment: tuple[int, ...]) -> tuple[PartitionKey, ...]:
    request = TopicRequest(
        name=name,
        partitions=0,
        replication_factor=None,
        assignment=tuple((number, replicas(*ids)) for number, ids in enumerate(assignment)),
        mutation=None,
    )
    answered = await controller.topics.create((request,), validate_only=False, wait_s=60.0, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created), outcome
    return tuple(PartitionKey(outcome.topic_id, number) for number in range(len(assignment)))


# Decisions


def test_a_leader_whose_replica_is_offline_leaves_the_isr_in_the_write_that_elects_another() -> None:
    decision = settle(state(1, [1, 2, 3]), replicas(1, 2, 3), surroundings(1, 2, 3, offline=[1]), min_insync=2)
    assert isinstance(decision, Change)
    assert decision.kind is ChangeKind.ELECTED
    assert (decision.state.leader, decision.state.leader_epoch, decision.state.isr) == (2, 6, (2, 3))


def test_a_follower_whose_replica_is_offline_leaves_the_isr() -> None:
    decision = settle(state(1, [1, 2, 3]), replicas(1, 2, 3), surroundings(1, 2, 3, offline=[3]), min_insync=2)
    assert isinstance(decision, Change)
    assert decision.kind is ChangeKind.ISR_ONLY
    assert decision.state.isr == (1, 2)


def test_an_eligible_replica_leads_when_the_only_member_of_the_isr_is_offline() -> None:
    decision = settle(state(1, [1], elr=[2]), replicas(1, 2), surroundings(1, 2, offline=[1]), min_insync=2)
    assert isinstance(decision, Change)
    assert (decision.state.leader, decision.state.isr, decision.state.elr) == (2, (2,), (1,))


def test_an_offline_replica_is_not_elected_from_isr_or_elr() -> None:
    decision = settle(state(1, [1], elr=[2]), replicas(1, 2), surroundings(2, offline=[2]), min_insync=2)
    assert isinstance(decision, Change)
    assert decision.kind is ChangeKind.OFFLINE


def test_refusing_everything_never_empties_an_isr_and_raises_no_epoch_twice() -> None:
    everything = surroundings(1, 2, 3, offline=[1, 2, 3])
    decision = settle(state(1, [1, 2, 3]), replicas(1, 2, 3), everything, min_insync=2)
    assert isinstance(decision, Change)
    assert (decision.state.leader, decision.state.isr) == (NO_LEADER, (1, 2, 3))
    assert settle(decision.state, replicas(1, 2, 3), everything, min_insync=2) is Refusal.NO_ELIGIBLE_MEMBER


def test_nobody_is_given_leadership_of_a_replica_that_it_cannot_use() -> None:
    offline = surroundings(1, 2, leaving=[2], offline=[1])
    assert prefer(state(2, [1, 2]), replicas(1, 2), offline) is Refusal.PREFERRED_NOT_IN_SYNC
    assert hand_over(state(2, [1, 2]), replicas(1, 2), offline, min_insync=1) is Refusal.NO_OTHER_MEMBER
    first = first_state(TOPIC_ID, replicas(1, 2), surroundings(1, 2, offline=[1]))
    assert isinstance(first, Change)
    assert first.state.isr == (2,)


# The picture


def offline_in(picture: Cluster, key: PartitionKey) -> set[int]:
    return set(picture.offline_at(key))


def test_what_a_broker_said_of_its_replicas_ends_with_its_registration() -> None:
    picture = picture_of(1, 2, topics=[topic("a", (1, 2))])
    key = PartitionKey(picture.names["a"], 0)
    picture = picture.with_offline(BrokerId(1), [key])
    assert offline_in(picture, key) == {1}
    assert offline_in(picture.with_broker(broker(1, rack="r")), key) == {1}, "the same registration, rewritten"
    assert offline_in(picture.with_broker(broker(1, epoch=9)), key) == set()
    assert offline_in(picture.without_broker(BrokerId(1)), key) == set()
    assert offline_in(picture.with_usable(BrokerId(1), [key]), key) == set()
    away = picture.with_assignments({key: (replicas(2), None)})
    back = away.with_assignments({key: (replicas(1, 2), None)})
    assert offline_in(back, key) == set(), "moved away and back it is another replica"


def test_offline_replicas_go_with_their_topic_and_stay_when_it_is_read_again() -> None:
    given = topic("a", (1, 2))
    picture = picture_of(1, 2, topics=[given])
    key = PartitionKey(picture.names["a"], 0)
    picture = picture.with_offline(BrokerId(1), [key])
    assert offline_in(picture.with_topics([given]), key) == {1}
    assert not picture.without_topics([key.topic_id]).offline


def test_a_partition_without_a_leader_says_whose_replicas_cannot_be_used() -> None:
    picture = picture_of(1, 2, topics=[topic("a", (1, 2))])
    held = next(iter(picture.partitions.values()))
    assert partition_state(0, held).offline_reason == ""
    said = partition_state(0, held, {BrokerId(2)})
    assert (list(said.offline_replicas), said.offline_reason) == ([2], "")
    (offline,) = picture_of(1, 2, topics=[leaderless("a", (1, 2))]).partitions.values()
    said = partition_state(0, offline, {BrokerId(1)})
    assert list(said.offline_replicas) == [1]
    assert "brokers [1] cannot be used" in said.offline_reason
    assert partition_state(0, offline).offline_reason == "", "brokers that are away are no damage"


def leaderless(name: str, ids: tuple[int, ...]) -> tuple[Topic, dict[int, Partition]]:
    described, _ = topic(name, ids)
    return described, {0: Partition(replicas=replicas(*ids), held=HeldState(state=state(NO_LEADER, ids), version=1))}


# The queue


def offline_event(*partitions: int, epoch: int = 1) -> ReplicasOffline:
    keys = frozenset(PartitionKey(TOPIC_ID, number) for number in partitions)
    return ReplicasOffline(broker=BrokerId(1), epoch=BrokerEpoch(epoch), keys=keys)


async def test_reports_of_offline_replicas_merge_while_they_wait_but_not_across_their_opposite() -> None:
    queue = EventQueue()
    usable = ReplicasUsable(broker=BrokerId(1), epoch=BrokerEpoch(1), keys=frozenset({PartitionKey(TOPIC_ID, 0)}))
    for event in (offline_event(0), offline_event(1), offline_event(5, epoch=2), usable, offline_event(0)):
        queue.put(event)
    taken = [await queue.take() for _ in range(4)]
    assert taken == [offline_event(0, 1), offline_event(5, epoch=2), usable, offline_event(0)]


# The whole


async def test_a_leader_that_refuses_is_replaced_by_a_healthy_copy_and_the_next_reign_knows_it(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (key,) = await create(controller, "t", (1, 2, 3))
    await cluster.end_reign()
    bad = await cluster.register(1)
    bad.offline.add(key)
    # Seen as restorable by whoever knows only the store; the other two have gone and come back.
    for id in (2, 3):
        cluster.kill(id)
    await cluster.reign(2, balance_interval_s=0.01)
    await until(lambda: any(len(request.partitions) for request in bad.requests), what="the order that is refused")
    back = await cluster.register(2)
    await until(lambda: back.leaders().get(key) == 2, what="the healthy copy leads")
    after = await cluster.state("t", 0)
    assert after.leader == 2
    assert 1 not in after.isr


async def test_a_refused_leadership_moves_in_one_epoch_and_is_not_asked_for_again(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(balance_interval_s=0.01)
    (key,) = await create(controller, "t", (1, 2, 3))
    cluster.brokers[BrokerId(1)].offline.add(key)
    controller.replies.replicas_offline(BrokerId(1), cluster.brokers[BrokerId(1)].epoch, frozenset({key}))
    await until(lambda: cluster.all_told((2, 3), key, 2))
    after = await cluster.state("t", 0)
    assert (after.leader, after.leader_epoch, after.isr) == (2, 1, (2, 3))
    # It is told of its successor, and refuses that too; nothing follows from it.
    refusals = cluster.brokers[BrokerId(1)].requests
    await until(lambda: any(item.state.leader == 2 for request in refusals for item in request.partitions))
    await create(controller, "later", (2,))
    assert (await cluster.state("t", 0)).leader_epoch == 1


async def test_a_partition_whose_only_complete_copy_is_refused_is_offline_and_says_why(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    (key,) = await create(controller, "t", (1,))
    first = cluster.brokers[BrokerId(1)]
    controller.replies.replicas_offline(BrokerId(1), first.epoch, frozenset({key}))

    async def offline() -> bool:
        return (await cluster.state("t", 0)).leader == NO_LEADER

    await until(offline)
    after = await cluster.state("t", 0)
    assert (after.isr, after.leader_epoch) == ((1,), 1)
    back = await cluster.register(1)
    await until(lambda: back.leaders().get(key) == 1, what="mended and started again, it leads")


class CountingStore(MemoryStore):
    """Notes how many groups each batch has."""

    batches: ClassVar[list[int]] = []

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Counted."""
        self.batches.append(len(groups))
        return await super().write_batch(groups, fence=fence)


async def test_thousands_of_replicas_refused_at_once_are_written_in_batches(cluster: FakeCluster) -> None:
    cluster.open_store = CountingStore
    await cluster.begin(1, 2)
    controller = await cluster.reign(min_insync=1)
    keys = await create(controller, "t", *(((1, 2),) * 3_000))
    CountingStore.batches.clear()
    controller.replies.replicas_offline(BrokerId(1), cluster.brokers[BrokerId(1)].epoch, frozenset(keys))
    await until(lambda: all(cluster.told(2)[key].state.leader == 2 for key in keys))
    assert sum(CountingStore.batches) == len(keys)
    assert len(CountingStore.batches) <= len(keys) // GROUPS_PER_WRITE


async def test_a_report_for_another_registration_or_another_brokers_replica_changes_nothing(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (key,) = await create(controller, "t", (1, 2))
    epoch = cluster.brokers[BrokerId(1)].epoch
    controller.replies.replicas_offline(BrokerId(1), BrokerEpoch(epoch - 1), frozenset({key}))
    controller.replies.replicas_offline(BrokerId(1), BrokerEpoch(2**62), frozenset({key}))
    controller.replies.replicas_offline(BrokerId(3), cluster.brokers[BrokerId(3)].epoch, frozenset({key}))
    controller.replies.replicas_offline(BrokerId(1), epoch, frozenset({PartitionKey(TopicId("x" * 22), 0)}))
    await create(controller, "later", (2,))
    after = await cluster.state("t", 0)
    assert (after.leader, after.leader_epoch, after.isr) == (1, 0, (1, 2))


async def test_a_replica_that_was_refused_on_a_full_disk_is_asked_for_as_soon_as_the_disk_takes_records() -> None:
    """Until then its leader took it into the ISR, and the controller out of it, some three times a second for 30 s."""
    clock = FakeClock()
    cluster = FakeCluster(clock)
    await cluster.begin(1)
    controller = await cluster.reign()
    (key,) = await create(controller, "t", (1,))
    only = cluster.brokers[BrokerId(1)]
    only.offline.add(key)
    controller.replies.replicas_offline(BrokerId(1), only.epoch, frozenset({key}))

    async def leaderless() -> bool:
        return (await cluster.state("t", 0)).leader == NO_LEADER

    await until(leaderless)
    only.offline.clear()
    for because in ("full", ""):
        assert await leaderless()
        controller.health.heard_of(
            DiskSaid(broker=BrokerId(1), epoch=only.epoch, free_bytes=None, size_bytes=None, refuses_because=because)
        )
        await controller.health.turn()

    async def led() -> bool:
        return not await leaderless()

    await until(led)
    await cluster.close()


async def test_a_replica_that_was_mended_in_place_is_asked_for_after_a_while_and_leads_again() -> None:
    clock = FakeClock()
    cluster = FakeCluster(clock)
    await cluster.begin(1)
    controller = await cluster.reign()
    (key,) = await create(controller, "t", (1,))
    only = cluster.brokers[BrokerId(1)]
    only.offline.add(key)
    controller.replies.replicas_offline(BrokerId(1), only.epoch, frozenset({key}))

    async def leaderless() -> bool:
        return (await cluster.state("t", 0)).leader == NO_LEADER

    await until(leaderless)
    asked = len(only.requests)
    await clock.advance(OFFLINE_INTERVAL_S * 3)
    await until(lambda: len(only.requests) > asked)
    assert (await cluster.state("t", 0)).leader_epoch == 1, "refused again and again in one epoch"
    only.offline.clear()
    await clock.advance(OFFLINE_INTERVAL_S)
    await until(lambda: only.leaders().get(key) == 1)
    assert (await cluster.state("t", 0)).leader_epoch == 2
    await cluster.close()
