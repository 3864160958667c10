"""What a person corrects in the store is taken up without anything else having to happen (safety rule S14)."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from regnum_election.controller import Controller
from regnum_election.decisions.leadership import Change, Refusal, reaffirm
from regnum_election.reign.events import IsrsWritten
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey, TopicId
from regnum_testing.election_values import state, surroundings
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

SOON_S = 0.02


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str, partitions: int = 1) -> TopicId:
    request = TopicRequest(name=name, partitions=partitions, replication_factor=2, assignment=(), mutation=None)
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created)
    return outcome.topic_id


async def test_a_topic_node_that_was_no_json_and_is_now(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    await cluster.outside.create(paths.topic("t"), b"{not json")
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    assert "t" not in controller.picture.names
    await cluster.outside.set(paths.topic("t"), b'{"0":[1,2]}', version=0)
    await until(lambda: cluster.metadata.topics == {"t": {0: 1}})
    key = PartitionKey(controller.picture.names["t"], 0)
    await until(lambda: cluster.all_told((1, 2), key, 1))


async def test_a_refused_topic_that_was_removed_is_forgotten(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    await cluster.outside.create(paths.topic("t"), b"{not json")
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    await cluster.outside.delete(paths.topic("t"), version=0)
    id = await create(controller, "t")
    await until(
        lambda: cluster.all_told((1, 2), PartitionKey(id, 0), 1) or cluster.all_told((1, 2), PartitionKey(id, 0), 2)
    )
    assert dict(controller.picture.names) == {"t": id}


async def test_a_state_that_was_lost_and_restored_leads_in_an_epoch_nobody_has_seen(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, "t", partitions=2)
    path = paths.leader_and_isr("t", 0)
    kept = await cluster.outside.get(path)
    leader = (await cluster.state("t", 0)).leader
    await cluster.end_reign()
    await cluster.outside.delete(path, version=None)
    following = await cluster.reign(2, corrections_interval_s=SOON_S)
    key = PartitionKey(id, 0)
    assert following.picture.partitions[key].trouble is not None
    await cluster.outside.create(path, kept.data)

    async def leads_on() -> bool:
        return (await cluster.state("t", 0)).leader_epoch == LeaderEpoch(1)

    await until(leads_on)
    # They hold what the first reign told them, too: it is the epoch that tells.
    await until(lambda: all(cluster.told(broker)[key].state.leader_epoch == 1 for broker in (1, 2)))
    assert cluster.all_told((1, 2), key, leader)
    assert following.picture.partitions[key].trouble is None
    # The other partition of the topic was whole all the time.
    assert (await cluster.state("t", 1)).leader_epoch == LeaderEpoch(0)


@pytest.mark.parametrize("notice", ["the leader's report", "the leader's death"])
async def test_a_state_that_was_made_anew_while_a_controller_reigns(cluster: FakeCluster, notice: str) -> None:
    await cluster.begin(1, 2)
    following = await cluster.reign(corrections_interval_s=SOON_S)
    id = await create(following, "t")
    key = PartitionKey(id, 0)
    path = paths.leader_and_isr("t", 0)
    first = await cluster.state("t", 0)
    for _ in range(2):
        node = await cluster.outside.get(path)
        await cluster.outside.set(path, node.data, version=node.stat.version)
    following.queue.put(IsrsWritten.unseen({key}))

    def held_version() -> int:
        held = following.picture.partitions[key].held
        return -1 if held is None else held.version

    await until(lambda: held_version() == 2)
    await cluster.outside.delete(path, version=None)
    await cluster.outside.create(path, first.encode())
    if notice == "the leader's report":
        following.queue.put(IsrsWritten.unseen({key}))
        leader = first.leader
    else:
        cluster.kill(first.leader)
        leader = next(iter({1, 2} - {first.leader}))

    async def leads_on() -> bool:
        state = await cluster.state("t", 0)
        return state.leader == leader and state.leader_epoch > first.leader_epoch

    await until(leads_on)
    await until(lambda: cluster.told(leader)[key].state.leader_epoch > first.leader_epoch)
    assert following.picture.partitions[key].trouble is None


async def test_what_stays_damaged_is_published_once(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    id = await create(controller, "t")
    await cluster.end_reign()
    await cluster.outside.delete(paths.leader_and_isr("t", 0), version=None)
    following = await cluster.reign(2, corrections_interval_s=SOON_S)
    await until(lambda: cluster.metadata.topics == {"t": {0: -1}})
    version = cluster.metadata.version
    looks = following.upkeep.looks_for_corrections
    await until(lambda: following.upkeep.looks_for_corrections > looks + 2)
    assert following.picture.partitions[PartitionKey(id, 0)].trouble is not None
    assert cluster.metadata.version == version


def test_reaffirmed_is_the_same_leader_in_the_next_epoch() -> None:
    held = state(1, [1, 2])
    around = surroundings(1, 2)
    decision = reaffirm(held, around, min_insync=2, known_epoch=LeaderEpoch(held.leader_epoch + 4))
    assert isinstance(decision, Change)
    assert (decision.state.leader, decision.state.isr) == (BrokerId(1), (1, 2))
    assert decision.state.leader_epoch == held.leader_epoch + 5


def test_a_leader_that_is_away_or_none_is_not_reaffirmed() -> None:
    for held, live in ((state(1, [1, 2]), [2]), (state(-1, [1, 2]), [1, 2])):
        assert (
            reaffirm(held, surroundings(*live), min_insync=1, known_epoch=LeaderEpoch(0)) is Refusal.NO_ELIGIBLE_MEMBER
        )
    late = replace(state(1, [1, 2]), controller_epoch=surroundings(1).controller_epoch + 1)
    assert reaffirm(late, surroundings(1, 2), min_insync=1, known_epoch=LeaderEpoch(0)) is Refusal.NEWER_REIGN
