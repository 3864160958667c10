"""What a controller finds to be wrong, and what has been for too long."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import events_pb2 as words
from regnum_election.controller import Controller
from regnum_election.decisions.cluster import Partition
from regnum_election.health.gauges import show_controller
from regnum_election.health.messages import PARTITIONS_NAMED_MAX, describe_health, partitions_named
from regnum_election.health.watch import HealthWatch, Limits
from regnum_election.history.events import Entry, OtherEntry
from regnum_election.reign.events import ClockCompared
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model.ids import BrokerId, PartitionKey, TopicId
from regnum_model.topic_filter import Trouble
from regnum_model.wire_times import seconds_of
from regnum_service.errors import RegnumError
from regnum_telemetry import conventions
from regnum_telemetry.instruments import Instrument
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Labels, Metrics
from regnum_testing.clock import SkippingClock
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.span_recorder import SpanRecorder, recorded_spans
from regnum_testing.waiting import DEADLINE_S, until
from structlog.testing import capture_logs

PARTITIONS = 6


@pytest.fixture
def recorder() -> Iterator[SpanRecorder]:
    with recorded_spans() as recorder:
        yield recorder


@pytest.fixture
async def cluster(recorder: SpanRecorder) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster(SkippingClock())
    yield cluster
    await cluster.close()


def skip(cluster: FakeCluster, seconds: float) -> None:
    assert isinstance(cluster.clock, SkippingClock)
    cluster.clock.skipped_s += seconds


async def reign_with_topic(cluster: FakeCluster, *ids: int) -> tuple[Controller, TopicId]:
    await cluster.begin(*(ids or (1, 2, 3)))
    controller = await cluster.reign()
    assignment = tuple((number, tuple(map(BrokerId, (1, 2, 3)))) for number in range(PARTITIONS))
    request = TopicRequest(name="t", partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    (outcome,) = (
        await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    ).outcomes
    assert isinstance(outcome, Created)
    await until(lambda: not controller.health.context.dispatch.outstanding(), what="everything is acknowledged")
    return controller, outcome.topic_id


def entry_kind(entry: Entry) -> int:
    return entry.kind if isinstance(entry, OtherEntry) else words.EVENT_KIND_UNSPECIFIED


def values(metrics: Metrics, instrument: Instrument) -> dict[Labels, float]:
    (reading,) = [reading for reading in metrics.read() if reading.instrument is instrument]
    return dict(reading.numbers)


async def test_a_leader_that_does_not_acknowledge_its_order_is_an_event_a_metric_and_an_answer(
    cluster: FakeCluster, recorder: SpanRecorder
) -> None:
    controller, _ = await reign_with_topic(cluster)
    metrics = Metrics()
    show_controller(metrics, lambda: controller, cluster.clock)
    heir = cluster.brokers[BrokerId(2)]
    heir.held = asyncio.Event()
    cluster.kill(1)
    dispatch = controller.health.context.dispatch
    # Broker 3 has its orders and acknowledges them; broker 2 is to lead all, and says nothing.
    await until(lambda: [(one.broker, one.count) for one in dispatch.outstanding()] == [(2, PARTITIONS)])
    await controller.health.turn()
    assert controller.health.overdue == []
    assert values(metrics, instruments.ORDERS_OUTSTANDING) == {("2",): PARTITIONS}
    assert values(metrics, instruments.ORDERS_OVERDUE) == {(): 0}

    skip(cluster, 11.0)
    with capture_logs() as logs:
        await controller.health.turn()
        await controller.health.turn()
    (said,) = [line for line in logs if line["event"] == "orders not acknowledged"]
    assert (said["log_level"], said["broker"], said["orders"], said["to_lead"]) == (
        "warning",
        2,
        PARTITIONS,
        PARTITIONS,
    )
    assert len(set(said["first"]) & {f"t/{number}" for number in range(PARTITIONS)}) == 5
    assert said["oldest_age_s"] >= 11.0
    (span,) = [span for span in recorder.spans if span.name == conventions.ORDERS_OVERDUE]
    (failover,) = [span for span in recorder.spans if span.name == conventions.CHANGE_OPENED]
    (event,) = [entry for entry in cluster.recorded if entry_kind(entry) == words.EVENT_KIND_ORDERS_OVERDUE]
    assert isinstance(event, OtherEntry)
    assert (event.broker, event.count, failover.trace_id in event.reason.traceparent) == (2, PARTITIONS, True)
    assert span.trace_id == failover.trace_id
    assert values(metrics, instruments.ORDERS_OVERDUE) == {(): PARTITIONS}
    assert values(metrics, instruments.ORDERS_OLDEST_AGE)[("2",)] >= 11.0
    answer = await describe_health(controller.health, most=20)
    (overdue,) = answer.overdue_orders
    assert (overdue.broker_id, overdue.orders) == (2, PARTITIONS)
    assert seconds_of(overdue.oldest_age) >= 11.0
    assert {(one.topic, one.leader) for one in overdue.partitions} == {("t", True)}
    assert len({one.partition for one in overdue.partitions}) == 5
    assert {broker.broker_id: broker.orders_outstanding for broker in answer.brokers} == {1: 0, 2: PARTITIONS, 3: 0}
    assert {broker.broker_id: broker.registered for broker in answer.brokers} == {1: False, 2: True, 3: True}

    heir.held.set()
    await until(lambda: not dispatch.outstanding())
    with capture_logs() as logs:
        await controller.health.turn()
    assert [line["broker"] for line in logs if line["event"] == "orders acknowledged again"] == [2]
    assert values(metrics, instruments.ORDERS_OUTSTANDING) == {}


async def test_an_order_of_a_full_set_grows_old_too_and_ends_with_its_last_part(cluster: FakeCluster) -> None:
    controller, _ = await reign_with_topic(cluster)
    dispatch = controller.health.context.dispatch
    broker = await cluster.register(3)
    broker.held = asyncio.Event()
    await until(lambda: [(one.broker, one.count) for one in dispatch.outstanding()] == [(3, PARTITIONS)])
    skip(cluster, 20.0)
    await controller.health.turn()
    (overdue,) = controller.health.overdue
    assert (overdue.broker, overdue.count, len(overdue.keys)) == (3, PARTITIONS, PARTITIONS)
    broker.held.set()
    await until(lambda: not dispatch.outstanding())


async def test_a_broker_whose_clock_differs_is_told_of_once_and_described_while_it_is_registered(
    cluster: FakeCluster,
) -> None:
    controller, _ = await reign_with_topic(cluster)
    epoch = controller.picture.brokers[BrokerId(2)].epoch

    def say(ahead_ms: int, held_back: bool) -> None:
        controller.health.heard_of(
            ClockCompared(broker=BrokerId(2), epoch=epoch, ahead_ms=ahead_ms, expiry_held_back=held_back)
        )

    say(400_000, True)
    with capture_logs() as logs:
        await controller.health.turn()
        await controller.health.turn()
    assert [(line["broker"], line["ahead_s"]) for line in logs if line["event"] == "wall clock differs"] == [(2, 400)]
    before_ms = cluster.clock.wall_ms()
    answer = await describe_health(controller.health, most=20)
    assert before_ms <= answer.controller_wall_clock_ms <= cluster.clock.wall_ms()
    assert [broker.broker_id for broker in answer.brokers if broker.HasField("clock_ahead_ms")] == [2]
    assert [(one.broker_id, one.clock_ahead_ms) for one in answer.brokers if one.expiry_held_back] == [(2, 400_000)]
    say(0, False)
    with capture_logs() as logs:
        await controller.health.turn()
    assert [line["broker"] for line in logs if line["event"] == "wall clock differs no more"] == [2]
    say(400_000, True)
    await cluster.register(2)
    await until(
        lambda: any(one.id == 2 and one.epoch != epoch for one in controller.picture.brokers.values()),
        what="another registration",
    )
    assert controller.health.clock_of(BrokerId(2)) is None, "it has said nothing yet"


async def test_a_broker_that_is_gone_owes_nothing(cluster: FakeCluster) -> None:
    controller, _ = await reign_with_topic(cluster)
    broker = cluster.brokers[BrokerId(3)]
    broker.held = asyncio.Event()
    cluster.kill(1)
    dispatch = controller.health.context.dispatch
    await until(lambda: [one.broker for one in dispatch.outstanding()] == [3])
    cluster.kill(3)
    await until(lambda: not dispatch.outstanding())
    assert BrokerId(3) not in controller.picture.brokers


async def test_partitions_in_trouble_are_counted_named_and_told_of_once(
    cluster: FakeCluster, recorder: SpanRecorder
) -> None:
    controller, _ = await reign_with_topic(cluster)
    book = controller.health.book
    await until(lambda: controller.health.looked_at_all)
    assert not any(book.count(trouble) for trouble in Trouble)
    cluster.kill(3)
    await until(lambda: book.count(Trouble.UNDER_REPLICATED) == PARTITIONS)
    assert book.count(Trouble.UNDER_MIN_ISR) == 0
    cluster.kill(2)
    await until(lambda: book.count(Trouble.UNDER_MIN_ISR) == PARTITIONS)
    assert book.count(Trouble.OFFLINE) == 0
    cluster.kill(1)
    await until(lambda: book.count(Trouble.OFFLINE) == PARTITIONS)

    metrics = Metrics()
    show_controller(metrics, lambda: controller, cluster.clock)
    skip(cluster, 31.0)
    with capture_logs() as logs:
        await controller.health.turn()
        await controller.health.turn()
    told = {line["trouble"]: line for line in logs if line["event"] == "unhealthy partitions for long"}
    assert len([line for line in logs if line["event"] == "unhealthy partitions for long"]) == len(told) == 3
    assert (told["offline"]["partitions"], len(told["offline"]["first"])) == (PARTITIONS, 5)
    events = [entry for entry in cluster.recorded if entry_kind(entry) == words.EVENT_KIND_TROUBLE_OVERDUE]
    assert {entry.detail.partition(" ")[0] for entry in events if isinstance(entry, OtherEntry)} == told.keys()
    spans = [span for span in recorder.spans if span.name == conventions.TROUBLE_OVERDUE]
    assert {span.attributes[conventions.TROUBLE] for span in spans} == told.keys()
    assert values(metrics, instruments.PARTITIONS_TROUBLED_LONG) == {
        ("offline",): PARTITIONS,
        ("under-min-isr",): PARTITIONS,
        ("not-writable",): 0,
        ("under-replicated",): PARTITIONS,
    }
    answer = await describe_health(controller.health, most=2)
    assert {(one.partitions, one.for_long) for one in answer.troubles if one.partitions} == {(PARTITIONS, PARTITIONS)}
    assert [(one.topic, one.state.leader) for one in answer.troubled_partitions] == [("t", -1)] * 2
    assert answer.complete

    for id in (1, 2, 3):
        await cluster.register(id)
    await until(lambda: book.count(Trouble.OFFLINE) == 0, what="leaders are back with their brokers")
    assert values(metrics, instruments.PARTITIONS_TROUBLED_LONG)[("offline",)] == 0


async def test_a_metadata_process_that_takes_no_changes_is_told_of(cluster: FakeCluster) -> None:
    controller, _ = await reign_with_topic(cluster)
    metrics, process = Metrics(), cluster.metadata
    show_controller(metrics, lambda: controller, cluster.clock)
    await until(lambda: controller.health.context.metadata.positions == [(process.id, 0)])
    process.down = True
    cluster.kill(3)
    await until(lambda: controller.health.context.metadata.failing(cluster.clock.monotonic()))
    await controller.health.turn()
    assert values(metrics, instruments.METADATA_PROCESSES_FAILING) == {(): 0}, "it may be starting anew"

    skip(cluster, 11.0)
    await controller.health.turn()
    assert values(metrics, instruments.METADATA_PROCESSES_FAILING) == {(): 1}
    (told,) = (await describe_health(controller.health, most=20)).metadata_processes
    assert told.takes_no_changes_because.startswith("BROKER_NOT_AVAILABLE: ")

    process.down = False
    await until(lambda: not controller.health.context.metadata.failing(cluster.clock.monotonic()))
    await controller.health.turn()
    assert values(metrics, instruments.METADATA_PROCESSES_FAILING) == {(): 0}
    (told,) = (await describe_health(controller.health, most=20)).metadata_processes
    assert (told.takes_no_changes_because, told.versions_behind) == ("", 0)


async def test_a_topic_that_is_deleted_is_no_trouble_any_more(cluster: FakeCluster) -> None:
    controller, topic_id = await reign_with_topic(cluster)
    cluster.kill(3)
    book = controller.health.book
    await until(lambda: book.count(Trouble.UNDER_REPLICATED) == PARTITIONS)
    request = DeletionRequest(name="t", topic_id=topic_id, mutation=None)
    await controller.topics.delete([request], wait_s=DEADLINE_S, account=ANYBODY)
    await until(lambda: book.count(Trouble.UNDER_REPLICATED) == 0)
    assert book.keys == ()


async def test_the_next_reign_finds_what_is_wrong_by_itself(cluster: FakeCluster) -> None:
    controller, _ = await reign_with_topic(cluster)
    cluster.kill(3)
    await until(lambda: controller.health.book.count(Trouble.UNDER_REPLICATED) == PARTITIONS)
    await cluster.end_reign()
    following = await cluster.reign(2)
    await until(lambda: following.health.looked_at_all)
    assert following.health.book.count(Trouble.UNDER_REPLICATED) == PARTITIONS
    assert following.health.book.count_long(Trouble.UNDER_REPLICATED) == 0


async def test_a_reign_that_is_over_keeps_nothing_of_what_was_wrong(cluster: FakeCluster) -> None:
    controller, _ = await reign_with_topic(cluster)
    cluster.kill(3)
    await until(lambda: controller.health.book.count(Trouble.UNDER_REPLICATED) == PARTITIONS)
    await cluster.end_reign()
    await until(lambda: controller.health.book.keys == ())
    assert not any(controller.health.book.count(trouble) for trouble in Trouble)


async def test_a_reign_that_is_over_shows_nothing(cluster: FakeCluster) -> None:
    controller, _ = await reign_with_topic(cluster)
    reigning: list[Controller | None] = [controller]
    metrics = Metrics()
    show_controller(metrics, lambda: reigning[0], cluster.clock)
    assert values(metrics, instruments.CONTROLLER_ACTIVE) == {(): 1}
    assert values(metrics, instruments.CONTROLLER_EPOCH) == {(): controller.reign.epoch}
    assert values(metrics, instruments.CLUSTER_PARTITIONS) == {(): PARTITIONS}
    reigning[0] = None
    assert values(metrics, instruments.CONTROLLER_ACTIVE) == {(): 0}
    for instrument in (instruments.CONTROLLER_EPOCH, instruments.PARTITIONS_TROUBLED, instruments.EVENT_QUEUE_DEPTH):
        assert values(metrics, instrument) == {}


class Counting(dict[PartitionKey, Partition]):
    """A picture's partitions that count how often one is looked at."""

    looks = 0

    def get(self, key: PartitionKey, default: Any = None) -> Any:
        self.looks += 1
        return super().get(key, default)


async def test_while_all_is_well_a_look_at_the_clock_looks_at_no_partition() -> None:
    partitions = Counting()
    picture = SimpleNamespace(
        partitions=partitions, brokers={}, settings=object(), topics={}, names={}, of_topic=lambda _id: ()
    )
    context: Any = SimpleNamespace(
        picture=picture,
        clock=SkippingClock(),
        reign=SimpleNamespace(epoch=1),
        dispatch=SimpleNamespace(outstanding=list, misdirected=dict),
        metadata=SimpleNamespace(tell_of_changes=lambda _watch: None, positions=[], failing=lambda _before_s: {}),
        removals=SimpleNamespace(damaged={}),
        **{kind: {} for kind in ("refused", "incomplete", "edited", "spoiled")},
    )
    watch = HealthWatch(context, Limits())
    running = asyncio.create_task(watch.run())
    await until(lambda: watch.looked_at_all)
    for _ in range(10):
        await watch.turn()
    assert partitions.looks == 0
    watch.changed([PartitionKey(TopicId("t" * 22), 3)], [])
    assert partitions.looks == 1
    # Settings that changed concern nothing that is whole.
    picture.settings = object()
    await watch.turn()
    assert partitions.looks == 1
    # Very many that changed at once wait for the next turn, which takes them in steps.
    watch.changed([PartitionKey(TopicId("t" * 22), number) for number in range(2_500)], [])
    assert partitions.looks == 1
    await watch.turn()
    assert partitions.looks == 2_501
    running.cancel()
    await asyncio.wait([running])


def test_more_partitions_than_may_be_named_are_refused() -> None:
    assert partitions_named(admin_pb2.DescribeHealthRequest()) == 20
    assert (
        partitions_named(admin_pb2.DescribeHealthRequest(partitions_max=PARTITIONS_NAMED_MAX)) == PARTITIONS_NAMED_MAX
    )
    for wrong in (-1, PARTITIONS_NAMED_MAX + 1, 2**31 - 1):
        with pytest.raises(RegnumError, match="at most 1000"):
            partitions_named(admin_pb2.DescribeHealthRequest(partitions_max=wrong))


async def test_a_controller_that_believes_callers_too_easily_says_so(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign(access_warnings=("processes are not told apart",))
    assert list((await describe_health(controller.health, most=1)).access_warnings) == ["processes are not told apart"]


async def test_what_is_known_against_the_store_is_told(cluster: FakeCluster) -> None:
    await cluster.begin(1)
    controller = await cluster.reign(store_warnings=("asks nobody who connects",))
    assert list((await describe_health(controller.health, most=1)).store_warnings) == ["asks nobody who connects"]
