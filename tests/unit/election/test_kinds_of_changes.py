"""Every kind of change of leadership is one trace: root, orders, events."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from regnum.replication.v1 import control_pb2
from regnum_election.controller import Controller
from regnum_election.history.events import PartitionsEntry
from regnum_election.leaders.balance import balance_leaders
from regnum_election.leaders.elections import ElectionRequest, ElectionType
from regnum_election.recovery.calls import RecoveryRequest
from regnum_election.reign.events import BrokerDead, FirstAcknowledgements, Mutation, ReplicasOffline, nobody_waits
from regnum_election.reign.reign import Predecessor
from regnum_election.reign.witnesses import Sign, Signs
from regnum_model.ids import BrokerEpoch, BrokerId, ElectionId, LeaderEpoch, PartitionKey, TopicId
from regnum_telemetry import conventions, propagation, tracing
from regnum_testing.moving import ask, catch_up
from regnum_testing.reigning import FakeCluster
from regnum_testing.span_recorder import RecordedSpan, SpanRecorder, recorded_spans
from regnum_testing.succession_stage import assigned, create
from regnum_testing.waiting import DEADLINE_S, until

PARTITIONS = 3


@pytest.fixture
def recorder() -> Iterator[SpanRecorder]:
    with recorded_spans() as recorder:
        yield recorder


@pytest.fixture
async def cluster(recorder: SpanRecorder) -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


async def begun(cluster: FakeCluster) -> tuple[Controller, TopicId]:
    """A topic of which broker 1 leads all partitions, with broker 2 and 3 in sync."""
    await cluster.begin(1, 2, 3)
    controller = await cluster.reign()
    (id,) = await create(controller, assigned("t", *([(1, 2, 3)] * PARTITIONS)))
    return controller, id


async def root(recorder: SpanRecorder, kind: str) -> RecordedSpan:
    """The only root of that kind."""

    def found() -> list[RecordedSpan]:
        roots = recorder.named(conventions.LEADERSHIP_CHANGE)
        return [span for span in roots if span.attributes[conventions.CHANGE_KIND] == kind]

    await until(lambda: bool(found()))
    (one,) = found()
    return one


async def led_by(controller: Controller, id: TopicId, leader: int) -> None:
    def led() -> bool:
        held = (controller.picture.partitions[PartitionKey(id, number)].held for number in range(PARTITIONS))
        return all(one is not None and one.state.leader == leader for one in held)

    await until(led)


async def stop(cluster: FakeCluster, controller: Controller, id: TopicId) -> None:
    broker = cluster.brokers[BrokerId(1)]
    await controller.brokers.controlled_shutdown(broker.id, broker.epoch, wait_s=DEADLINE_S)


async def elect(cluster: FakeCluster, controller: Controller, id: TopicId) -> None:
    await _displaced(cluster, controller, id)
    request = ElectionRequest(type=ElectionType.PREFERRED, topics=(), validate_only=False, who="a test")
    await controller.leaders.elections.elect(request, wait_s=DEADLINE_S)


async def balance(cluster: FakeCluster, controller: Controller, id: TopicId) -> None:
    await _displaced(cluster, controller, id)
    look_at_balance(controller)


def look_at_balance(controller: Controller) -> None:
    steps = balance_leaders(controller.health.context)
    controller.queue.put_mutation(Mutation(name="leader balance", steps=steps, abandon=nobody_waits))


async def move(cluster: FakeCluster, controller: Controller, id: TopicId) -> None:
    del id
    assert await ask(controller, "t", dict.fromkeys(range(PARTITIONS), (2, 3))) == [None] * PARTITIONS


async def lose_disk(cluster: FakeCluster, controller: Controller, id: TopicId) -> None:
    keys = frozenset(PartitionKey(id, number) for number in range(PARTITIONS))
    cluster.brokers[BrokerId(1)].offline |= keys
    controller.queue.put(ReplicasOffline(broker=BrokerId(1), epoch=cluster.brokers[BrokerId(1)].epoch, keys=keys))


async def recover(cluster: FakeCluster, controller: Controller, id: TopicId) -> None:
    await _lose_all_logs(cluster, controller, id)
    request = RecoveryRequest(topic="t", partitions=(), first_partition=0, accept_loss=True, who="a test")
    await controller.recoveries.recover(request, wait_s=DEADLINE_S)


async def elect_uncleanly(cluster: FakeCluster, controller: Controller, id: TopicId) -> None:
    await _lose_all_logs(cluster, controller, id)
    request = ElectionRequest(type=ElectionType.UNCLEAN, topics=(("t", ()),), validate_only=False, who="a test")
    await controller.leaders.elections.elect(request, wait_s=DEADLINE_S)


async def _lose_all_logs(cluster: FakeCluster, controller: Controller, id: TopicId) -> None:
    """All brokers lose power at once: their logs cannot be proved complete."""
    for broker in (1, 2, 3):
        cluster.kill(broker)
    await led_by(controller, id, -1)
    for broker in (1, 2, 3):
        back = await cluster.register(broker, log_id=f"after-the-loss-{broker}")
        for number in range(PARTITIONS):
            back.logs[PartitionKey(id, number)] = control_pb2.ReplicaLogInfo(log_end_offset=broker)
    # A broker is in the picture a moment before it can be asked; one with the full set can be.
    await until(lambda: all(cluster.brokers[BrokerId(id)].requests for id in (1, 2, 3)))


async def _displaced(cluster: FakeCluster, controller: Controller, id: TopicId) -> None:
    """Broker 1 stops, comes back, and is in sync again without leading."""
    await stop(cluster, controller, id)
    cluster.kill(1)
    await until(lambda: BrokerId(1) not in controller.picture.brokers)
    await cluster.register(1)
    await until(lambda: BrokerId(1) in controller.picture.brokers)
    for number in range(PARTITIONS):
        await catch_up(cluster, "t", number, 1)
    await until(
        lambda: all(
            (held := controller.picture.partitions[PartitionKey(id, number)].held) is not None
            and BrokerId(1) in held.state.isr
            for number in range(PARTITIONS)
        )
    )


@pytest.mark.parametrize(
    ("act", "kind", "cause", "victim"),
    [
        (stop, conventions.KIND_CONTROLLED_SHUTDOWN, conventions.CAUSE_REQUEST, 1),
        (elect, conventions.KIND_ELECTION, conventions.CAUSE_REQUEST, 2),
        (balance, conventions.KIND_BALANCE, conventions.CAUSE_DECISION, 2),
        (move, conventions.KIND_REASSIGNMENT, conventions.CAUSE_DECISION, 1),
        (recover, conventions.KIND_RECOVERY, conventions.CAUSE_REQUEST, None),
        (elect_uncleanly, conventions.KIND_UNCLEAN, conventions.CAUSE_REQUEST, None),
        (lose_disk, conventions.KIND_BROKER_FAILURE, conventions.CAUSE_REPLICAS_OFFLINE, 1),
    ],
)
async def test_a_planned_change_is_one_trace_that_its_events_and_orders_are_in(
    cluster: FakeCluster,
    recorder: SpanRecorder,
    act: Callable[[FakeCluster, Controller, TopicId], Awaitable[None]],
    kind: str,
    cause: str,
    victim: int | None,
) -> None:
    controller, id = await begun(cluster)
    asked = tracing.now_unix_nano()
    await act(cluster, controller, id)
    found = await root(recorder, kind)
    told = found.attributes
    assert found.parent == ""
    assert found.begin_unix_nano >= asked
    assert (told[conventions.CAUSE], told[conventions.COMPLETE]) == (cause, True)
    assert told.get(conventions.VICTIM) == victim
    assert told.get(conventions.VICTIM_KIND) == (None if victim is None else "broker")
    assert told[conventions.PARTITIONS] == PARTITIONS
    assert (told[conventions.CONTROLLER_ID], told[conventions.CONTROLLER_EPOCH]) == (1, 1)
    assert told.get(conventions.LEGACY_NAME) == (conventions.RECOVERY if victim is None else None)
    # Followers are told as well, and nothing waits for them.
    await until(lambda: all(span.end_unix_nano for span in recorder.named(conventions.ORDER)))
    trace = [span for span in recorder.spans if span.trace_id == found.trace_id]
    (opened,) = [span for span in trace if span.name == conventions.CHANGE_OPENED]
    assert (opened.parent, opened.begin_unix_nano) == (found.span_id, opened.end_unix_nano)
    # The orders: one for each broker that was told.
    orders = [span for span in trace if span.name == conventions.ORDER]
    assert {span.parent for span in orders} == {found.span_id}
    assert {span.attributes[conventions.BROKER] for span in orders} >= {2, 3}
    assert all(span.attributes[conventions.COMPLETE] for span in orders)
    # Its calls are below it.
    for order in orders:
        assert order.context in cluster.brokers[BrokerId(int(order.attributes[conventions.BROKER]))].places
    assert all(span.end_unix_nano is not None for span in trace)
    names = {span.name for span in trace}
    assert conventions.STORE_WRITE in names
    # What is written down says which trace it is in.
    entries = [one for one in cluster.recorded if isinstance(one, PartitionsEntry)]
    moved = [
        one for one in entries if any(row.before is None or row.after.leader != row.before.leader for row in one.rows)
    ]
    place = propagation.parse(moved[-1].reason.traceparent)
    assert place is not None
    assert place.trace_id == found.trace_id


async def test_what_moves_no_leader_leaves_no_trace(cluster: FakeCluster, recorder: SpanRecorder) -> None:
    controller, id = await begun(cluster)
    broker = cluster.brokers[BrokerId(3)]
    await controller.brokers.controlled_shutdown(broker.id, broker.epoch, wait_s=DEADLINE_S)
    request = ElectionRequest(type=ElectionType.PREFERRED, topics=(), validate_only=False, who="a test")
    await controller.leaders.elections.elect(request, wait_s=DEADLINE_S)
    look_at_balance(controller)
    # It was carried out: broker 3 has left the in-sync sets.
    assert all(
        (held := controller.picture.partitions[PartitionKey(id, number)].held) is not None and held.state.isr == (1, 2)
        for number in range(PARTITIONS)
    )
    assert recorder.spans == []


async def test_a_failure_waits_for_first_acknowledgements_that_leaders_promise(
    cluster: FakeCluster, recorder: SpanRecorder
) -> None:
    controller, id = await begun(cluster)
    keys = [PartitionKey(id, number) for number in range(PARTITIONS)]
    cluster.brokers[BrokerId(2)].reports = set(keys[:2])
    cluster.kill(1)
    await led_by(controller, id, 2)
    await until(lambda: all(span.end_unix_nano for span in recorder.named(conventions.ORDER)))
    assert recorder.named(conventions.LEADERSHIP_CHANGE) == []
    held = controller.picture.partitions[keys[0]].held
    assert held is not None
    epoch, last = held.state.leader_epoch, tracing.now_unix_nano()
    said = tuple((key, epoch, last - number) for number, key in enumerate(keys))
    controller.brokers.first_acknowledged(FirstAcknowledgements(acknowledged=said[1:]))
    controller.brokers.first_acknowledged(FirstAcknowledgements(acknowledged=said[:1]))
    found = await root(recorder, conventions.KIND_BROKER_FAILURE)
    assert found.attributes[conventions.ACKNOWLEDGED_UNIX_NANO] == last
    assert int(found.end_unix_nano or 0) > last
    assert found.attributes[conventions.LEGACY_NAME] == conventions.FAILOVER


async def test_missed_probes_and_what_others_saw_are_in_the_trace_of_a_silence(
    cluster: FakeCluster, recorder: SpanRecorder
) -> None:
    controller, _ = await begun(cluster)
    noticed = tracing.now_unix_nano() - 2_000_000_000
    dead = cluster.brokers[BrokerId(1)]
    dead.down = True
    controller.queue.put(
        BrokerDead(
            broker=dead.id,
            epoch=dead.epoch,
            registration=dead.registration,
            evidence="probes unanswered",
            cause=conventions.CAUSE_SILENCE,
            noticed_unix_nano=noticed,
            heard_unix_nano=noticed - 80_000_000,
            probe_sent_unix_nano=noticed + 1,
        )
    )
    found = await root(recorder, conventions.KIND_BROKER_FAILURE)
    assert found.begin_unix_nano == noticed - 80_000_000
    assert found.attributes[conventions.FAILED_SEEN_BY] == "last sign of life 1"
    missed, undetected = recorder.one(conventions.PROBE_MISSED), recorder.one(conventions.UNDETECTED)
    assert (missed.parent, missed.begin_unix_nano) == (found.span_id, noticed + 1)
    assert (undetected.begin_unix_nano, undetected.end_unix_nano) == (found.begin_unix_nano, noticed)


class _Seen:
    """Witnesses of the end of controller 9 and of broker 1."""

    def __init__(self, at_unix_nano: int) -> None:
        self.at_unix_nano = at_unix_nano

    def of_broker(self, broker: BrokerId, epoch: BrokerEpoch) -> Signs:
        del epoch
        return Signs(broken=(Sign(self.at_unix_nano, "follower fetch 2"),) if broker == 1 else ())

    def of_controller(self, id: ElectionId) -> Signs:
        return Signs(broken=(Sign(self.at_unix_nano + 1, "lifeline 2"),) if id == 9 else ())


async def test_a_succession_does_not_wait_for_a_broker_that_is_fenced_and_both_are_linked(
    cluster: FakeCluster, recorder: SpanRecorder
) -> None:
    """Broker 1 and the controller die together; the successor does not know that of broker 1 when it begins."""
    _, id = await begun(cluster)
    await cluster.end_reign()
    dead = cluster.brokers[BrokerId(1)]
    dead.down = True
    noticed = tracing.now_unix_nano()
    cluster.witnesses = _Seen(noticed - 4_000_000)
    before = Predecessor(
        id=ElectionId(9),
        cause=conventions.CAUSE_LIFELINE,
        noticed_unix_nano=noticed,
        detected_unix_nano=noticed + 1,
        fenced_unix_nano=noticed + 2,
    )
    controller = await cluster.reign(2, predecessor=before)
    # All but broker 1 have acknowledged their full sets.
    dispatch = controller.health.context.dispatch
    await until(lambda: [one.broker for one in dispatch.outstanding()] == [1])
    fenced = tracing.now_unix_nano()
    controller.queue.put(
        BrokerDead(
            broker=dead.id,
            epoch=dead.epoch,
            registration=dead.registration,
            evidence="test",
            cause=conventions.CAUSE_LIFELINE,
            noticed_unix_nano=fenced,
        )
    )
    await led_by(controller, id, 2)
    failure = await root(recorder, conventions.KIND_BROKER_FAILURE)
    succession = await root(recorder, conventions.KIND_SUCCESSION)
    assert succession.attributes[conventions.COMPLETE] is True
    assert (succession.attributes[conventions.VICTIM_KIND], succession.attributes[conventions.VICTIM]) == (
        "controller",
        9,
    )
    # Broker 1 is not waited for once it is fenced, and the time that took is not the succession's.
    assert succession.end_unix_nano == succession.attributes[conventions.DISPATCHED_UNIX_NANO]
    assert int(succession.end_unix_nano or 0) <= fenced
    assert succession.begin_unix_nano == noticed - 4_000_000 + 1
    assert failure.begin_unix_nano == noticed - 4_000_000
    assert succession.context in failure.links
    assert failure.context in succession.links


async def test_an_order_given_anew_by_another_change_leaves_the_first(
    cluster: FakeCluster, recorder: SpanRecorder
) -> None:
    controller, id = await begun(cluster)
    # Broker 3 answers nothing until both are over.
    slow = cluster.brokers[BrokerId(3)]
    slow.held = asyncio.Event()
    await stop(cluster, controller, id)
    await led_by(controller, id, 2)
    cluster.kill(2)
    await led_by(controller, id, 3)
    slow.held.set()
    failure = await root(recorder, conventions.KIND_BROKER_FAILURE)
    await root(recorder, conventions.KIND_CONTROLLED_SHUTDOWN)
    told = [span for span in recorder.named(conventions.ORDER) if span.attributes[conventions.BROKER] == 3]
    assert [span.trace_id == failure.trace_id for span in told] == [False, True]
    await until(lambda: all(span.end_unix_nano for span in told))
    assert LeaderEpoch(2) == controller.picture.partitions[PartitionKey(id, 0)].held.state.leader_epoch  # type: ignore[union-attr]


async def test_leaders_that_stay_are_told_of_a_dead_follower_within_its_trace(
    cluster: FakeCluster, recorder: SpanRecorder
) -> None:
    """What is appended waits for it, whether or not this controller knows who was busy."""
    controller, _ = await begun(cluster)
    dead = cluster.brokers[BrokerId(3)]
    controller.queue.put(
        BrokerDead(
            broker=dead.id,
            epoch=dead.epoch,
            registration=dead.registration,
            evidence="test",
            cause=conventions.CAUSE_LIFELINE,
            noticed_unix_nano=tracing.now_unix_nano(),
        )
    )
    found = await root(recorder, conventions.KIND_BROKER_FAILURE)
    assert found.attributes[conventions.PARTITIONS] == 0
    places = cluster.brokers[BrokerId(1)].places

    def told() -> bool:
        parsed = (propagation.parse(place) for place in places)
        return any(place is not None and place.trace_id == found.trace_id for place in parsed)

    await until(told)


async def test_leaders_that_come_with_a_broker_that_returns_are_one_change(
    cluster: FakeCluster, recorder: SpanRecorder
) -> None:
    controller, id = await begun(cluster)
    for broker in (1, 2, 3):
        cluster.kill(broker)
    await led_by(controller, id, -1)
    await cluster.register(3)
    await led_by(controller, id, 3)
    found = await root(recorder, conventions.KIND_RETURN)
    told = found.attributes
    assert (told[conventions.CAUSE], told[conventions.COMPLETE]) == (conventions.CAUSE_REGISTERED, True)
    assert told[conventions.PARTITIONS] == PARTITIONS
    assert conventions.VICTIM not in told, "nothing led them before"
    (order,) = [span for span in recorder.named(conventions.ORDER) if span.trace_id == found.trace_id]
    assert (order.parent, order.attributes[conventions.BROKER]) == (found.span_id, 3)
    # A broker that returns and gets nothing is no change.
    await cluster.register(2)
    await until(lambda: BrokerId(2) in controller.picture.brokers and bool(cluster.brokers[BrokerId(2)].requests))
    await root(recorder, conventions.KIND_RETURN)
