"""Two lives of one name: never side by side in a picture, and the former one is deleted before the next one begins."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Cluster
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import NO_LEADER, BrokerId, PartitionKey, TopicId
from regnum_model.nodes import DeletionNode, TopicIdNode, TopicNode
from regnum_testing.election_values import broker, replicas, topic
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

SOON_S = 0.02


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


# The picture

TOPICS = st.builds(
    lambda name, id, assignment: topic(name, *assignment, id=id * 22),
    st.sampled_from("ab"),
    st.sampled_from("123"),
    st.lists(st.sampled_from([(1,), (1, 2), (2, 3)]), min_size=1, max_size=3),
)
ADDED = st.lists(TOPICS, min_size=1, max_size=3, unique_by=lambda item: item[0].id)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), ADDED),
        st.tuples(st.just("remove"), st.lists(st.sampled_from("123"), max_size=2)),
        st.tuples(st.just("offline"), st.sampled_from([1, 2, 3])),
        st.tuples(st.just("bounce"), st.sampled_from([1, 2, 3])),
    ),
    max_size=12,
)


@given(CHANGES)
def test_no_two_topics_of_a_picture_share_a_name_and_every_index_fits(changes: list[tuple[str, object]]) -> None:
    picture = Cluster()
    epoch = 10
    for kind, argument in changes:
        match kind, argument:
            case "add", list(added):
                picture = picture.with_topics(added)
            case "remove", list(ids):
                picture = picture.without_topics(TopicId(id * 22) for id in ids)
            case "offline", int(id):
                picture = picture.with_offline(BrokerId(id), list(picture.of_broker(BrokerId(id))))
            case "bounce", int(id):
                epoch += 1
                picture = picture.with_broker(broker(id, epoch=epoch))
        check(picture)


def check(picture: Cluster) -> None:
    assert {name: picture.topics[id].name for name, id in picture.names.items()} == {
        name: name for name in picture.names
    }
    assert sorted(picture.names.values()) == sorted(picture.topics)
    keys = {PartitionKey(one.id, number) for one in picture.topics.values() for number in one.partitions}
    assert set(picture.partitions) == keys
    for id in map(BrokerId, (1, 2, 3)):
        held = {key for key, partition in picture.partitions.items() if id in partition.replicas}
        assert set(picture.of_broker(id)) == held
        assert set(picture.offline.get(id, {})) <= held


# By hand


async def create(controller: Controller, *ids: int) -> PartitionKey:
    request = TopicRequest(
        name="t", partitions=0, replication_factor=None, assignment=((0, replicas(*ids)),), mutation=None
    )
    answered = await controller.topics.create((request,), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created), outcome
    return PartitionKey(outcome.topic_id, 0)


async def write_anew(cluster: FakeCluster, content: bytes) -> None:
    """A person removes the topic with all that is below it, and writes it again before anybody has looked."""
    cluster.server.hold_watches()
    await cluster.outside.delete_below(paths.topic("t"))
    await cluster.outside.delete(paths.topic("t"), version=None)
    await cluster.outside.create(paths.topic("t"), content)
    cluster.server.release_watches()


async def test_a_topic_removed_and_written_in_one_go_is_another_topic_and_the_former_one_is_deleted(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    former = await create(controller, 1, 2)
    held = cluster.brokers[BrokerId(2)]
    held.down = True
    await write_anew(cluster, b'{"0":[1,3]}')
    await until(lambda: controller.picture.names.get("t") not in {None, former.topic_id})
    key = PartitionKey(controller.picture.names["t"], 0)
    await until(lambda: cluster.all_told((1, 3), key, 1))
    assert set(controller.picture.partitions) == {key}
    # One that is away learns of the deletion when it is back.
    record = DeletionNode.decode((await cluster.outside.get(paths.deletion(former.topic_id))).data)
    assert record.topic == "t"
    assert 2 in record.brokers
    # The death of a broker of the former life changes nothing of the new one.
    cluster.kill(2)
    await until(lambda: 2 not in controller.picture.brokers)
    assert (await cluster.state("t", 0)).topic_id == key.topic_id

    async def confirmed_by_one() -> bool:
        node = await cluster.outside.get(paths.deletion(former.topic_id))
        return 1 not in DeletionNode.decode(node.data).brokers or any(
            stop.topic_id == former.topic_id and stop.delete for stop in cluster.brokers[BrokerId(1)].stops
        )

    await until(confirmed_by_one)

    async def guard_gone() -> bool:
        return await cluster.outside.exists(paths.topic_id(former.topic_id)) is None

    await until(guard_gone)
    assert controller.picture.names["t"] == key.topic_id


async def test_an_id_that_was_miswritten_deletes_nothing_and_nothing_is_written_under_the_name(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    former = await create(controller, 1, 2)
    content = (await cluster.outside.get(paths.topic("t"))).data
    await write_anew(cluster, content.replace(former.topic_id.encode(), b"o" * 22))
    await until(lambda: controller.picture.partitions[former].trouble is not None)
    assert "write that one back" in (controller.picture.partitions[former].trouble or "")
    assert await cluster.outside.exists(paths.deletion(former.topic_id)) is None
    cluster.kill(1)
    await until(lambda: 1 not in controller.picture.brokers)
    assert await cluster.outside.exists(paths.leader_and_isr("t", 0)) is None


@pytest.mark.parametrize("reigning", [True, False], ids=["under a controller", "before one"])
async def test_a_topic_node_restored_alone_is_offline_even_if_it_is_marked(
    cluster: FakeCluster, reigning: bool
) -> None:
    await cluster.begin(1, 2)
    node = TopicNode(topic_id=TopicId("r" * 22), partitions={0: replicas(1, 2)}, creating=frozenset({0}))
    if not reigning:
        await cluster.outside.create(paths.topic("t"), node.encode())
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    if reigning:
        await cluster.outside.create(paths.topic("t"), node.encode())
    key = PartitionKey(TopicId("r" * 22), 0)
    await until(lambda: key in controller.picture.partitions)
    looks = controller.upkeep.looks_for_corrections
    await until(lambda: controller.upkeep.looks_for_corrections > looks + 1)
    assert "regnum partitions recover" in (controller.picture.partitions[key].trouble or "")
    assert await cluster.outside.exists(paths.leader_and_isr("t", 0)) is None
    assert await cluster.outside.exists(paths.topic_id(key.topic_id)) is None


async def test_a_topic_restored_with_marks_from_its_creation_is_not_created_again(cluster: FakeCluster) -> None:
    """The guard stands, so it is the same life; its states are gone, and it was past its creation."""
    await cluster.begin(1, 2)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    key = await create(controller, 1, 2)
    marked = TopicNode(topic_id=key.topic_id, partitions={0: replicas(1, 2)}, creating=frozenset({0}))
    await write_anew(cluster, marked.encode())
    await until(lambda: controller.picture.partitions[key].trouble is not None)
    looks = controller.upkeep.looks_for_corrections
    await until(lambda: controller.upkeep.looks_for_corrections > looks + 2)
    assert controller.picture.partitions[key].trouble is not None
    assert await cluster.outside.exists(paths.leader_and_isr("t", 0)) is None


async def test_a_topic_restored_whole_leads_on_in_an_epoch_nobody_has_seen(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    key = await create(controller, 1, 2)
    content = (await cluster.outside.get(paths.topic("t"))).data
    state = (await cluster.outside.get(paths.leader_and_isr("t", 0))).data
    cluster.server.hold_watches()
    await cluster.outside.delete_below(paths.topic("t"))
    await cluster.outside.delete(paths.topic("t"), version=None)
    await cluster.outside.create(paths.topic("t"), content)
    await cluster.outside.create(paths.partition("t", 0), b"")
    await cluster.outside.create(paths.leader_and_isr("t", 0), state)
    cluster.server.release_watches()

    async def leads_on() -> bool:
        held = await cluster.state("t", 0)
        return held.leader != NO_LEADER

    await until(leads_on)
    cluster.kill(1)
    await until(lambda: cluster.all_told((2,), key, 2))
    assert (await cluster.state("t", 0)).topic_id == key.topic_id


async def test_partitions_that_a_rewritten_node_does_not_name_are_published_as_gone(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign(corrections_interval_s=SOON_S)
    request = TopicRequest(name="t", partitions=2, replication_factor=2, assignment=(), mutation=None)
    await controller.topics.create((request,), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    id = controller.picture.names["t"]
    node = await cluster.topic("t")
    states = [(await cluster.outside.get(paths.leader_and_isr("t", number))).data for number in (0, 1)]
    before = len(cluster.metadata.messages)

    def published_as_gone() -> list[tuple[str, int]]:
        return [
            (topic.name, state.partition)
            for message in cluster.metadata.messages[before:]
            for topic in message.topics
            for state in topic.partitions
            if state.removed
        ]

    cluster.server.hold_watches()
    # As release 0.1.0 wrote it: nothing says what was accepted.
    cluster.server.overwrite(paths.topic_id(id), TopicIdNode(topic="t").encode())
    await cluster.outside.delete_below(paths.topic("t"))
    await cluster.outside.delete(paths.topic("t"), version=None)
    await cluster.outside.create(paths.topic("t"), replace(node, partitions={0: node.partitions[0]}).encode())
    await cluster.outside.create(paths.leader_and_isr("t", 0), states[0], make_parents=True)
    cluster.server.release_watches()
    await until(lambda: controller.picture.topics[id].partitions == (0,))
    await until(lambda: bool(published_as_gone()))
    assert published_as_gone() == [("t", 1)]
