"""What partitions that are added and removed cost a controller: store calls, and time on its loop (safety rule S22)."""

import random
import time
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Children, Group, Node, Outcome
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Cluster, Partition, Topic
from regnum_election.decisions.rejection import Rejection
from regnum_election.partitions.requests import AdditionRequest, RemovalRequest, plan_addition
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, TopicId
from regnum_telemetry.instruments import Instrument
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Histogram, Metrics
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

AWAY = BrokerId(2)


class CountingStore(MemoryStore):
    """Counts what it is asked."""

    def __init__(self, server: MemoryServer, counted: list[int]) -> None:
        super().__init__(server)
        self._counted = counted

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        self._counted[0] += 1
        return await super().write_batch(groups, fence=fence)

    async def get_many(self, paths: Sequence[str], *, current: bool = False) -> tuple[Node | None, ...]:
        self._counted[0] += 1
        return await super().get_many(paths, current=current)

    async def children(self, path: str, *, current: bool = False) -> Children:
        self._counted[0] += 1
        return await super().children(path, current=current)


class StepEnds(Histogram):
    """Takes down at which call of the store each step of the controller ended."""

    def __init__(self, calls: list[int], ends: list[int]) -> None:
        super().__init__(instruments.EVENT_DURATION.bounds)
        self._calls = calls
        self._ends = ends

    def record(self, value: float) -> None:
        super().record(value)
        self._ends.append(self._calls[0])


class CallsByStep(Metrics):
    """Hears of the end of each of the controller's steps, as its metrics do."""

    def __init__(self, calls: list[int]) -> None:
        super().__init__()
        self._calls = calls
        self.ends: list[int] = []

    def histogram(self, instrument: Instrument, *labels: str) -> Histogram:
        if instrument is instruments.EVENT_DURATION:
            return StepEnds(self._calls, self.ends)
        return super().histogram(instrument, *labels)


@pytest.fixture
def calls() -> list[int]:
    return [0]


@pytest.fixture
async def cluster(calls: list[int]) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    cluster.open_store = lambda server: CountingStore(server, calls)
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def with_open_removals(
    cluster: FakeCluster, topics: int, partitions: int, metrics: Metrics | None = None
) -> Controller:
    """Topics of which a broker that is away has still to delete all partitions but one."""
    controller = await cluster.reign(metrics=metrics)
    names = [f"t{i}" for i in range(topics)]
    requests = [
        TopicRequest(name=name, partitions=partitions, replication_factor=3, assignment=(), mutation=None)
        for name in names
    ]
    await controller.topics.create(requests, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    cluster.kill(AWAY)
    await until(lambda: AWAY not in controller.picture.brokers)
    removals = [
        RemovalRequest(name=name, topic_id="", partitions=range(1, partitions), mutation=None) for name in names
    ]
    await controller.partitions.remove(removals, validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    await until(lambda: not controller._context.removals.begun)
    await until(lambda: controller.queue.is_empty and controller._in_hand is None)
    assert len(controller._context.removals) == topics * (partitions - 1)
    return controller


async def test_a_topic_goes_in_few_calls_a_step_with_all_its_open_removals(
    cluster: FakeCluster, calls: list[int]
) -> None:
    steps = CallsByStep(calls)
    controller = await with_open_removals(cluster, 1, 301, steps)
    removed = controller.picture.names["t0"]
    began = [calls[0]]
    steps.ends.clear()
    deletion = DeletionRequest(name="t0", topic_id="", mutation=None)
    await controller.topics.delete([deletion], wait_s=DEADLINE_S, account=ANYBODY)
    assert 0 < max(after - before for before, after in pairwise(began + steps.ends)) < 30
    assert await cluster.outside.exists(paths.partition_deletions(removed)) is None


async def test_a_reign_takes_all_open_removals_up_in_few_calls(cluster: FakeCluster, calls: list[int]) -> None:
    await with_open_removals(cluster, 100, 2)
    await cluster.end_reign()
    before = calls[0]
    controller = await cluster.reign(2)
    assert len(controller._context.removals) == 100
    assert calls[0] - before < 60


@pytest.mark.alone
def test_an_assignment_of_another_length_than_was_asked_for_is_refused_unread() -> None:
    topic = Topic(name="t", id=TopicId("x" * 22), version=0, partitions=(0,))
    picture = Cluster().with_topics([(topic, {0: Partition(replicas=(BrokerId(1),))})])
    numbers = list(range(700_000))
    random.Random(1).shuffle(numbers)
    request = AdditionRequest(name="t", total=2, assignment=[(number, ()) for number in numbers], mutation=None)
    began_s = time.process_time()
    refused = plan_addition(request, picture, repeated=(), clearing={})
    took_s = time.process_time() - began_s
    assert isinstance(refused, Rejection)
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT
    assert took_s < 0.02
