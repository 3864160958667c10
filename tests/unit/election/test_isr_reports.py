"""What leaders report of their ISRs: what is believed, what is read, and how long a failure waits for it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Delete, Group, Node, Outcome
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Broker, Cluster, HeldState, Partition
from regnum_election.decisions.isr_reports import VERSIONS_AHEAD_MAX, ReportedNode, Unbelieved, judge_report
from regnum_election.publication.waking import INTERVAL_S
from regnum_election.reign.events import BrokerDead, IsrsWritten
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, PartitionKey, Registration
from regnum_model.insync import with_isr
from regnum_model.nodes import LeaderAndIsr
from regnum_testing.clock import PatientClock
from regnum_testing.election_values import TOPIC_ID, broker, replicas, state
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import until

KEY = PartitionKey(TOPIC_ID, 0)
KNOWN = HeldState(state=state(1, [1, 2]), version=7)
JOINED = state(1, [1, 2, 3])


def judged(
    said: LeaderAndIsr | None = JOINED,
    *,
    version: int = 8,
    by: int = 1,
    epoch: int = 1,
    data: bytes = b"",
    known: HeldState | None = KNOWN,
    trouble: str | None = None,
    live: tuple[Broker, ...] = (broker(1), broker(2), broker(3)),
) -> HeldState | Unbelieved:
    picture = Cluster()
    for one in live:
        picture = picture.with_broker(one)
    report = ReportedNode(
        broker=BrokerId(by), epoch=BrokerEpoch(epoch), version=version, data=data if said is None else said.encode()
    )
    partition = Partition(replicas=replicas(1, 2, 3), held=known, trouble=trouble)
    return judge_report(KEY, partition, report, picture, ControllerEpoch(1))


def test_what_the_recorded_leader_wrote_is_believed_without_a_read() -> None:
    assert judged() == HeldState(state=JOINED, version=8)
    assert judged(state(1, [1], elr=[2]), version=9) == HeldState(state=state(1, [1], elr=[2]), version=9)


def test_what_the_picture_has_already_is_known() -> None:
    assert judged(KNOWN.state, version=7) is Unbelieved.KNOWN


def test_a_report_without_content_is_read() -> None:
    assert judge_report(KEY, Partition(replicas=replicas(1), held=KNOWN), None, Cluster(), ControllerEpoch(1)) is (
        Unbelieved.READ
    )


@pytest.mark.parametrize("version", [-1, 0, 6, 7, 7 + VERSIONS_AHEAD_MAX + 1, 2**62])
def test_a_version_that_is_not_a_little_ahead_is_read(version: int) -> None:
    """One that went back was made anew by a person; one out of nowhere would hide all later ones."""
    assert judged(version=version) is Unbelieved.READ


@pytest.mark.parametrize(("by", "epoch"), [(2, 2), (1, 0), (1, 2), (9, 1)])
def test_what_anybody_but_the_recorded_leader_in_its_present_life_says_is_read(by: int, epoch: int) -> None:
    assert judged(by=by, epoch=epoch) is Unbelieved.READ


def test_a_leader_that_bounced_or_lost_its_log_or_is_gone_is_not_believed() -> None:
    assert judged(epoch=9, live=(broker(1, epoch=9), broker(2))) is Unbelieved.READ
    assert judged(live=(broker(1, log="another"), broker(2))) is Unbelieved.READ
    assert judged(live=(broker(2), broker(3))) is Unbelieved.READ


@pytest.mark.parametrize(
    "said",
    [
        replace(JOINED, leader=BrokerId(2)),
        replace(JOINED, leader_epoch=LeaderEpoch(6)),
        replace(JOINED, leader_epoch=LeaderEpoch(4)),
        replace(JOINED, controller_epoch=ControllerEpoch(0)),
        replace(JOINED, topic_id=type(TOPIC_ID)("another".ljust(22, "x"))),
        state(1, [1, 2, 3], members={1: (1, "another")}),
        state(1, [1, 2, 3], members={1: (5, "log-1")}),
    ],
)
def test_a_leader_that_says_more_than_who_is_in_sync_is_not_believed(said: LeaderAndIsr) -> None:
    assert judged(said) is Unbelieved.READ


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"isr": []}'])
def test_what_is_no_state_is_read(data: bytes) -> None:
    assert judged(None, data=data) is Unbelieved.READ


def test_a_partition_in_trouble_or_without_a_state_is_read() -> None:
    assert judged(trouble="deleted by hand") is Unbelieved.READ
    assert judged(known=None) is Unbelieved.READ


# With a controller, over a store that counts.


class CountingStore(MemoryStore):
    """What the controller asks of the store, in order."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.asked: list[str] = []

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        self.asked.append(f"read {len(paths)}")
        return await super().get_many(paths, current=current)

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        fences = any(isinstance(one, Delete) for group in groups for one in group)
        self.asked.append("fence" if fences else "write")
        return await super().write_batch(groups, fence=fence)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    cluster.open_store = CountingStore
    yield cluster
    await cluster.close()


def asked(cluster: FakeCluster) -> list[str]:
    store = cluster.controller_store
    assert isinstance(store, CountingStore)
    return store.asked


async def reigning(cluster: FakeCluster, partitions: int) -> list[PartitionKey]:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    wanted = TopicRequest(name="t", partitions=partitions, replication_factor=3, assignment=(), mutation=None)
    answer = await controller.topics.create((wanted,), validate_only=False, wait_s=60.0, account=ANYBODY)
    (created,) = answer.outcomes
    assert isinstance(created, Created)
    asked(cluster).clear()
    return [PartitionKey(created.topic_id, number) for number in range(partitions)]


async def leave(cluster: FakeCluster, key: PartitionKey, follower: int) -> ReportedNode:
    """A leader takes a follower out of the ISR; what it reports."""
    path = paths.leader_and_isr("t", key.partition)
    node = await cluster.outside.get(path)
    before = LeaderAndIsr.decode(node.data)
    after = with_isr(before, tuple(id for id in before.isr if id != follower), min_insync=2)
    stat = await cluster.outside.set(path, after.encode(), version=node.stat.version)
    leader = cluster.brokers[before.leader]
    return ReportedNode(broker=leader.id, epoch=leader.epoch, version=stat.version, data=after.encode())


async def reported_and_dead(cluster: FakeCluster) -> tuple[Controller, PartitionKey, list[int]]:
    """The leader of one partition reports that its first follower left, and dies; the followers."""
    (key,) = await reigning(cluster, 1)
    controller = cluster.controller
    assert controller is not None
    leader = (await cluster.state("t", 0)).leader
    followers = [id for id in (1, 2, 3) if id != leader]
    report = await leave(cluster, key, followers[0])
    controller.queue.put(IsrsWritten(reports={key: report}))
    await until(lambda: getattr(controller.picture.partitions[key].held, "version", None) == 1)
    cluster.kill(leader)
    return controller, key, followers


async def test_reports_with_their_nodes_cost_no_read(cluster: FakeCluster) -> None:
    keys = await reigning(cluster, 30)
    controller = cluster.controller
    assert controller is not None
    led = [key for key in keys if (await cluster.state("t", key.partition)).leader != 3]
    reports = {key: await leave(cluster, key, 3) for key in led}
    controller.queue.put(IsrsWritten(reports=reports))

    def known() -> bool:
        held = [controller.picture.partitions[key].held for key in led]
        return all(one is not None and 3 not in one.state.isr and one.version == 1 for one in held)

    await until(known)
    controller.queue.put(IsrsWritten(reports=reports))
    controller.queue.put(IsrsWritten.unseen(led[:1]))
    await until(lambda: bool(asked(cluster)))
    # Only what came without its node was read: neither the news nor its repeat.
    assert asked(cluster) == ["read 1"]


async def test_isrs_that_change_one_after_another_go_out_together(cluster: FakeCluster) -> None:
    """Thirty leaders let a follower go, one after another. Nobody acts on that; each message goes to everybody."""
    keys = await reigning(cluster, 30)
    controller = cluster.controller
    assert controller is not None
    await until(lambda: cluster.metadata.version == controller.published_version)
    before, known, began_s = cluster.metadata.calls, controller.published_version, cluster.clock.monotonic()
    for key in keys:
        leader = (await cluster.state("t", key.partition)).leader
        report = await leave(cluster, key, 2 if leader == 3 else 3)
        version = controller.published_version
        controller.queue.put(IsrsWritten(reports={key: report}))
        await until(lambda version=version: controller.published_version > version)
    assert controller.published_version == known + 30
    await until(lambda: cluster.metadata.version == controller.published_version)
    assert cluster.metadata.calls - before <= 2 + (cluster.clock.monotonic() - began_s) / INTERVAL_S
    topics = [topic for message in cluster.metadata.messages for topic in message.topics]
    shown = {state.partition: len(state.isr) for topic in topics for state in topic.partitions}
    assert set(shown.values()) == {2}, "nothing is left out"


async def test_a_new_leader_goes_out_at_once_and_takes_along_what_waits() -> None:
    # Half a second of this clock is ten of a person's.
    cluster = FakeCluster(PatientClock())
    cluster.open_store = CountingStore
    controller, _, followers = await reported_and_dead(cluster)
    began_s = cluster.clock.monotonic()
    await until(lambda: cluster.metadata.topics["t"][0] == followers[1])
    await until(lambda: cluster.metadata.version == controller.published_version)
    assert cluster.clock.monotonic() - began_s < INTERVAL_S, "it did not wait with what can"
    await cluster.close()


async def test_a_believed_isr_is_settled_and_the_write_names_its_version(cluster: FakeCluster) -> None:
    # The next leader is chosen from the ISR that was reported.
    _, key, followers = await reported_and_dead(cluster)
    await until(lambda: cluster.all_told(followers, key, followers[1]))
    assert (await cluster.state("t", 0)).isr == (followers[1],)


async def test_a_lie_about_what_was_written_ends_at_the_version_that_the_next_write_names(cluster: FakeCluster) -> None:
    (key,) = await reigning(cluster, 1)
    controller = cluster.controller
    assert controller is not None
    before = await cluster.state("t", 0)
    leader = cluster.brokers[before.leader]
    followers = [id for id in before.isr if id != before.leader]
    lie = with_isr(before, (before.leader, followers[0]), min_insync=2)
    report = ReportedNode(broker=leader.id, epoch=leader.epoch, version=1, data=lie.encode())
    controller.queue.put(IsrsWritten(reports={key: report}))
    await until(lambda: getattr(controller.picture.partitions[key].held, "version", None) == 1)
    cluster.kill(leader.id)
    await until(lambda: any(one.startswith("read") for one in asked(cluster)))
    assert (await cluster.outside.get(paths.leader_and_isr("t", 0))).stat.version <= 1


async def test_a_controlled_shutdown_makes_way_for_a_failure_after_each_step(cluster: FakeCluster) -> None:
    """All partitions of the broker were one turn: a failure seen meanwhile waited for the last of them."""
    await reigning(cluster, 1_200)
    controller = cluster.controller
    assert controller is not None
    stopping, dying = cluster.brokers[BrokerId(3)], cluster.brokers[BrokerId(2)]
    answer = asyncio.create_task(controller.brokers.controlled_shutdown(stopping.id, stopping.epoch, wait_s=60.0))
    # One turn: the shutdown stands in the controller's line.
    await asyncio.sleep(0)
    dying.down = True
    controller.queue.put(
        BrokerDead(broker=dying.id, epoch=dying.epoch, registration=Registration(dying.registration), evidence="test")
    )
    departure = await answer
    writes = [one for one in asked(cluster) if one in {"write", "fence"}]
    # A step is 500 partitions; all three would be six calls.
    assert writes.index("fence") <= 2, writes

    assert departure.remaining == 0
    states = [await cluster.state("t", number) for number in range(1_200)]
    assert {state.leader for state in states} == {1}
    assert not any(3 in state.isr for state in states)


async def test_a_controlled_shutdown_ends_when_its_broker_comes_anew(cluster: FakeCluster) -> None:
    await reigning(cluster, 1_200)
    controller = cluster.controller
    assert controller is not None
    stopping = cluster.brokers[BrokerId(3)]
    answer = asyncio.create_task(controller.brokers.controlled_shutdown(stopping.id, stopping.epoch, wait_s=60.0))
    # One turn: the shutdown stands in the controller's line.
    await asyncio.sleep(0)
    await cluster.register(3)
    with pytest.raises(Exception, match="registered again"):
        await answer
