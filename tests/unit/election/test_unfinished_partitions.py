"""What conflicts for long is decided about again, and a leader that came anew hears nothing of its former term."""

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

import pytest
from regnum_coordination.drivers.memory import MemoryStore
from regnum_coordination.port import Check, Group, Outcome, Set
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Partition
from regnum_election.decisions.leadership import Refusal
from regnum_election.dispatch.control_requests import ControlRequests
from regnum_election.dispatch.outbox import StatesCall
from regnum_election.reign.reign import Reign
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.ids import BrokerId, ControllerEpoch, ElectionId, PartitionKey
from regnum_testing.election_values import broker, replicas, topic
from regnum_testing.election_values import cluster as picture_of
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until


class BusyStore(MemoryStore):
    """Another writer is always faster at some paths."""

    busy: ClassVar[dict[str, int]] = {}
    """How many more of the controller's writes come too late, by path."""
    outside: ClassVar[list[MemoryStore]] = []

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """Somebody writes the same again, so that the version is another one."""
        for operation in (operation for group in groups for operation in group if isinstance(operation, Set)):
            if self.busy.get(operation.path, 0) > 0:
                self.busy[operation.path] -= 1
                node = await self.outside[0].get(operation.path)
                await self.outside[0].set(operation.path, node.data, version=node.stat.version)
        return await super().write_batch(groups, fence=fence)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    BusyStore.busy.clear()
    BusyStore.outside[:] = [MemoryStore(cluster.server)]
    cluster.open_store = BusyStore
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str, *ids: int) -> PartitionKey:
    request = TopicRequest(
        name=name, partitions=0, replication_factor=None, assignment=((0, replicas(*ids)),), mutation=None
    )
    answered = await controller.topics.create((request,), validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created), outcome
    return PartitionKey(outcome.topic_id, 0)


async def test_a_partition_that_conflicts_for_many_rounds_gets_its_leader_without_another_failure(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    key = await create(controller, "t", 1, 2)
    BusyStore.busy[paths.leader_and_isr("t", 0)] = 50
    cluster.kill(1)
    await until(lambda: cluster.all_told((2,), key, 2))
    assert (await cluster.state("t", 0)).leader == 2
    assert BusyStore.busy[paths.leader_and_isr("t", 0)] == 0


async def test_a_partition_that_conflicts_without_end_holds_nobody_up(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, "busy", 1, 2)
    other = await create(controller, "other", 1, 3)
    BusyStore.busy[paths.leader_and_isr("busy", 0)] = 10**9
    cluster.kill(1)
    await until(lambda: cluster.all_told((3,), other, 3))
    await create(controller, "later", 2)
    assert (await cluster.state("busy", 0)).leader == 1


async def test_a_leader_that_came_anew_is_told_nothing_before_its_partition_is_settled(cluster: FakeCluster) -> None:
    """Safety rule S10, trace T3: in its former epoch it could write other records at the same offsets."""
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    key = await create(controller, "t", 1)
    BusyStore.busy[paths.leader_and_isr("t", 0)] = 10**9
    back = await cluster.register(1)
    await until(lambda: any(request.init for request in back.requests), what="the full set")
    assert key not in back.states
    BusyStore.busy.clear()
    await until(lambda: back.leaders().get(key) == 1)
    assert back.states[key].state.leader_epoch == 1
    assert all(item.state.leader_epoch == 1 for request in back.requests for item in request.partitions)


def test_a_message_never_names_its_receiver_as_leader_under_a_registration_that_is_over() -> None:
    book = ControlRequests(Reign(controller_id=ElectionId(1), epoch=ControllerEpoch(1), epoch_version=0))
    picture = picture_of(1, 2, topics=[topic("t", (1, 2))])
    (key,) = picture.partitions
    call = StatesCall(keys=(key,), marks=(), init=True, part=0, parts=1)
    _, told = book.leader_and_isr(picture, picture.brokers[BrokerId(1)], call)
    assert told == (key,)
    bounced = broker(1, epoch=9)
    _, told = book.leader_and_isr(picture.with_broker(bounced), bounced, call)
    assert told == ()
    _, told = book.leader_and_isr(picture.with_broker(bounced), picture.brokers[BrokerId(2)], call)
    assert told == (key,), "its followers keep what they know until then"


async def test_a_partition_made_anew_since_it_conflicted_is_passed_over(cluster: FakeCluster) -> None:
    """What conflicted is decided about again later; by then the number may be another partition's, without a state."""
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    key = await create(controller, "t", 1, 2)
    anew = Partition(replicas=replicas(1, 2), creating=True)
    assert controller.leaders.elections._preference(controller.picture, key, anew) is Refusal.NOTHING_TO_CHANGE
