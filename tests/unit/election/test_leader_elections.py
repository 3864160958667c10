"""ElectLeaders, the balance of leaders, and the list of partitions without one, over a memory store."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from immutables import Map
from regnum.types.v1 import errors_pb2
from regnum_election.controller import Controller
from regnum_election.decisions.partitions import OfflineReason
from regnum_election.leaders.balance import misplaced
from regnum_election.leaders.elections import PARTITIONS_MAX, Election, ElectionRequest, ElectionType
from regnum_election.reign.events import IsrsWritten
from regnum_election.reign.reign import ResignedError
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_model import paths
from regnum_model.configs import (
    AUTO_LEADER_REBALANCE_ENABLE,
    CLUSTER,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
    encode_config,
)
from regnum_model.ids import BrokerId, ControllerEpoch, PartitionKey, TopicId
from regnum_service.errors import RegnumError
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

NONE = errors_pb2.ERROR_CODE_NONE
NOT_NEEDED = errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED
NOT_AVAILABLE = errors_pb2.ERROR_CODE_PREFERRED_LEADER_NOT_AVAILABLE
UNKNOWN = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    await cluster.begin(1, 2, 3)
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str, *assignment: Sequence[int]) -> TopicId:
    request = TopicRequest(
        name=name,
        partitions=0,
        replication_factor=None,
        assignment=[(number, tuple(map(BrokerId, replicas))) for number, replicas in enumerate(assignment)],
        mutation=None,
    )
    answered = await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    (outcome,) = answered.outcomes
    assert isinstance(outcome, Created), outcome
    return outcome.topic_id


async def elect(
    controller: Controller, topics: Sequence[tuple[str, Sequence[int]]] = (), *, validate_only: bool = False
) -> list[Election]:
    request = ElectionRequest(type=ElectionType.PREFERRED, topics=topics, validate_only=validate_only, who="a test")
    return list((await controller.leaders.elections.elect(request, wait_s=DEADLINE_S)).elections)


async def displace(cluster: FakeCluster, controller: Controller, *keys: PartitionKey) -> None:
    """Broker 1 dies, comes back with its log, and is in sync again without leading."""
    names = {key: controller.picture.topics[key.topic_id].name for key in keys}
    cluster.kill(1)
    await until(lambda: BrokerId(1) not in controller.picture.brokers)
    back = await cluster.register(1)
    await until(lambda: BrokerId(1) in controller.picture.brokers)
    for key in keys:
        state = await cluster.state(names[key], key.partition)
        member = next(iter(state.members.values()))
        in_sync = replace(
            state,
            isr=(*state.isr, BrokerId(1)),
            elr=(),
            members={**state.members, BrokerId(1): replace(member, broker_epoch=back.epoch, log_id=back.log_id)},
        )
        path = paths.leader_and_isr(names[key], key.partition)
        await cluster.outside.set(path, in_sync.encode(), version=None)
        controller.queue.put(isr_report(key))
        await until(lambda key=key: BrokerId(1) in controller.picture.partitions[key].held.state.isr)


def isr_report(key: PartitionKey) -> IsrsWritten:
    return IsrsWritten(reports={key: None})


async def test_preferred_leaders_come_back_in_a_new_epoch_and_all_are_told(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    topic = await create(controller, "t", [1, 2, 3], [2, 3, 1])
    first, second = PartitionKey(topic, 0), PartitionKey(topic, 1)
    await displace(cluster, controller, first, second)
    epoch = (await cluster.state("t", 0)).leader_epoch
    dry, _ = await elect(controller, [("t", [0, 1])], validate_only=True)
    assert (dry.code, dry.leader, dry.leader_epoch) == (NONE, 1, -1)
    assert (await cluster.state("t", 0)).leader_epoch == epoch
    one, two = await elect(controller, [("t", [0, 1])])
    assert (one.code, one.leader, one.leader_epoch) == (NONE, 1, epoch + 1)
    assert two.code == NOT_NEEDED
    state = await cluster.state("t", 0)
    assert (state.leader, state.leader_epoch) == (1, epoch + 1)
    await until(lambda: cluster.all_told((1, 2, 3), first, 1))
    (again,) = await elect(controller, [("t", [0])])
    assert again.code == NOT_NEEDED


async def test_a_preferred_replica_that_is_away_or_behind_is_not_elected(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    topic = await create(controller, "t", [1, 2, 3])
    cluster.kill(1)
    await until(lambda: cluster.all_told((2, 3), PartitionKey(topic, 0), 2))
    (away,) = await elect(controller, [("t", [0])])
    assert away.code == NOT_AVAILABLE
    assert "broker 2 leads on" in away.message
    await cluster.register(1)
    await until(lambda: BrokerId(1) in controller.picture.brokers)
    before = await cluster.outside.get(paths.leader_and_isr("t", 0))
    (behind,) = await elect(controller, [("t", [])])
    assert behind.code == NOT_AVAILABLE
    assert (await cluster.outside.get(paths.leader_and_isr("t", 0))).stat.version == before.stat.version


async def test_each_partition_is_answered_on_its_own(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, "t", [1, 2, 3])
    answers = await elect(controller, [("t", [0, 7]), ("nowhere", [1]), ("never", [])])
    assert sorted((one.topic, one.partition, one.code) for one in answers) == [
        ("never", 0, UNKNOWN),
        ("nowhere", 1, UNKNOWN),
        ("t", 0, NOT_NEEDED),
        ("t", 7, UNKNOWN),
    ]


@pytest.mark.parametrize(
    "topics",
    [
        [("t", [0]), ("t", [1])],
        [("t", [0, 0])],
        [("nowhere", range(PARTITIONS_MAX + 1))],
    ],
)
async def test_what_contradicts_itself_or_is_too_much_is_refused_whole(
    cluster: FakeCluster, topics: Sequence[tuple[str, Sequence[int]]]
) -> None:
    controller = await cluster.reign()
    await create(controller, "t", [1, 2, 3], [1, 2, 3])
    with pytest.raises(RegnumError) as refused:
        await elect(controller, topics)
    assert refused.value.code == errors_pb2.ERROR_CODE_INVALID_REQUEST


async def test_who_names_no_partition_means_those_that_need_it(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    topic = await create(controller, "t", [1, 2, 3], [2, 3, 1])
    away = PartitionKey(await create(controller, "away", [3, 2, 1]), 0)
    await displace(cluster, controller, PartitionKey(topic, 0))
    cluster.kill(3)
    await until(lambda: cluster.all_told((1, 2), away, 2))
    answers = await elect(controller)
    assert [(one.topic, one.partition, one.code) for one in answers] == [
        ("away", 0, NOT_AVAILABLE),
        ("t", 0, NONE),
    ]
    assert [(await cluster.state("t", number)).leader for number in (0, 1)] == [1, 2]


async def test_a_reign_looks_at_the_balance_soon_and_then_by_its_interval(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    topic = await create(controller, "t", [1, 2, 3])
    await displace(cluster, controller, PartitionKey(topic, 0))
    await cluster.end_reign()
    controller = await cluster.reign(2, first_balance_s=0.01)

    async def led_by_one() -> bool:
        return (await cluster.state("t", 0)).leader == 1

    await until(led_by_one)
    assert controller.upkeep.looks_at_balance == 1


async def test_the_balance_of_leaders_follows_the_settings_of_the_cluster(cluster: FakeCluster) -> None:
    controller = await cluster.reign(corrections_interval_s=0.02)
    topic = await create(controller, "t", [1, 2, 3], [1, 2, 3], [1, 2, 3])
    key = PartitionKey(topic, 0)
    await displace(cluster, controller, key)
    picture = controller.picture
    assert set(misplaced(picture)) == {PartitionKey(topic, number) for number in range(3)}

    def with_settings(**values: int) -> object:
        told = {**picture.settings.cluster, LEADER_IMBALANCE_PER_BROKER_PERCENTAGE: values["percentage"]}
        return replace(picture, settings=replace(picture.settings, cluster=told))

    assert misplaced(with_settings(percentage=100)) == ()  # type: ignore[arg-type]
    assert len(misplaced(with_settings(percentage=99))) == 3  # type: ignore[arg-type]
    values = {"min.insync.replicas": "2", "default.replication.factor": "3"}
    off = {**values, AUTO_LEADER_REBALANCE_ENABLE: "false", LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS: "1"}
    await cluster.outside.set(CLUSTER, encode_config(off), version=None)
    await until(lambda: not controller.picture.settings.of_cluster(AUTO_LEADER_REBALANCE_ENABLE))
    looks = controller.upkeep.looks_at_balance
    await until(lambda: controller.upkeep.looks_at_balance > looks + 1)
    assert (await cluster.state("t", 0)).leader == 2
    on = {**off, AUTO_LEADER_REBALANCE_ENABLE: "true"}
    await cluster.outside.set(CLUSTER, encode_config(on), version=None)

    async def led_by_one() -> bool:
        return (await cluster.state("t", 0)).leader == 1

    await until(led_by_one)


async def test_offline_partitions_are_listed_with_their_reasons_and_come_back_by_themselves(
    cluster: FakeCluster,
) -> None:
    controller = await cluster.reign()
    topic = await create(controller, "t", [1], [3])
    await create(controller, "b", [1, 2])
    await create(controller, "u", [2])
    assert (await controller.leaders.offline((), token="", size=0)).total == 0
    cluster.kill(1)
    await until(lambda: PartitionKey(topic, 0) in controller.picture.unled)
    (one,) = (await controller.leaders.offline((), token="", size=0)).partitions
    assert (one.topic, one.number, one.why.reason) == ("t", 0, OfflineReason.MEMBERS_AWAY)
    assert "1" in one.why.message
    cluster.kill(2)
    await until(lambda: len(controller.picture.unled) == 3)
    page = await controller.leaders.offline((), token="", size=2)
    assert ([(one.topic, one.number) for one in page.partitions], page.total) == ([("b", 0), ("t", 0)], 3)
    assert (await controller.leaders.offline(("u",), token="", size=0)).total == 1
    await cluster.register(1, log_id="wiped")
    await until(lambda: BrokerId(1) in controller.picture.brokers)
    page = await controller.leaders.offline(("t", "b"), token="", size=0)
    reasons = {one.topic: one.why.reason for one in page.partitions}
    assert reasons == {"t": OfflineReason.OTHER_LOG, "b": OfflineReason.MEMBERS_AWAY}
    await cluster.register(2)
    await until(lambda: set(controller.picture.unled) == {PartitionKey(topic, 0)})
    assert (await cluster.state("b", 0)).leader == 2


async def test_brokers_are_described_live_or_named_by_an_assignment(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    await create(controller, "t", [1, 3], [2, 3])
    await create(controller, "u", [1])
    cluster.kill(3)
    await until(lambda: BrokerId(3) not in controller.picture.brokers)
    one, two, three = await controller.leaders.brokers(())
    assert (one.leaders, one.replicas, one.preferred, one.in_sync) == (2, 2, 2, 2)
    assert (two.leaders, two.replicas, two.preferred, two.in_sync) == (1, 1, 1, 1)
    assert one.broker is not None
    assert (three.broker, three.known, three.replicas, three.leaders) == (None, True, 2, 0)
    (nobody,) = await controller.leaders.brokers([BrokerId(9)])
    assert not nobody.known


async def test_the_index_of_partitions_without_a_leader_is_what_a_look_at_all_would_find(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    topic = await create(controller, "t", [1], [2], [3])

    def found() -> Map[PartitionKey, None]:
        partitions = controller.picture.partitions
        return Map({key: None for key, one in partitions.items() if not one.is_led})

    for step in (lambda: cluster.kill(1), lambda: cluster.kill(2), lambda: None):
        step()
        await until(lambda: controller.picture.unled == found())
    await until(lambda: len(controller.picture.unled) == 2)
    await cluster.outside.delete(paths.leader_and_isr("t", 2), version=None)
    controller.queue.put(isr_report(PartitionKey(topic, 2)))
    await until(lambda: len(controller.picture.unled) == 3)
    page = await controller.leaders.offline((), token="", size=0)
    reasons = {one.number: one.why.reason for one in page.partitions}
    assert reasons[2] is OfflineReason.STATE_UNUSABLE


async def test_a_controller_resigns_on_request_for_its_own_reign_only(cluster: FakeCluster) -> None:
    controller = await cluster.reign()
    key = PartitionKey(await create(controller, "t", [1, 2, 3]), 0)
    epoch = controller.reign.epoch
    with pytest.raises(RegnumError) as refused:
        await controller.leaders.resign(ControllerEpoch(epoch + 1), who="a test", wait_s=DEADLINE_S)
    assert refused.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    await controller.leaders.resign(epoch, who="a test", wait_s=DEADLINE_S)
    assert cluster.running is not None
    with pytest.raises(ResignedError):
        await cluster.running
    with pytest.raises(RegnumError) as over:
        await controller.leaders.resign(epoch, who="a test", wait_s=DEADLINE_S)
    assert over.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    await cluster.end_reign()
    await cluster.reign(2)
    await until(lambda: cluster.all_told((1, 2, 3), key, 1))
    assert (await cluster.state("t", 0)).leader_epoch == 0, "nobody's leadership changed hands"
