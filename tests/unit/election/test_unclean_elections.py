"""Unclean elections, over a memory store with fake brokers (safety rules S10 and S14)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import structlog
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Cluster, HeldState, Partition, Topic
from regnum_election.decisions.configs import Settings
from regnum_election.leaders.elections import Elected, ElectionRequest, ElectionType
from regnum_election.leaders.unclean import INTERVAL_S, WAIT_S, UncleanElections
from regnum_election.reassignment.calls import ReassignmentRequest
from regnum_election.recovery.calls import PartitionRecoveries, Recovered, RecoveryRequest
from regnum_election.state.context import ControllerContext
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.config_changes import Alteration, Operation, Resource, ResourceType
from regnum_model.configs import UNCLEAN_LEADER_ELECTION_ENABLE
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_service.errors import RegnumError
from regnum_testing.clock import FakeClock
from regnum_testing.election_values import state
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

NONE = errors_pb2.ERROR_CODE_NONE
NOBODY = errors_pb2.ERROR_CODE_ELIGIBLE_LEADERS_NOT_AVAILABLE
NOT_NEEDED = errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def create(
    controller: Controller, name: str = "t", *, unclean: bool = False, replicas: tuple[int, ...] = (1, 2, 3)
) -> PartitionKey:
    request = TopicRequest(
        name=name,
        partitions=0,
        replication_factor=None,
        assignment=((0, tuple(map(BrokerId, replicas))),),
        mutation=None,
        configs=((UNCLEAN_LEADER_ELECTION_ENABLE, "true"),) if unclean else (),
    )
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created), outcome
    return PartitionKey(outcome.topic_id, 0)


def hold(cluster: FakeCluster, id: int, key: PartitionKey, *, epoch: int, end: int) -> None:
    cluster.brokers[BrokerId(id)].logs[key] = control_pb2.ReplicaLogInfo(
        last_written_leader_epoch=epoch, current_leader_epoch=epoch, high_watermark=end, log_end_offset=end
    )


async def lose_the_isr(cluster: FakeCluster, controller: Controller, key: PartitionKey, name: str = "t") -> None:
    """Brokers 2 and 3 bounce and are out of the ISR; then the leader is gone for good. min.insync is 1: no ELR."""
    for id in (2, 3):
        logs = cluster.brokers[BrokerId(id)].logs
        cluster.kill(id)
        await until(lambda id=id: BrokerId(id) not in controller.picture.brokers)
        back = await cluster.register(id)
        back.logs.update(logs)
        await until(lambda back=back: bool(back.requests))
    cluster.kill(1)
    await until(lambda: key in controller.picture.unled)
    state = await cluster.state(name, 0)
    assert (state.leader, state.isr, state.elr) == (-1, (1,), ())


async def elect(controller: Controller, *, validate_only: bool = False, name: str = "t") -> Elected:
    request = ElectionRequest(
        type=ElectionType.UNCLEAN, topics=[(name, [0])] if name else [], validate_only=validate_only, who="a test"
    )
    return await controller.leaders.elections.elect(request, wait_s=DEADLINE_S)


async def test_off_by_default_nobody_outside_isr_and_elr_leads(cluster: FakeCluster) -> None:
    controller = await cluster.reign(min_insync=1)
    key = await create(controller)
    await lose_the_isr(cluster, controller, key)
    looks = controller.leaders.unclean.looks
    await until(lambda: controller.leaders.unclean.looks > looks + 1)
    assert (await cluster.state("t", 0)).leader == -1
    assert controller.leaders.unclean.elections == 0


async def test_by_request_the_best_log_leads_alone_and_what_may_be_lost_is_said_first(cluster: FakeCluster) -> None:
    controller = await cluster.reign(min_insync=1)
    key = await create(controller)
    hold(cluster, 2, key, epoch=0, end=7)
    hold(cluster, 3, key, epoch=0, end=9)
    await lose_the_isr(cluster, controller, key)
    epoch = (await cluster.state("t", 0)).leader_epoch
    (look,) = (await elect(controller, validate_only=True)).elections
    assert (look.code, look.leader, look.leader_epoch) == (NONE, 3, -1)
    assert look.loss is not None
    assert look.loss.unknown == (1,)
    assert "broker 1" in look.loss.may_be_lost
    assert (await cluster.state("t", 0)).leader_epoch == epoch, "a look changes nothing"
    (done,) = (await elect(controller)).elections
    assert (done.code, done.leader, done.leader_epoch) == (NONE, 3, epoch + 1)
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch, state.isr, state.elr) == (3, epoch + 1, (3,), ())
    assert state.members[BrokerId(3)].broker_epoch == cluster.brokers[BrokerId(3)].epoch
    assert controller.leaders.unclean.elections == 1
    await until(lambda: cluster.all_told((2, 3), key, 3))
    (again,) = (await elect(controller)).elections
    assert again.code == NOT_NEEDED


async def test_an_eligible_replica_goes_first_whatever_the_caller_says(cluster: FakeCluster) -> None:
    """Safety rule S10: ISR, then ELR, then anybody else."""
    controller = await cluster.reign(min_insync=2)
    key = await create(controller)
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    cluster.kill(2)

    async def below_min_insync() -> bool:
        return (await cluster.state("t", 0)).elr == (2,)

    await until(below_min_insync)
    await cluster.register(3)
    cluster.kill(1)
    await until(lambda: key in controller.picture.unled)
    hold(cluster, 3, key, epoch=0, end=99)
    await cluster.register(2)
    await until(lambda: key not in controller.picture.unled)
    (refused,) = (await elect(controller)).elections
    assert refused.code == NOT_NEEDED
    assert (await cluster.state("t", 0)).leader == 2


@pytest.mark.parametrize("called_back", [False, True])
async def test_a_replica_that_is_being_filled_does_not_lead_while_an_old_one_is_live_and_was_not_heard(
    cluster: FakeCluster, called_back: bool
) -> None:
    controller = await cluster.reign(min_insync=1)
    key = await create(controller, replicas=(1, 2))

    async def move(*target: int) -> None:
        request = ReassignmentRequest(topic="t", partition=0, target=tuple(map(BrokerId, target)) or None)
        done = await controller.reassignments.alter([request], validate_only=False, who="a test", wait_s=DEADLINE_S)
        assert done == (None,)

    await move(2, 3)
    await until(lambda: controller.picture.partitions[key].replicas == (1, 2, 3))
    hold(cluster, 2, key, epoch=0, end=900)
    hold(cluster, 3, key, epoch=0, end=10)
    await lose_the_isr(cluster, controller, key)
    if called_back:
        await move()
    cluster.brokers[BrokerId(2)].mute = True
    (refused,) = (await elect(controller)).elections
    assert refused.code == NOBODY
    assert "brokers [2] are live" in refused.message
    assert "regnum partitions recover" in refused.message
    assert (await cluster.state("t", 0)).leader == -1
    cluster.brokers[BrokerId(2)].mute = False
    (done,) = (await elect(controller)).elections
    assert (done.code, done.leader) == (NONE, 2)


async def test_where_no_replica_answers_nobody_is_elected(cluster: FakeCluster) -> None:
    controller = await cluster.reign(min_insync=1)
    key = await create(controller)
    await lose_the_isr(cluster, controller, key)
    for id in (2, 3):
        cluster.kill(id)
        await until(lambda id=id: BrokerId(id) not in controller.picture.brokers)
    (refused,) = (await elect(controller)).elections
    assert refused.code == NOBODY
    assert (await cluster.state("t", 0)).leader == -1


async def test_a_state_that_is_gone_is_for_a_person_to_give_up(cluster: FakeCluster) -> None:
    """Safety rule S14: never a new epoch 0, and never by a setting."""
    controller = await cluster.reign(min_insync=1)
    key = await create(controller, unclean=True)
    hold(cluster, 2, key, epoch=0, end=7)
    await lose_the_isr(cluster, controller, key)
    await cluster.outside.delete(paths.leader_and_isr("t", 0), version=None)
    (refused,) = (await elect(controller)).elections
    assert refused.code == NOBODY
    assert "regnum partitions recover" in refused.message
    assert await cluster.outside.exists(paths.leader_and_isr("t", 0)) is None


async def test_all_partitions_without_a_leader_are_meant_by_who_names_none(cluster: FakeCluster) -> None:
    controller = await cluster.reign(min_insync=1)
    key = await create(controller)
    other = await create(controller, "u")
    hold(cluster, 2, key, epoch=0, end=7)
    hold(cluster, 3, other, epoch=0, end=7)
    await lose_the_isr(cluster, controller, key)
    await until(lambda: other in controller.picture.unled)
    done = await elect(controller, name="")
    assert [(one.topic, one.leader) for one in done.elections] == [("t", 2), ("u", 3)]
    assert (done.left, controller.leaders.unclean.elections) == (0, 2)


async def test_a_topic_that_allows_it_gets_a_leader_by_itself_and_the_others_wait() -> None:
    clock = FakeClock()
    cluster = FakeCluster(clock)
    driver = asyncio.create_task(_drive(clock))
    try:
        await cluster.begin(1, 2, 3)
        controller = await cluster.reign(min_insync=1)
        key, other = await create(controller, unclean=True), await create(controller, "u")
        hold(cluster, 2, key, epoch=0, end=7)
        await lose_the_isr(cluster, controller, key)
        await until(lambda: key not in controller.picture.unled)
        assert (await cluster.state("t", 0)).leader == 2
        await until(lambda: controller.leaders.unclean.elections == 1)
        looks = controller.leaders.unclean.looks
        await until(lambda: controller.leaders.unclean.looks > looks + 12)
        assert (await cluster.state("u", 0)).leader == -1
        assert other in controller.picture.unled
        # Switched on later, it is taken up without a restart.
        hold(cluster, 3, other, epoch=0, end=7)
        operations = (Operation(key=UNCLEAN_LEADER_ELECTION_ENABLE, value="true"),)
        resource = Resource(type=ResourceType.TOPIC, name="u")
        await controller.configs.alter(
            [Alteration(resource=resource, operations=operations)], validate_only=False, wait_s=DEADLINE_S
        )
        await until(lambda: other not in controller.picture.unled)
        assert (await cluster.state("u", 0)).leader == 3
    finally:
        driver.cancel()
        await asyncio.wait([driver])
        await cluster.close()


async def _drive(clock: FakeClock) -> None:
    while True:
        await asyncio.sleep(0.001)
        await clock.advance(0.25)


class NoAnswers:
    """Recoveries of topics whose replicas do not answer: each takes a third of the time of a round."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.tried: list[str] = []

    async def recover(self, request: RecoveryRequest, *, wait_s: float) -> Recovered:
        self.tried.append(request.topic)
        await self._clock.sleep(WAIT_S / 3)
        raise RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "no replica answers")


async def test_topics_whose_replicas_do_not_answer_do_not_keep_the_others_from_their_turn() -> None:
    names = [f"t{number}" for number in range(60)]
    unled = Partition(replicas=(BrokerId(1),), held=HeldState(state=state(-1, (1,)), version=1))
    picture = Cluster().with_topics(
        [(Topic(name=name, id=TopicId(name), version=0, partitions=(0,)), {0: unled}) for name in names]
    )
    clock = FakeClock()
    context = SimpleNamespace(
        clock=clock,
        log=structlog.get_logger(),
        picture=replace(
            picture, settings=Settings().with_topics({name: {UNCLEAN_LEADER_ELECTION_ENABLE: 1} for name in names})
        ),
    )
    recoveries = NoAnswers(clock)
    elections = UncleanElections(cast("ControllerContext", context), cast("PartitionRecoveries", recoveries))

    async def ready() -> None:
        """At once."""

    running = asyncio.create_task(elections.run(ready))
    try:
        for _ in range(120):
            await clock.advance(INTERVAL_S)
    finally:
        running.cancel()
    assert len(recoveries.tried) > 2 * len(names)
    first, second = recoveries.tried[: len(names)], recoveries.tried[len(names) : 2 * len(names)]
    assert sorted(first) == sorted(second) == sorted(names), "all are asked before one is asked again"
