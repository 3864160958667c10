"""What a controller says of partitions, brokers and a store that take no writes."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from regnum.types.v1 import errors_pb2
from regnum.types.v1 import events_pb2 as words
from regnum_client.admin.health.views import health_view
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import ConnectionLoss, StoreFull
from regnum_coordination.port import Check, Group, Outcome, Unknown
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Cluster
from regnum_election.health.gauges import show_controller
from regnum_election.health.messages import describe_health
from regnum_election.health.store_watch import FAILING_S, StoreWatch
from regnum_election.health.writability import Writability
from regnum_election.history.events import OtherEntry
from regnum_election.leaders.messages import brokers_response
from regnum_election.reign.writability import CommitsWait, DiskSaid, ListenersSaid
from regnum_election.topics.requests import TopicRequest
from regnum_model.ids import BrokerEpoch, BrokerId, PartitionKey
from regnum_model.topic_filter import Trouble
from regnum_service.errors import RegnumError
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.clock import SkippingClock
from regnum_testing.election_values import TOPIC_ID, broker
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until, within

FULL = "the disk of log directory /data is full"
NO_SPACE = "etcd takes no writes: etcdserver: mvcc: database space exceeded"


class RefusingStore(MemoryStore):
    """Takes no writes while it has a failure for them."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.failure: ConnectionLoss | None = None
        self.unanswered = 0
        """Batches without an answer."""

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """See Store."""
        if self.failure is not None:
            self.unanswered += 1
            await asyncio.sleep(0)
            return tuple(Unknown(self.failure) for _ in groups)
        return await super().write_batch(groups, fence=fence)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster(SkippingClock())
    yield cluster
    await cluster.close()


async def create(controller: Controller, name: str, *assignment: tuple[int, ...]) -> None:
    request = TopicRequest(
        name=name,
        partitions=0,
        replication_factor=None,
        assignment=tuple((number, tuple(map(BrokerId, replicas))) for number, replicas in enumerate(assignment)),
        mutation=None,
    )
    await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)


def say(cluster: FakeCluster, controller: Controller, id: int, because: str = "", free: int = 0) -> None:
    epoch = cluster.brokers[BrokerId(id)].epoch
    controller.health.heard_of(
        DiskSaid(broker=BrokerId(id), epoch=epoch, free_bytes=free, size_bytes=100, refuses_because=because)
    )


def count(controller: Controller) -> int:
    return controller.health.book.count(Trouble.NOT_WRITABLE)


async def test_a_partition_that_no_write_can_reach_is_told_of_with_the_reason_while_it_lasts(
    cluster: FakeCluster,
) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, "t", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    health = controller.health
    await until(lambda: health.looked_at_all)
    say(cluster, controller, 1, FULL)
    await health.turn()
    assert count(controller) == 1
    answer = await describe_health(health, most=20)
    (named,) = answer.troubled_partitions
    assert (named.state.leader, named.not_writable_because) == (1, f"broker 1: {FULL}")
    told = [(one.broker_id, one.disk_free_bytes, one.refuses_writes_because) for one in answer.brokers]
    assert told == [(1, 0, FULL), (2, 0, ""), (3, 0, "")]
    assert [one.HasField("disk_size_bytes") for one in answer.brokers] == [True, False, False]
    events = [one for one in cluster.recorded if isinstance(one, OtherEntry)]
    (event,) = [one for one in events if one.kind == words.EVENT_KIND_TROUBLE_OVERDUE]
    assert event.detail == f"not-writable for 0 s: t/0 (broker 1: {FULL})"
    described = await brokers_response(await controller.leaders.brokers(()), health.writability.disk_of)
    assert (described.brokers[0].disk_size_bytes, described.brokers[0].refuses_writes_because) == (100, FULL)

    say(cluster, controller, 2, FULL)
    await health.turn()
    assert count(controller) == 3, "of the third too few members store anything"
    say(cluster, controller, 1, free=50)
    await health.turn()
    assert count(controller) == 1
    epoch = cluster.brokers[BrokerId(2)].epoch
    await cluster.register(2)
    await until(lambda: all(one.epoch != epoch for one in controller.picture.brokers.values()))
    await health.turn()
    assert count(controller) == 0, "what it said in an earlier registration counts no more"


async def test_a_leader_that_commits_nothing_is_believed_whatever_the_reason(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    await create(controller, "t", (1, 2, 3))
    health = controller.health
    (key,) = controller.picture.partitions
    epoch = cluster.brokers[BrokerId(1)].epoch

    def waits(id: int, epoch: BrokerEpoch, *keys: PartitionKey) -> None:
        health.heard_of(CommitsWait(broker=BrokerId(id), epoch=epoch, keys=frozenset(keys)))

    waits(2, cluster.brokers[BrokerId(2)].epoch, key)
    await health.turn()
    assert count(controller) == 0, "it does not lead it"
    waits(1, epoch, key)
    await health.turn()
    assert count(controller) == 1
    assert (
        "nothing was committed" in (await describe_health(health, most=1)).troubled_partitions[0].not_writable_because
    )
    waits(1, epoch)
    await health.turn()
    assert count(controller) == 0


class CountedKeys(frozenset[PartitionKey]):
    """Counts how often somebody goes through all of them."""

    read = 0

    def __iter__(self) -> Iterator[PartitionKey]:
        CountedKeys.read += 1
        return super().__iter__()


def test_what_was_not_said_anew_is_not_gone_through_in_every_turn() -> None:
    picture = Cluster().with_broker(broker(1)).with_broker(broker(2))
    said = Writability(lambda: picture)
    numbers: dict[int, Sequence[int]] = {1: range(3), 2: range(2, 5)}
    keys = {id: CountedKeys(PartitionKey(TOPIC_ID, each) for each in numbers[id]) for id in numbers}

    def waits(id: int, keys: frozenset[PartitionKey]) -> None:
        said.heard_of(CommitsWait(broker=BrokerId(id), epoch=picture.brokers[BrokerId(id)].epoch, keys=keys))

    for id, every in keys.items():
        waits(id, every)
    assert sorted(said.turn()) == sorted([*keys[1], *keys[2]])
    before = CountedKeys.read
    assert not list(said.turn())
    assert CountedKeys.read == before
    waits(1, frozenset(sorted(keys[1])[1:]))
    assert list(said.turn()) == [PartitionKey(TOPIC_ID, 0)]
    assert [said.waits(PartitionKey(TOPIC_ID, each), BrokerId(1)) for each in range(4)] == [False, True, True, False]
    picture = picture.with_broker(broker(2, epoch=9))
    assert sorted(said.turn()) == sorted(keys[2]), "what it said in an earlier registration counts no more"


async def test_a_broker_that_turns_callers_away_is_told_of_for_as_long_as_it_says_so(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2)
    controller = await cluster.reign()
    health = controller.health

    def says(id: int, because: str) -> None:
        epoch = cluster.brokers[BrokerId(id)].epoch
        health.heard_of(ListenersSaid(broker=BrokerId(id), epoch=epoch, turn_away_because=because))

    async def problems() -> tuple[str, ...]:
        await health.turn()
        await health.turn()
        return tuple(
            one
            for one in health_view(await describe_health(health, most=1)).problems
            if "turns connections away" in one
        )

    says(1, "the certificate expired")
    assert await problems() == ("broker 1 turns connections away: the certificate expired",)
    says(1, "")
    assert await problems() == ()
    says(2, "too many")
    assert len(await problems()) == 1
    epoch = cluster.brokers[BrokerId(2)].epoch
    await cluster.register(2)
    await until(lambda: (known := controller.picture.brokers.get(BrokerId(2))) is not None and known.epoch != epoch)
    assert await problems() == (), "what it said in an earlier registration counts no more"
    told = [(one.kind, one.broker, one.detail) for one in cluster.recorded if isinstance(one, OtherEntry)]
    refused, taken = words.EVENT_KIND_CONNECTIONS_REFUSED, words.EVENT_KIND_CONNECTIONS_TAKEN
    assert [one for one in told if one[0] in {refused, taken}] == [
        (refused, 1, "the certificate expired"),
        (taken, 1, ""),
        (refused, 2, "too many"),
        (taken, 2, ""),
    ]


async def test_a_store_that_takes_no_writes_is_told_of_and_callers_do_not_wait_for_it(cluster: FakeCluster) -> None:
    stores: list[RefusingStore] = []

    def open_store(server: MemoryServer) -> MemoryStore:
        stores.append(RefusingStore(server))
        return stores[-1]

    cluster.open_store = open_store
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign(watches_store=True)
    await create(controller, "before", (1, 2, 3))
    (store,), watch = stores, controller.health.store
    assert watch is not None
    metrics = Metrics()
    show_controller(metrics, lambda: controller, cluster.clock)
    await watch.look()
    assert (watch.refuses_because, (await describe_health(controller.health, most=1)).store_trouble) == ("", "")
    store.failure = StoreFull(NO_SPACE)
    caught = asyncio.create_task(create(controller, "caught", (1, 2, 3)))
    await until(lambda: store.unanswered > 0)
    await watch.look()
    with pytest.raises(RegnumError, match="space exceeded") as late:
        await within(caught)
    assert late.value.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "it may be done yet"
    with pytest.raises(RegnumError, match=r"space exceeded.*nothing was changed") as refused:
        await create(controller, "during", (1, 2, 3))
    assert not refused.value.traits.retriable
    assert (await describe_health(controller.health, most=1)).store_trouble.endswith(f"nothing changed: {NO_SPACE}")
    shown = {one.instrument: list(one.numbers) for one in metrics.read()}
    assert shown[instruments.STORE_WRITES_REFUSED] == [((), 1)]

    store.failure = None
    await watch.look()
    await create(controller, "after", (1, 2, 3))
    await until(lambda: {"before", "caught", "after"} <= set(controller.picture.names))
    kinds = [one.kind for one in cluster.recorded if isinstance(one, OtherEntry)]
    assert kinds.count(words.EVENT_KIND_STORE_WRITES_REFUSED) == kinds.count(words.EVENT_KIND_STORE_WRITES_TAKEN) == 1


async def test_a_store_that_does_not_answer_is_given_a_moment(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    store = RefusingStore(cluster.server)
    said: list[str] = []
    watch = StoreWatch(store, cluster.clock, said.append)
    store.failure = ConnectionLoss("no quorum")
    await watch.look()
    assert said == []
    assert isinstance(cluster.clock, SkippingClock)
    cluster.clock.skipped_s += FAILING_S
    await watch.look()
    await watch.look()
    assert said == ["no quorum"]
    store.failure = None
    await watch.look()
    assert said == ["no quorum", ""]
    watch.took_s = 2.5
    assert watch.trouble == "is slow: a write takes 2.5 s, and failovers as long"
