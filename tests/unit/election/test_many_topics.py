"""What many topics cost together: calls to the store, messages to brokers, and memory that comes back."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Children, Group, Node, Outcome
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.partitions.addition import Added
from regnum_election.partitions.removal import Removed
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest
from regnum_election.topics.creation import Created
from regnum_election.topics.deletion import Deleted, DeletionOutcome
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.configs import topic_config
from regnum_model.ids import NO_LEADER, BrokerId, TopicId
from regnum_model.nodes import DeletionNode
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

TOPICS = 50
"""Topics of one call."""

BROKERS = (1, 2, 3)


class CountingStore(MemoryStore):
    """Counts what a controller asks of the store."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.calls: Counter[str] = Counter()
        """Calls by method."""
        self.listed: list[str] = []
        """Folders whose children were asked for."""

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        """Count."""
        self.calls["get_many"] += 1
        return await super().get_many(paths, current=current)

    async def children(self, path: str, *, current: bool = False) -> Children:
        """Count."""
        self.calls["children"] += 1
        self.listed.append(path)
        return await super().children(path, current=current)

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Count."""
        self.calls["write_batch"] += 1
        return await super().write_batch(groups, fence=fence)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    cluster.open_store = CountingStore
    await cluster.begin(*BROKERS)
    yield cluster
    await cluster.close()


def counted(cluster: FakeCluster) -> CountingStore:
    assert isinstance(cluster.controller_store, CountingStore)
    return cluster.controller_store


async def create(controller: Controller, count: int, *, partitions: int = 4) -> dict[str, TopicId]:
    requests = [
        TopicRequest(name=f"t{i}", partitions=partitions, replication_factor=3, assignment=(), mutation=None)
        for i in range(count)
    ]
    answered = await controller.topics.create(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    ids: dict[str, TopicId] = {}
    for request, outcome in zip(requests, answered.outcomes, strict=True):
        assert isinstance(outcome, Created), outcome
        ids[request.name] = outcome.topic_id
    return ids


def asked(name: str, mutation: str | None = None) -> DeletionRequest:
    return DeletionRequest(name=name, topic_id="", mutation=mutation)


async def delete(controller: Controller, requests: Sequence[DeletionRequest]) -> tuple[DeletionOutcome, ...]:
    return (await controller.topics.delete(requests, wait_s=DEADLINE_S, account=ANYBODY)).outcomes


async def records_gone(controller: Controller) -> None:
    await until(lambda: not len(controller._context.deletions), what="every broker confirmed")


def at_rest(cluster: FakeCluster) -> bool:
    """Whether what a watch showed of the topics has been looked at."""
    assert cluster.controller is not None
    return cluster.controller.queue.is_empty and cluster.controller._in_hand is None


async def test_topics_of_a_call_are_deleted_with_a_few_calls_to_the_store(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    ids = await create(controller, TOPICS)
    await until(lambda: at_rest(cluster))
    store = counted(cluster)
    store.calls.clear()
    outcomes = await delete(controller, [asked(name) for name in ids])
    assert outcomes == tuple(Deleted(name=name, topic_id=id) for name, id in ids.items())
    # Records; guards and settings; topic nodes; partitions; the last nodes. And what the watch of the topics causes.
    assert sum(store.calls.values()) <= 12, store.calls
    await records_gone(controller)
    assert sum(store.calls.values()) <= 20, store.calls
    for name, id in ids.items():
        for path in (paths.topic(name), paths.topic_id(id), paths.deletion(id)):
            assert await cluster.outside.exists(path) is None


async def test_topics_of_a_call_are_created_with_a_few_calls_to_the_store(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await until(lambda: at_rest(cluster))
    store = counted(cluster)
    store.calls.clear()
    await create(controller, TOPICS)
    # Topic nodes; partitions; marks taken away.
    assert store.calls["write_batch"] == 3, store.calls
    # What the watch of the topics causes.
    assert store.calls["get_many"] <= 3, store.calls
    assert store.calls["children"] == 0, store.calls


class Touching(CountingStore):
    """Somebody writes a topic node while its partitions get their states."""

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Write it, and then the groups."""
        path = paths.topic("t1")
        if any(operation.path == paths.leader_and_isr("t1", 0) for group in groups for operation in group):
            self._server.overwrite(path, (await self.get(path)).data)
        return await super().write_batch(groups, fence=fence)


async def test_marks_go_also_from_a_topic_node_that_somebody_wrote_meanwhile(cluster: FakeCluster) -> None:
    cluster.open_store = Touching
    controller = await cluster.reign()
    await create(controller, 3)
    for i in range(3):
        assert not (await cluster.topic(f"t{i}")).creating
    assert controller.picture.topics[controller.picture.names["t1"]].version == 2


async def test_no_folder_is_listed_for_a_topic_that_the_picture_knows(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    ids = await create(controller, 3)
    await until(lambda: at_rest(cluster))
    store = counted(cluster)
    store.listed.clear()
    await delete(controller, [asked(name) for name in ids])
    assert not [folder for folder in store.listed if folder.startswith(f"{paths.TOPICS}/")]


async def test_states_that_leaders_wrote_and_nodes_that_people_added_go_with_their_topics(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    ids = await create(controller, 4)
    await until(lambda: at_rest(cluster))
    written = paths.leader_and_isr("t0", 1)
    cluster.server.overwrite(written, (await cluster.outside.get(written)).data)
    await cluster.outside.create(f"{paths.partition('t1', 2)}/note", b"by hand")
    await cluster.outside.create(f"{paths.topic('t2')}/notes", b"by hand")
    await cluster.outside.create(topic_config("t3"), b'{"version":1,"config":{}}')
    outcomes = await delete(controller, [asked(name) for name in ids])
    assert all(isinstance(outcome, Deleted) for outcome in outcomes)
    for name in ids:
        assert await cluster.outside.exists(paths.topic(name)) is None
    assert await cluster.outside.exists(topic_config("t3")) is None


async def test_a_topic_that_stands_twice_in_a_call_is_deleted_once(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    ids = await create(controller, 2)
    first, other, again, repeated = await delete(
        controller, [asked("t0", "m"), asked("t1"), asked("t0"), asked("t0", "m")]
    )
    assert first == repeated == Deleted(name="t0", topic_id=ids["t0"])
    assert isinstance(other, Deleted)
    assert isinstance(again, Rejection)


async def test_brokers_are_told_of_many_deletions_in_few_messages(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    ids = await create(controller, TOPICS)
    counts = {id: len(cluster.brokers[BrokerId(id)].stop_requests) for id in BROKERS}
    await delete(controller, [asked(name) for name in ids])
    await records_gone(controller)
    for id in BROKERS:
        broker = cluster.brokers[BrokerId(id)]
        assert len(broker.stop_requests) - counts[id] == 1
        assert {stop.topic_id for stop in broker.stops} == set(ids.values())


async def test_a_broker_that_was_away_is_told_of_all_deletions_when_it_is_back(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    ids = await create(controller, TOPICS)
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    store = counted(cluster)
    await delete(controller, [asked(name) for name in ids])

    async def only_one_is_left() -> bool:
        records = [DeletionNode.decode((await cluster.outside.get(paths.deletion(id))).data) for id in ids.values()]
        return all(record.brokers == {BrokerId(3)} for record in records)

    await until(only_one_is_left)
    before = store.calls["write_batch"]
    back = await cluster.register(3)
    await records_gone(controller)
    assert {stop.topic_id for stop in back.stops} == set(ids.values())
    assert store.calls["write_batch"] - before <= 2


@pytest.mark.parametrize("step", range(1, 4))
async def test_a_reign_that_ends_in_any_step_leaves_deletions_that_the_next_one_ends(
    cluster: FakeCluster, step: int
) -> None:
    controller = await cluster.reign()
    ids = await create(controller, 5)
    await until(lambda: at_rest(cluster))
    deleter = controller._deleter
    clearer = deleter._clearer
    call_steps = 0

    async def interrupted() -> None:
        nonlocal call_steps
        refused = await deleter.begin_all(dict.fromkeys(ids.values()))
        assert not refused
        call_steps += 1
        if call_steps == step:
            return
        cleared: set[TopicId] = set()
        async for _ in clearer.clear({id: name for name, id in ids.items()}, cleared):
            call_steps += 1
            if call_steps == step:
                return

    await interrupted()
    await cluster.end_reign()
    next_reign = await cluster.reign(2)
    await records_gone(next_reign)
    for name, id in ids.items():
        for path in (paths.topic(name), paths.topic_id(id), paths.deletion(id)):
            assert await cluster.outside.exists(path) is None


async def test_topics_that_a_person_removed_are_deleted_together(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    ids = await create(controller, 20)
    await until(lambda: at_rest(cluster))
    store = counted(cluster)
    await cluster.outside.delete(paths.topic_id(ids["t7"]), version=None)
    for name in ids:
        await cluster.outside.delete_below(paths.topic(name))
    store.calls.clear()
    for name in ids:
        await cluster.outside.delete(paths.topic(name), version=None)
    await until(lambda: set(controller.picture.names) == {"t7"})
    # Without its guard nobody knows whether it was an accident (safety rule S14).
    key = controller.picture.of_topic(ids["t7"])[0]
    await until(lambda: controller.picture.partitions[key].trouble is not None)
    await records_gone(controller)
    assert await cluster.outside.exists(paths.deletion(ids["t7"])) is None
    # Some for each look at what the watch shows; seven for each topic would be 140.
    assert sum(store.calls.values()) < 70, store.calls


async def test_what_was_kept_of_partitions_goes_with_their_topics(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    ids = await create(controller, TOPICS)
    book: Any = controller._dispatch._desk.book
    assert len(book._built) == 4 * TOPICS
    await delete(controller, [asked(name) for name in ids])
    await records_gone(controller)
    assert not book._built


async def test_topics_of_one_call_are_published_once_and_with_their_leaders(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    before, published = controller.published_version, len(cluster.metadata.messages)
    await create(controller, TOPICS)
    assert controller.published_version == before + 1
    states = [
        state.leader
        for message in cluster.metadata.messages[published:]
        for topic in message.topics
        for state in topic.partitions
    ]
    assert len(states) == TOPICS * 4
    assert set(states) <= set(BROKERS)


async def test_a_topic_of_many_steps_is_known_as_a_whole_from_the_first(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    published = len(cluster.metadata.messages)
    await create(controller, 1, partitions=1_500)
    first = next(message for message in cluster.metadata.messages[published:] if message.topics)
    assert sum(len(topic.partitions) for topic in first.topics) == 1_000, "the first part is full"
    leaders = cluster.metadata.topics["t0"]
    assert len(leaders) == 1_500
    assert set(leaders.values()) <= set(BROKERS)


class Interrupted(CountingStore):
    """A broker dies while topic nodes are written, and the controller has heard of it by the time they are."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Write; then what is to happen once."""
        outcomes = await super().write_batch(groups, fence=fence)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return outcomes


async def test_a_topic_that_nobody_can_lead_is_known_nevertheless() -> None:
    cluster = FakeCluster()
    cluster.open_store = Interrupted
    await cluster.begin(*BROKERS)
    controller = await cluster.reign()
    await until(lambda: at_rest(cluster))

    async def broker_1_dies() -> None:
        cluster.kill(1)
        await until(lambda: not controller.queue.is_empty)

    assert isinstance(cluster.controller_store, Interrupted)
    cluster.controller_store.meanwhile = broker_1_dies
    request = TopicRequest(
        name="t", partitions=0, replication_factor=None, assignment=((0, (BrokerId(1),)),), mutation=None
    )
    creating = asyncio.ensure_future(
        controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    )
    await until(lambda: cluster.metadata.topics.get("t") == {0: NO_LEADER})
    creating.cancel()
    await cluster.close()


@pytest.mark.parametrize("partitions", [10, 200])
async def test_partitions_are_added_and_removed_with_a_few_calls_to_the_store(
    cluster: FakeCluster, partitions: int
) -> None:
    controller = await cluster.reign()
    await create(controller, 1, partitions=1)
    await until(lambda: at_rest(cluster))
    store = counted(cluster)
    store.calls.clear()
    request = AdditionRequest(name="t0", total=1 + partitions, assignment=(), mutation=None)
    added = await controller.partitions.add([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert added.outcomes == (Added(total=1 + partitions),)
    # The topic node with what is in the way; then states, and the topic node twice: marked and unmarked.
    assert (store.calls["write_batch"], store.calls["get_many"], store.calls["children"]) == (3, 2, 0)
    store.calls.clear()
    removal = RemovalRequest(name="t0", topic_id="", partitions=range(1, 1 + partitions), mutation=None)
    removed = await controller.partitions.remove([removal], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert removed.outcomes == (Removed(total=1),)
    await until(lambda: not len(controller._context.removals), what="every broker confirmed")
    await until(lambda: at_rest(cluster))
    # The topic node twice, read and written; tombstones with records. Records go together; then their folder.
    assert store.calls["write_batch"] <= 3 + len(BROKERS) + 1, store.calls
    assert (store.calls["get_many"], store.calls["children"]) == (2, 0), store.calls


async def test_added_partitions_cost_nothing_for_other_topics(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, TOPICS)
    await until(lambda: at_rest(cluster))
    brokers = {id: len(cluster.brokers[BrokerId(id)].states) for id in BROKERS}
    published = sum(len(topic.partitions) for message in cluster.metadata.messages for topic in message.topics)
    request = AdditionRequest(name="t0", total=6, assignment=(), mutation=None)
    await controller.partitions.add([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    assert {id: len(cluster.brokers[BrokerId(id)].states) - count for id, count in brokers.items()} == dict.fromkeys(
        BROKERS, 2
    )
    after = sum(len(topic.partitions) for message in cluster.metadata.messages for topic in message.topics)
    assert after - published == 2
