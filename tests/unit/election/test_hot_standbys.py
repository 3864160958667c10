"""A standby follows the controller and reigns from its picture, however far behind (safety rules S10, S12, S14)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

import pytest
from regnum.election.v1 import standby_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import NodeExists
from regnum_coordination.port import Check, Children, Group, Node, Outcome, Store
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.history.events import PartitionsEntry
from regnum_election.reassignment.calls import ReassignmentRequest
from regnum_election.standby.picture import FollowedPicture
from regnum_election.standby.verification import unpublished
from regnum_election.topics.deletion import Deleted
from regnum_election.topics.requests import DeletionRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, ControllerEpoch, PartitionKey
from regnum_model.nodes import DeletionNode, TopicIdNode
from regnum_testing.gated_store import gated
from regnum_testing.reigning import ANYBODY
from regnum_testing.succession_stage import (
    Stage,
    assigned,
    create,
    deletion,
    quiet,
    remove_by_hand,
    took_full_set,
    unverified,
)
from regnum_testing.waiting import DEADLINE_S, eventually, until


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.close()


async def test_a_standby_holds_what_was_published(stage: Stage) -> None:
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    await create(controller, assigned("before", (1, 2, 3), (2, 3, 1)))
    await stage.follow()
    (_, gone) = await create(controller, assigned("after", (3, 1, 2)), assigned("gone", (1, 2, 3)))
    stage.cluster.kill(1)
    await until(lambda: stage.cluster.all_told((2, 3), PartitionKey(controller.picture.names["before"], 0), 2))
    await controller.topics.delete([deletion("gone")], wait_s=DEADLINE_S, account=ANYBODY)
    await until(stage.standby.has_all)
    held = stage.standby.follower.followed
    assert gone not in held.picture.topics
    assert dict(held.picture.partitions) == dict(controller.picture.partitions)
    assert dict(held.picture.names) == dict(controller.picture.names)
    assert held.picture.assigned == controller.picture.assigned
    assert not held.doubtful
    assert stage.standby.streams == 1


async def test_a_succession_publishes_before_it_reads_topics_and_sends_full_sets_after(stage: Stage) -> None:
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    await create(controller, *(assigned(f"t{i}", (1, 2, 3)) for i in range(30)))
    await stage.follow()
    at_win, before = stage.server.newest(), controller.picture
    await stage.cluster.end_reign()
    successor = await stage.succeed()
    assert not any(took_full_set(broker, 2) for broker in stage.live()), "nothing is verified yet"
    await stage.full_sets(2)
    assert stage.check_orders(2, at_win) == 90
    assert {key: partition.held for key, partition in successor.picture.partitions.items()} == {
        key: partition.held for key, partition in before.partitions.items()
    }


async def test_controller_and_leader_die_together_and_only_leaderless_partitions_are_told_before_the_full_sets(
    stage: Stage,
) -> None:
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    (_, led) = await create(controller, assigned("others", (2, 3, 1)), assigned("led", (1, 2, 3)))
    await stage.follow()
    await stage.cluster.end_reign()
    stage.cluster.kill(1)
    at_win = stage.server.newest()
    await stage.succeed()
    await until(lambda: stage.cluster.all_told((2, 3), PartitionKey(led, 0), 2))
    first = next(r for r in stage.cluster.brokers[BrokerId(2)].requests if r.controller_epoch == 2)
    assert not first.init
    assert [item.topic for item in first.partitions] == ["led"]
    await stage.full_sets(2)
    stage.check_orders(2, at_win)
    assert (await stage.cluster.state("others", 0)).isr == (2, 3)


async def test_what_the_predecessor_wrote_and_told_nobody_is_found_and_told(stage: Stage) -> None:
    """The last writes: an election, a new topic, a deletion of everything, and an ISR of a leader."""
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    await create(controller, *(assigned(name, (1, 2, 3)) for name in ("elected", "deleted", "shrunk")))
    await stage.follow()
    stage.standby.hold()
    for broker in stage.live():
        broker.held = asyncio.Event()
    # No broker answers: whoever asked for these would wait.
    creating = asyncio.create_task(create(controller, assigned("untouched", (3, 2, 1))))
    await until(lambda: "untouched" in controller.picture.names)
    stage.cluster.kill(1)
    await until(lambda: _leads(controller, "elected", 2))
    deleting = asyncio.create_task(
        controller.topics.delete([deletion("deleted")], wait_s=DEADLINE_S, account=ANYBODY), name="deleting"
    )
    await until(lambda: "deleted" not in controller.picture.names)
    assert creating.cancel()
    # Its name is free, and that is what a deletion is answered with: it may have been answered in the same moment.
    deleting.cancel()
    await stage.leader_writes("shrunk", 0, (2,))
    for broker in stage.live():
        assert broker.held is not None
        broker.held.set()
        broker.held = None
    await stage.cluster.end_reign()
    at_win = stage.server.newest()
    successor = await stage.succeed()
    await stage.full_sets(2)
    stage.check_orders(2, at_win)
    assert sorted(successor.picture.names) == ["elected", "shrunk", "untouched"]
    for broker in stage.live():
        assert broker.leaders()[PartitionKey(successor.picture.names["elected"], 0)] == 2
        told = broker.states[PartitionKey(successor.picture.names["shrunk"], 0)]
        assert tuple(told.state.isr) == (2,)


async def test_leadership_that_moved_between_live_brokers_unheard_is_found_and_told(stage: Stage) -> None:
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    (id,) = await create(controller, assigned("t", (1, 2, 3)))
    await stage.follow()
    stage.standby.hold()
    leaving = stage.cluster.brokers[BrokerId(1)]
    await controller.brokers.controlled_shutdown(BrokerId(1), leaving.epoch, wait_s=DEADLINE_S)
    await stage.cluster.end_reign()
    at_win = stage.server.newest()
    await stage.succeed()
    await until(lambda: stage.cluster.metadata.topics == {"t": {0: 2}}, what="metadata names the leader in the store")
    await stage.full_sets(2)
    assert stage.cluster.all_told((1, 2, 3), PartitionKey(id, 0), 2)
    stage.check_orders(2, at_win)
    # The successor's event log says what nobody had heard of, and how it came to know.
    entries = [one for one in stage.cluster.recorded if isinstance(one, PartitionsEntry) and one.position.epoch == 2]
    (told,) = [(one.reason, row) for one in entries for row in one.rows if row.key == PartitionKey(id, 0)]
    assert told[0] == unpublished(ControllerEpoch(1))
    assert told[1].before is not None
    assert (told[1].before.leader, told[1].after.leader) == (1, 2)


def _leads(controller: Controller, name: str, leader: int) -> bool:
    held = controller.picture.partitions[PartitionKey(controller.picture.names[name], 0)].held
    return held is not None and held.state.leader == leader


async def test_a_partition_said_to_be_in_creation_gets_no_second_first_leader(stage: Stage) -> None:
    """The picture says "creating"; since then it had a state, which a person lost: epoch 0 would be invented (S14)."""
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    (id,) = await create(controller, assigned("t", (1, 2, 3)))
    await stage.cluster.end_reign()
    await stage.cluster.outside.delete(paths.leader_and_isr("t", 0), version=None)
    picture = FollowedPicture()
    creating = standby_pb2.FollowedPartition(partition=0, replicas=[1, 2, 3], creating=True)
    topic = standby_pb2.FollowedTopic(name="t", topic_id=id, partition_count=1, partitions=[creating])
    picture.take(standby_pb2.StatePart(controller_epoch=1, to_version=2, last=True, topics=[topic]))
    successor = await stage.cluster.reign(2, followed=picture.whole)
    await stage.full_sets(2)
    assert successor.picture.partitions[PartitionKey(id, 0)].trouble is not None
    assert await stage.cluster.outside.exists(paths.leader_and_isr("t", 0)) is None


async def test_a_topic_removed_by_hand_while_nobody_reigned_is_deleted(stage: Stage) -> None:
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    (id, _) = await create(controller, assigned("removed", (1, 2, 3)), assigned("kept", (1, 2, 3)))
    await stage.follow()
    await stage.cluster.end_reign()
    await remove_by_hand(stage, "removed")
    successor = await stage.succeed()
    await stage.full_sets(2)
    assert list(successor.picture.names) == ["kept"]
    for broker in stage.live():
        await until(lambda broker=broker: any(stop.topic_id == id and stop.delete for stop in broker.stops))


async def test_a_life_of_a_name_that_the_picture_does_not_know_is_the_one_that_the_store_says(stage: Stage) -> None:
    """Guards of two lives stand. The picture has the former one: what the store names lives, and is not deleted."""
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    (former,) = await create(controller, assigned("t", (1, 2, 3)))
    await stage.follow()
    followed = await stage.standby.follower.take()
    assert followed is not None
    await controller.topics.delete([deletion("t")], wait_s=DEADLINE_S, account=ANYBODY)
    (present,) = await create(controller, assigned("t", (2, 3, 1)))
    await until(lambda: all(any(stop.topic_id == former for stop in b.stops) for b in stage.live()))
    await stage.cluster.end_reign()
    with suppress(NodeExists):
        await stage.cluster.outside.create(paths.topic_id(former), TopicIdNode(topic="t").encode())
    successor = await stage.cluster.reign(2, followed=followed)
    await stage.full_sets(2)
    await quiet(stage, successor)
    assert successor.picture.names["t"] == present
    assert await stage.cluster.outside.exists(paths.deletion(present)) is None
    assert not any(stop.topic_id == present for broker in stage.live() for stop in broker.stops)


async def test_a_topic_node_that_was_damaged_while_nobody_reigned_is_left_alone(stage: Stage) -> None:
    """Where its guard does not record what was accepted."""
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    (id,) = await create(controller, assigned("t", (1, 2, 3)))
    before = await stage.cluster.topic("t")
    await stage.follow()
    await stage.cluster.end_reign()
    await stage.cluster.outside.set(paths.topic_id(id), TopicIdNode(topic="t").encode(), version=None)
    await stage.cluster.outside.set(paths.topic("t"), b"{", version=None)
    successor = await stage.cluster.reign(2, followed=await stage.standby.follower.take(), corrections_interval_s=0.01)
    await stage.full_sets(2)
    assert not successor.picture.topics
    assert all(not r.partitions for broker in stage.live() for r in broker.requests if r.controller_epoch == 2)
    await stage.cluster.outside.set(paths.topic("t"), before.encode(), version=None)
    await until(lambda: id in successor.picture.topics, what="a topic node that was mended is taken up")


async def test_a_broker_that_registers_while_the_picture_is_verified_waits_for_its_full_set(stage: Stage) -> None:
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    await create(controller, *(assigned(f"t{i}", *[(1, 2, 3)] * 400) for i in range(3)))
    await stage.follow()
    await stage.cluster.end_reign()
    at_win = stage.server.newest()
    await stage.succeed()
    back = await stage.register(3)
    await stage.full_sets(2)
    stage.check_orders(2, at_win)
    assert len(back.states) == 1_200


class HeldStore(MemoryStore):
    """Reads the nodes of some topics only when a test lets it."""

    def __init__(self, server: MemoryServer, *topics: str) -> None:
        super().__init__(server)
        self.gates = {topic: asyncio.Event() for topic in topics}
        self.held: set[str] = set()
        """Topics of which a read waits, or has waited."""

    async def get_many(self, paths_: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        for topic, gate in self.gates.items():
            if paths.topic(topic) in paths_:
                self.held.add(topic)
                await gate.wait()
        return await super().get_many(paths_, current=current)


async def test_a_broker_that_registers_while_the_picture_is_verified_is_told_at_once_what_it_leads(
    stage: Stage,
) -> None:
    """It alone has the records: nobody else can lead, and the full set may be minutes away."""
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    held = [assigned(name, *[(1, 2)] * 500) for name in ("first", "second")]
    key = PartitionKey((await create(controller, *held, assigned("t", (3,))))[2], 0)
    stage.cluster.kill(3)
    await until(lambda: key in controller.picture.unled)
    await stage.follow()
    await stage.cluster.end_reign()
    at_win = stage.server.newest()
    store = HeldStore(stage.server, "first", "second")
    stage.cluster.open_store = lambda _server: store
    successor = await stage.succeed()
    await until(lambda: "first" in store.held)
    back = await stage.register(3)
    await until(lambda: dict(successor.queue.depths)["cluster"] > 0, what="its registration is seen")
    store.gates["first"].set()
    await until(lambda: back.leaders().get(key) == 3, what="it leads what it was elected to")
    assert not any(took_full_set(broker, 2) for broker in stage.live()), "the rest is not verified yet"
    assert not any(request.init for request in back.requests)
    store.gates["second"].set()
    await stage.full_sets(2)
    stage.check_orders(2, at_win)


async def test_clients_wait_until_the_picture_is_verified(stage: Stage) -> None:
    """A deletion records the brokers that the assignment names: it must be the one in the store (safety rule S13)."""
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    await create(controller, *(assigned(f"t{i}", *[(1, 2, 3)] * 400) for i in range(3)))
    await stage.follow()
    await stage.cluster.end_reign()
    successor = await stage.succeed()
    created = await create(successor, assigned("new", (1, 2)))
    assert created
    assert all(took_full_set(broker, 2) or not unverified(successor) for broker in stage.live())
    assert not unverified(successor)


async def test_a_deletion_that_was_only_recorded_is_finished_though_brokers_confirm_before_all_is_verified(
    stage: Stage,
) -> None:
    """Its record stays until the nodes are gone: the topic would stand again, without its records (rule S13)."""
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    await create(controller, *(assigned(f"t{i}", *[(1, 2, 3)] * 400) for i in range(3)))
    (id,) = await create(controller, assigned("deleted", (1, 2, 3)))
    await stage.follow()
    await stage.cluster.end_reign()
    record = DeletionNode(topic="deleted", brokers=frozenset(map(BrokerId, (1, 2, 3))), mutation="m")
    await stage.cluster.outside.create(paths.deletion(id), record.encode())
    successor = await stage.succeed()
    request = DeletionRequest(name="deleted", topic_id=id, mutation="m")
    (outcome,) = (await successor.topics.delete([request], wait_s=DEADLINE_S, account=ANYBODY)).outcomes
    outside = stage.cluster.outside
    await eventually(lambda: _is_gone(outside, paths.deletion(id)), what="the end of the record")
    assert await _is_gone(outside, paths.topic("deleted"))
    assert await _is_gone(outside, paths.topic_id(id))
    assert await _is_gone(outside, paths.leader_and_isr("deleted", 0))
    assert outcome == Deleted(name="deleted", topic_id=id) or isinstance(outcome, Rejection)


async def _is_gone(store: Store, path: str) -> bool:
    return await store.exists(path, current=True) is None


class CountingStore(MemoryStore):
    """Counts calls."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.calls = 0

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        self.calls += 1
        return await super().get_many(paths, current=current)

    async def children(self, path: str, *, current: bool = False) -> Children:
        self.calls += 1
        return await super().children(path, current=current)

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        self.calls += 1
        return await super().write_batch(groups, fence=fence)


@pytest.mark.parametrize("topics", [3, 60])
async def test_store_calls_before_the_first_publication_are_independent_of_what_exists(
    stage: Stage, topics: int
) -> None:
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    for start in range(0, topics, 3):
        await create(controller, *(assigned(f"t{i}", *[(1, 2, 3)] * 20) for i in range(start, start + 3)))
    await stage.follow()
    await stage.cluster.end_reign()
    stores: list[CountingStore] = []
    stage.cluster.open_store = lambda server: stores.append(CountingStore(server)) or stores[-1]
    successor = await stage.succeed(wait=False)
    campaign = stores[0].calls
    calls = [0]
    successor._metadata.tell_of_publications(lambda: calls.append(stores[0].calls - campaign))
    await until(lambda: len(calls) > 1)
    # Settings: 3, with a listing of what was announced before. Registrations: 2. Deletion records, topic names and
    # guards: a listing each. Nothing else by then; watches and the publisher, who look at that time, ask a few more.
    assert calls[1] <= 15
    await stage.full_sets(2)


async def test_what_is_as_it_was_published_is_read_once_and_judged_no_more(stage: Stage) -> None:
    """100 topics of 10 partitions: two steps, each a read of two bulks; the rules for topics taken up read in four."""
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    for start in range(0, 100, 50):
        await create(controller, *(assigned(f"t{i}", *[(1, 2, 3)] * 10) for i in range(start, start + 50)))
    await stage.follow()
    at_win, before = stage.server.newest(), stage.server.transactions
    await stage.cluster.end_reign()
    stores: list[CountingStore] = []
    stage.cluster.open_store = lambda server: stores.append(CountingStore(server)) or stores[-1]
    await stage.succeed()
    begun = stores[0].calls
    await stage.full_sets(2)
    assert stores[0].calls - begun <= 8
    assert stage.server.transactions - before <= 1, "nothing but the win was written"
    assert stage.check_orders(2, at_win) == 3_000


async def test_a_replica_that_was_dropped_unheard_is_not_told_to_follow(stage: Stage) -> None:
    """Fewer replicas: the switch is written, nobody heard of it, controller and leader die together."""
    stores = gated(stage.cluster)
    await stage.begin(1, 2, 3)
    controller = await stage.cluster.reign()
    key = PartitionKey((await create(controller, assigned("t", (1, 2, 3))))[0], 0)
    (store,) = stores
    # What is asked for is one write; the switch waits.
    store.gate, store.topic_writes = asyncio.Semaphore(1), -1
    move = ReassignmentRequest(topic="t", partition=0, target=(BrokerId(1), BrokerId(2)))
    asked = await controller.reassignments.alter([move], validate_only=False, who="a test", wait_s=DEADLINE_S)
    assert asked == (None,)
    await until(lambda: store.topic_writes == 1, what="the switch is under way")
    await stage.follow()
    stage.standby.hold()
    for broker in stage.live():
        broker.held = asyncio.Event()
    store.gate.release()

    async def arrived() -> bool:
        return (await stage.cluster.topic("t")).partitions[0] == move.target

    await until(arrived)
    await stage.cluster.end_reign()
    stage.cluster.kill(1)
    for broker in stage.live():
        assert broker.held is not None
        broker.held.set()
        broker.held = None
    await stage.succeed()
    await until(lambda: stage.cluster.all_told((2,), key, 2))
    await stage.full_sets(2)
    told = [
        list(item.state.replicas)
        for request in stage.cluster.brokers[BrokerId(3)].requests
        if request.controller_epoch == 2
        for item in request.partitions
        if item.topic_id == key.topic_id
    ]
    assert told == [], "broker 3 is told to follow a partition that the store does not assign to it"
