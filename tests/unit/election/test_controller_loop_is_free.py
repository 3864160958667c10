"""No reign, no failure and no topic holds the controller's loop for long, whatever their size (safety rule S22)."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Create, Delete, Operation
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Partition, Topic
from regnum_election.decisions.deletion import Deletion
from regnum_election.leaders.balance import balance_leaders, misplaced
from regnum_election.recovery.calls import RecoveryRequest
from regnum_election.recovery.messages import recovery_response
from regnum_election.reign.events import Mutation
from regnum_election.servicers.admin import AdminServicer
from regnum_election.topics.creation import Created
from regnum_election.topics.deletion import Deleted
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.bucket import Limit
from regnum_model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId
from regnum_model.nodes import DeletionNode, LeaderAndIsr, Membership, TopicIdNode, TopicNode
from regnum_model.quota_changes import EntityChange, LimitChange
from regnum_model.quotas import BURST_KEY, RATE_KEY, QuotaEntity, QuotaNode
from regnum_testing.fake_quota_process import FakeQuotaProcess
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.served import served
from regnum_testing.waiting import DEADLINE_S, until

pytestmark = pytest.mark.alone

NODES_PER_WRITE = 100


class OneReign:
    """An office with a controller in it."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def controller(self) -> Controller:
        return self._controller


def topic_id(name: str) -> TopicId:
    return TopicId(name.ljust(22, "x"))


async def write_topics(cluster: FakeCluster, topics: dict[str, int], leader: Callable[[int], int]) -> None:
    """Topics as an earlier reign left them, on brokers 1 to 3; ``leader`` says who leads a partition."""
    members = {
        id: Membership(broker_epoch=broker.epoch, log_id=broker.log_id) for id, broker in cluster.brokers.items()
    }
    nodes: list[Operation] = []
    for name, partitions in topics.items():
        replicas = {number: tuple(BrokerId(1 + (number + i) % 3) for i in range(3)) for number in range(partitions)}
        nodes.append(Create(paths.topic_id(topic_id(name)), TopicIdNode(topic=name).encode()))
        nodes.append(Create(paths.topic(name), TopicNode(topic_id=topic_id(name), partitions=replicas).encode()))
        for number, assigned in replicas.items():
            state = LeaderAndIsr(
                topic_id=topic_id(name),
                leader=BrokerId(leader(number)),
                leader_epoch=LeaderEpoch(1),
                isr=assigned,
                elr=(),
                members=members,
                controller_epoch=ControllerEpoch(0),
            )
            nodes.append(Create(paths.partition(name, number), b""))
            nodes.append(Create(paths.leader_and_isr(name, number), state.encode()))
    for start in range(0, len(nodes), NODES_PER_WRITE):
        await cluster.outside.multi(nodes[start : start + NODES_PER_WRITE])


def preferred(number: int) -> int:
    return 1 + number % 3


def run(scenario: Callable[[FakeCluster, HeldLoop], Coroutine[Any, Any, None]]) -> HeldLoop:
    async def whole(held: HeldLoop) -> None:
        cluster = FakeCluster()
        await cluster.begin(1, 2, 3)
        await scenario(cluster, held)
        await cluster.close()

    return run_measured(whole)


async def everything_told(cluster: FakeCluster, partitions: int, *brokers: int) -> None:
    await until(lambda: all(len(cluster.told(id)) == partitions for id in brokers), what="everybody told")


async def broker_3_left_isrs(controller: Controller) -> None:
    """Looks at every partition, and so not often."""
    while any(one.held and BrokerId(3) in one.held.state.isr for one in controller.picture.partitions.values()):
        # A sampler: looking more often would hold the loop that is measured.
        await asyncio.sleep(0.05)


def test_a_reign_begins_and_a_broker_fails() -> None:
    topics = {"large": 5_000} | {f"t{number}": 5 for number in range(1_000)}

    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        await write_topics(cluster, topics, preferred)
        with held.measuring("a reign of 10000 partitions begins"):
            controller = await cluster.reign(balance_interval_s=3_600.0)
            await everything_told(cluster, 10_000, 1, 2, 3)
        with held.measuring("a broker of 10000 partitions fails"):
            cluster.kill(3)
            await broker_3_left_isrs(controller)
        with held.measuring("a broker of 10000 partitions comes back"):
            await cluster.register(3)
            await everything_told(cluster, 10_000, 3)

    run(scenario).assert_free()


def test_a_broker_that_follows_ten_thousand_partitions_bounces() -> None:
    """It is out of the ISRs before it is told anything, and so all of them are settled at its arrival."""

    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        await write_topics(cluster, {"large": 5_000, "larger": 5_000}, lambda number: 1 + number % 2)
        controller = await cluster.reign(balance_interval_s=3_600.0)
        await everything_told(cluster, 10_000, 1, 2, 3)
        former = cluster.brokers[BrokerId(3)].epoch
        with held.measuring("a broker that follows 10000 partitions bounces"):
            await cluster.register(3)
            await everything_told(cluster, 10_000, 3)
        assert cluster.brokers[BrokerId(3)].epoch > former
        isrs = {one.held.state.isr for one in controller.picture.partitions.values() if one.held is not None}
        assert not [isr for isr in isrs if BrokerId(3) in isr]

    run(scenario).assert_free()


def test_a_reign_finds_a_broker_missing() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        await write_topics(cluster, {"large": 5_000}, preferred)
        cluster.kill(3)
        with held.measuring("a reign begins without a broker of 5000 partitions"):
            controller = await cluster.reign(balance_interval_s=3_600.0)
            await broker_3_left_isrs(controller)
            await everything_told(cluster, 5_000, 1, 2)

    run(scenario).assert_free()


def test_a_reign_that_is_over_holds_neither_the_loop_nor_its_picture() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        await write_topics(cluster, {"large": 5_000}, preferred)
        controller = await cluster.reign(balance_interval_s=3_600.0)
        await everything_told(cluster, 5_000, 1, 2, 3)
        cluster.pictures.clear()
        remembered = weakref.ref(controller.picture.partitions)
        with held.measuring("a reign of 5000 partitions ends"):
            await cluster.end_reign()
        gc.disable()
        try:
            assert remembered() is None
        finally:
            gc.enable()

    run(scenario).assert_free()


def test_a_topic_comes_and_goes() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        controller = await cluster.reign(balance_interval_s=3_600.0)
        request = TopicRequest(name="t", partitions=2_000, replication_factor=3, assignment=(), mutation=None)
        with held.measuring("a topic of 2000 partitions is created"):
            (created,) = (
                await controller.topics.create([request], validate_only=False, wait_s=20.0, account=ANYBODY)
            ).outcomes
            assert isinstance(created, Created)
            await everything_told(cluster, 2_000, 1, 2, 3)
        with held.measuring("a topic of 2000 partitions is deleted"):
            request_id = DeletionRequest(name="t", topic_id=created.topic_id, mutation=None)
            (deleted,) = (await controller.topics.delete([request_id], wait_s=20.0, account=ANYBODY)).outcomes
            assert isinstance(deleted, Deleted)
            await until(lambda: not controller._context.deletions, what="files deleted")

    run(scenario).assert_free()


def test_one_call_asks_for_half_a_million_partitions() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        await cluster.begin(1, 2, 3)
        controller = await cluster.reign()
        requests = [
            TopicRequest(name=f"t{number}", partitions=10_000, replication_factor=3, assignment=(), mutation=None)
            for number in range(50)
        ]
        with held.measuring("50 topics of 10000 partitions are checked"):
            answered = await controller.topics.create(requests, validate_only=True, wait_s=60.0, account=ANYBODY)
        assert all(isinstance(outcome, Created) for outcome in answered.outcomes)

    run(scenario).assert_free()


@pytest.mark.parametrize(
    ("count", "partitions"), [(1, 10_000), pytest.param(20, 1_000, marks=pytest.mark.full), (1_000, 1)]
)
def test_a_call_of_the_largest_topics_makes_them_and_one_deletes_them(count: int, partitions: int) -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        # Beside others: what a change of the picture costs depends on them.
        await write_topics(cluster, {"other": 5_000}, preferred)
        controller = await cluster.reign(balance_interval_s=3_600.0)
        await everything_told(cluster, 5_000, 1, 2, 3)
        names = [f"t{number}" for number in range(count)]
        requests = [
            TopicRequest(name=name, partitions=partitions, replication_factor=3, assignment=(), mutation=None)
            for name in names
        ]
        with held.measuring(f"{count} topics of {partitions} partitions are created"):
            answered = await controller.topics.create(requests, validate_only=False, wait_s=120.0, account=ANYBODY)
        assert all(isinstance(outcome, Created) for outcome in answered.outcomes)
        deletions = [DeletionRequest(name=name, topic_id="", mutation=None) for name in names]
        with held.measuring(f"{count} topics of {partitions} partitions are deleted"):
            deleted = await controller.topics.delete(deletions, wait_s=120.0, account=ANYBODY)
            await until(lambda: not len(controller._context.deletions), what="files deleted")
        assert all(isinstance(outcome, Deleted) for outcome in deleted.outcomes)

    run(scenario).assert_free()


def test_a_watch_shows_a_hundred_thousand_topic_names() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        controller = await cluster.reign(balance_interval_s=3_600.0)
        await until(lambda: controller.queue.is_empty and controller._in_hand is None)
        context = controller._context
        members = {0: Partition(replicas=(BrokerId(1),), trouble="a picture for this test alone")}
        topics = [
            Topic(name=f"t{number}", id=topic_id(f"{number}"), version=0, partitions=(0,)) for number in range(100_000)
        ]
        names = frozenset(topic.name for topic in topics)
        before = context.picture
        context.picture = before.with_topics((topic, members) for topic in topics)
        with held.measuring("100000 names are compared with the picture"):
            async for _ in controller._adopter.look(names):
                raise AssertionError("nothing has changed")
        context.picture = before

    run(scenario).assert_free()


def test_a_broker_of_many_open_deletions_comes_back_and_confirms_them() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        controller = await cluster.reign(balance_interval_s=3_600.0)
        deletions = controller._context.deletions
        for number in range(5_000):
            record = DeletionNode(topic=f"t{number}", brokers=frozenset(BrokerId(id) for id in (1, 2, 3)))
            await cluster.outside.create(paths.deletion(topic_id(f"{number}")), record.encode())
            deletions.add(Deletion.recorded_as(topic_id(f"{number}"), record, version=0))
        with held.measuring("three brokers are told of 5000 deletions and confirm them"):
            cluster.kill(3)
            await until(lambda: BrokerId(3) not in controller.picture.brokers)
            await cluster.register(3)
            await until(lambda: not len(deletions), what="files deleted")

    run(scenario).assert_free()


def test_a_person_removes_a_thousand_topic_nodes() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        names = [f"t{number}" for number in range(1_000)]
        await write_topics(cluster, dict.fromkeys(names, 2), preferred)
        controller = await cluster.reign(balance_interval_s=3_600.0)
        await everything_told(cluster, 2_000, 1, 2, 3)
        operations = [
            Delete(path, None)
            for name in names
            for number in range(2)
            for path in (paths.leader_and_isr(name, number), paths.partition(name, number))
        ]
        operations += [Delete(paths.topic(name), None) for name in names]
        for start in range(0, len(operations), NODES_PER_WRITE):
            await cluster.outside.multi(operations[start : start + NODES_PER_WRITE])
        with held.measuring("1000 topics removed by hand are deleted"):
            await until(lambda: not controller.picture.topics, what="taken out of the picture")
            await until(lambda: not len(controller._context.deletions), what="files deleted")

    run(scenario).assert_free()


def test_leaders_go_back_to_preferred_replicas() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        await write_topics(cluster, {f"t{number}": 5_000 for number in range(4)}, lambda n: 2 if n % 10 else 1 + n % 3)
        controller = await cluster.reign(balance_interval_s=3_600.0)
        await everything_told(cluster, 20_000, 1, 2, 3)
        done = asyncio.Event()

        async def round_to_its_end() -> AsyncGenerator[None, None]:
            async for _ in balance_leaders(controller._context):
                yield
            done.set()

        with held.measuring("leaders of 20000 partitions are balanced"):
            # What the controller's timer does.
            controller.queue.put_mutation(Mutation(name="balance", steps=round_to_its_end(), abandon=lambda: None))
            await done.wait()
        # Not while the loop is measured: it looks at every partition.
        assert misplaced(controller.picture) == ()

    run(scenario).assert_free()


def test_leaders_are_elected_by_request_and_what_has_none_is_listed() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        await write_topics(cluster, {"t0": 10_000, "t1": 10_000}, lambda n: 2 if n % 10 else 1 + n % 3)
        controller = await cluster.reign(balance_interval_s=3_600.0)
        await everything_told(cluster, 20_000, 1, 2, 3)
        role: Any = OneReign(controller)
        admin = AdminServicer(role)

        async def elect(*topics: admin_pb2.ElectionTopic, validate_only: bool) -> admin_pb2.ElectLeadersResponse:
            request = admin_pb2.ElectLeadersRequest(
                type=admin_pb2.ELECTION_TYPE_PREFERRED, topics=topics, validate_only=validate_only
            )
            with held.measuring(f"ElectLeaders of {len(topics)} topics, validate only: {validate_only}"):
                answer = await served(admin.ElectLeaders, admin_pb2.ElectLeadersRequest, request.SerializeToString())
            return admin_pb2.ElectLeadersResponse.FromString(answer)

        needed = len(misplaced(controller.picture))
        assert needed > 10_000
        assert (await elect(validate_only=True)).left == needed - 10_000
        named = await elect(admin_pb2.ElectionTopic(topic="t0", partitions=range(10_000)), validate_only=False)
        assert len(named.results) == 10_000
        assert {one.error_code for one in named.results} == {0, errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED}
        left = len(misplaced(controller.picture))
        assert (await elect(validate_only=False)).left == 0
        assert (left > 0, misplaced(controller.picture)) == (True, ())
        context = controller._context
        before = context.picture
        context.picture = before.with_trouble(dict.fromkeys(before.partitions, "gone, for this test alone"))
        with held.measuring("ListOfflinePartitions of 20000"):
            data = await served(admin.ListOfflinePartitions, admin_pb2.ListOfflinePartitionsRequest, b"")
        listed = admin_pb2.ListOfflinePartitionsResponse.FromString(data)
        assert (len(listed.partitions), listed.total) == (10_000, 20_000)
        context.picture = before
        request = admin_pb2.DescribeBrokersRequest(broker_ids=range(10_000)).SerializeToString()
        with held.measuring("DescribeBrokers"):
            data = await served(admin.DescribeBrokers, admin_pb2.DescribeBrokersRequest, request)
        brokers = admin_pb2.DescribeBrokersResponse.FromString(data).brokers
        assert sum(one.leaders for one in brokers) == 20_000

    run(scenario).assert_free()


def test_a_call_of_many_topics_is_admitted_and_refused() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        limits = {QuotaEntity(): Limit(rate=0.001, burst=250.0)}
        process = FakeQuotaProcess(cluster.server, cluster.clock, lambda: limits)
        controller = await cluster.reign(balance_interval_s=3_600.0, open_quota=lambda _address: process)
        await process.activate()
        change = EntityChange(
            entity=QuotaEntity(),
            limits=(LimitChange(key=RATE_KEY, value=0.001), LimitChange(key=BURST_KEY, value=250.0)),
        )
        await controller.quota_calls.alter((change,), validate_only=False, wait_s=DEADLINE_S)

        def requests(prefix: str, count: int) -> list[TopicRequest]:
            return [
                TopicRequest(name=f"{prefix}{i}", partitions=1, replication_factor=3, assignment=(), mutation=f"{i}")
                for i in range(count)
            ]

        async def create(prefix: str, count: int) -> int:
            answered = await controller.topics.create(
                requests(prefix, count), validate_only=False, wait_s=20.0, account=ANYBODY
            )
            return sum(isinstance(outcome, Created) for outcome in answered.outcomes)

        with held.measuring("500 topics in a call, half of them refused"):
            assert await create("a", 500) == 251
        with held.measuring("5000 topics in a call, nearly all refused"):
            assert await create("b", 5_000) == 0
        process.leave()
        process.dead = True
        with held.measuring("5000 topics in a call, judged by the controller itself"):
            assert await create("c", 5_000) == 0
        assert controller.quotas.admissions.stands_in

    run(scenario).assert_free()


def test_many_quotas_are_read() -> None:
    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        node = QuotaNode(config={RATE_KEY: "5", BURST_KEY: "50"}).encode()
        entities = [QuotaEntity(user=f"user-{number}") for number in range(5_000)]
        for start in range(0, len(entities), NODES_PER_WRITE):
            some = entities[start : start + NODES_PER_WRITE]
            await cluster.outside.multi([Create(entity.path, node) for entity in some])
        with held.measuring("a reign reads 5000 quotas"):
            controller = await cluster.reign(balance_interval_s=3_600.0)
            await controller.quotas.book.known()
        with held.measuring("5000 quotas are shown"):
            assert len(await controller.quota_calls.describe(None, wait_s=20.0)) == 5_000

    run(scenario).assert_free()


def test_partitions_that_nobody_may_lead_are_looked_at_and_recovered() -> None:
    """Without the guard all of a page are one step."""

    async def scenario(cluster: FakeCluster, held: HeldLoop) -> None:
        await write_topics(cluster, {"unguarded": 1_000, "stateless": 1_000}, preferred)
        await cluster.outside.delete(paths.topic_id(topic_id("unguarded")), version=None)
        for number in range(1_000):
            await cluster.outside.delete(paths.leader_and_isr("stateless", number), version=None)
        controller = await cluster.reign(balance_interval_s=3_600.0)
        for topic in ("unguarded", "stateless"):
            request = RecoveryRequest(topic=topic, partitions=(), first_partition=0, accept_loss=True, who="a test")
            with held.measuring(f"1000 partitions of a topic that is {topic} are recovered"):
                page = await controller.recoveries.recover(request, wait_s=60.0)
                response = await recovery_response(page)
            assert sum(1 for one in response.results if one.recovered) == 1_000

    run(scenario).assert_free()
