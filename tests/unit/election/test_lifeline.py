"""The lifelines' end at the controller, over real gRPC on its own thread."""

import asyncio
import socket
from collections.abc import AsyncIterator

import grpc
import pytest
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_election.brokers.lifeline_thread import LifelineThread
from regnum_election.decisions.cluster import Broker
from regnum_election.lifelines.beat_news import REASON_MAX
from regnum_election.reign.events import BrokerDead, ClockCompared, ClusterEvent, Hint, IsrsWritten, ReplicasOffline
from regnum_election.reign.writability import CommitsWait, DiskSaid
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, PartitionKey, TopicId
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.loop_lag import LoopLag
from regnum_service.supervisor import Supervisor
from regnum_testing.election_values import broker
from regnum_testing.ports import unused_port
from regnum_testing.waiting import until, within


class Thread:
    """A lifeline thread and what it reports."""

    def __init__(self) -> None:
        self.events: list[tuple[int, ClusterEvent | Hint]] = []
        self.address = Address(host="127.0.0.1", port=unused_port())
        clock = SystemClock()
        self.supervisor = Supervisor("test")
        self.thread = LifelineThread(
            self.address,
            clock=clock,
            supervisor=self.supervisor,
            main_lag=LoopLag(clock),
            session_connected=lambda: True,
            session_timeout_s=6.0,
            report=lambda epoch, event: self.events.append((epoch, event)),
            fences=True,
        )


@pytest.fixture
async def lifelines() -> AsyncIterator[Thread]:
    thread = Thread()
    await thread.thread.start()
    yield thread
    await thread.thread.stop()
    await thread.supervisor.unwind()
    assert thread.supervisor.failure is None


class FakeBrokerEnd:
    """A broker's end: a listening port and a lifeline that answers probes."""

    def __init__(self, lifelines: Thread, id: int) -> None:
        self.channel = open_channel(lifelines.address)
        self.server = socket.create_server(("127.0.0.1", unused_port()))
        port = self.server.getsockname()[1]
        base = broker(id)
        self.broker = Broker(
            id=base.id,
            epoch=base.epoch,
            registration=base.registration,
            node_version=0,
            rack=None,
            log_ids=base.log_ids,
            client=base.client,
            internal=Address(host="127.0.0.1", port=port),
        )
        self.stream = controller_pb2_grpc.LifelineServiceStub(self.channel).BrokerLifeline()
        self.responses: list[controller_pb2.BrokerLifelineResponse] = []

    async def hello(self) -> controller_pb2.BrokerLifelineResponse:
        hello = controller_pb2.LifelineHello(broker_id=self.broker.id, broker_epoch=self.broker.epoch)
        await self.stream.write(controller_pb2.BrokerLifelineRequest(hello=hello, beat=1))
        response = await self.stream.read()
        assert isinstance(response, controller_pb2.BrokerLifelineResponse)
        return response

    async def die(self) -> None:
        self.server.close()
        self.stream.cancel()
        await self.channel.close()


@pytest.mark.parametrize(("id", "epoch"), [(-1, 17), (1, -1)])
async def test_a_lifeline_of_no_broker_is_refused(lifelines: Thread, id: int, epoch: int) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    try:
        hello = controller_pb2.LifelineHello(broker_id=id, broker_epoch=epoch)
        await end.stream.write(controller_pb2.BrokerLifelineRequest(hello=hello, beat=1))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await end.stream.read()
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    finally:
        await end.die()


async def test_a_process_that_does_not_reign_takes_no_lifeline(lifelines: Thread) -> None:
    end = FakeBrokerEnd(lifelines, 1)
    try:
        # Refused before anything is said: a hello that crosses the refusal would fail with gRPC's own INTERNAL.
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await end.stream.read()
    finally:
        await end.die()
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_broken_lifeline_and_a_refused_port_report_death(lifelines: Thread) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    lifelines.thread.show(ControllerEpoch(3), {end.broker.id: end.broker})
    response = await end.hello()
    assert response.controller_epoch == 3
    assert response.probe == 1
    await end.die()
    await until(lambda: bool(lifelines.events))
    epoch, event = lifelines.events[0]
    assert epoch == 3
    assert isinstance(event, BrokerDead)
    assert (event.broker, event.epoch) == (end.broker.id, end.broker.epoch)


async def test_a_death_names_what_the_broker_last_said_was_busy(lifelines: Thread) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    lifelines.thread.show(ControllerEpoch(3), {end.broker.id: end.broker})
    await end.hello()
    for beat, numbers in ((2, range(10)), (3, (5, 7))):
        busy = controller_pb2.BusyPartitions(topics=[controller_pb2.BusyTopic(topic_id="t", partitions=numbers)])
        await end.stream.write(controller_pb2.BrokerLifelineRequest(beat=beat, busy=busy))
    # A beat that says nothing of it changes nothing; its report is acknowledged, so all before it has been heard.
    await end.stream.write(controller_pb2.BrokerLifelineRequest(beat=4, report_number=1))
    while (await end.stream.read()).report_acknowledged < 1:
        pass
    await end.die()
    await until(lambda: bool(lifelines.events))
    _, event = lifelines.events[0]
    assert isinstance(event, BrokerDead)
    assert event.busy == (PartitionKey(TopicId("t"), 5), PartitionKey(TopicId("t"), 7))


async def test_a_process_that_listens_a_while_after_its_stream_broke_is_looked_at_to_the_end(lifelines: Thread) -> None:
    """A second look that began beside the first cut it short, and knew nothing of what the broker had said."""
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    lifelines.thread.show(ControllerEpoch(3), {end.broker.id: end.broker})
    await end.hello()
    busy = controller_pb2.BusyPartitions(topics=[controller_pb2.BusyTopic(topic_id="t", partitions=[5])])
    await end.stream.write(controller_pb2.BrokerLifelineRequest(beat=2, busy=busy, report_number=1))
    while (await end.stream.read()).report_acknowledged < 1:
        pass
    end.server.setblocking(False)
    end.stream.cancel()
    # Knocks for more than WITHOUT_STREAM_S: 0, 20, 60, 140, 240, 340 ms and one more.
    for _ in range(7):
        knock, _ = await within(asyncio.get_running_loop().sock_accept(end.server))
        knock.close()
    assert not lifelines.events
    await end.die()
    await until(lambda: bool(lifelines.events))
    _, event = lifelines.events[0]
    assert isinstance(event, BrokerDead)
    assert event.evidence == "lifeline ended, port refused twice"
    assert event.busy == (PartitionKey(TopicId("t"), 5),)


async def test_a_live_broker_without_a_lifeline_is_left_alone_while_its_port_answers(lifelines: Thread) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    standing, gone = FakeBrokerEnd(lifelines, 1), FakeBrokerEnd(lifelines, 2)
    await gone.die()
    lifelines.thread.show(ControllerEpoch(3), {end.broker.id: end.broker for end in (standing, gone)})
    await until(lambda: bool(lifelines.events))
    assert [event.broker for _, event in lifelines.events if isinstance(event, BrokerDead)] == [2]
    await standing.die()


async def test_isr_reports_are_handed_over_once_and_acknowledged(lifelines: Thread) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    await end.hello()
    report = controller_pb2.BrokerLifelineRequest(
        beat=2,
        report_number=4,
        isr_reports=[controller_pb2.IsrReport(topic_id="t" * 22, partition=1, version=2, isr=[1])],
    )
    await end.stream.write(report)
    await end.stream.write(report)

    async def acknowledged() -> bool:
        response = await end.stream.read()
        assert isinstance(response, controller_pb2.BrokerLifelineResponse)
        return response.report_acknowledged == 4

    await until(acknowledged)
    expected = IsrsWritten.unseen({PartitionKey(TopicId("t" * 22), 1)})
    await until(lambda: bool(lifelines.events))
    assert lifelines.events == [(3, expected)]
    await end.die()


async def test_offline_replicas_belong_to_the_registration_that_the_stream_speaks_for(lifelines: Thread) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    await end.hello()
    item = controller_pb2.OfflineReplica(topic_id="t" * 22, partition=1)
    await end.stream.write(controller_pb2.BrokerLifelineRequest(beat=2, report_number=1, offline_replicas=[item]))
    await until(lambda: bool(lifelines.events))
    offline = ReplicasOffline(
        broker=end.broker.id, epoch=end.broker.epoch, keys=frozenset({PartitionKey(TopicId("t" * 22), 1)})
    )
    assert lifelines.events == [(3, offline)]
    await end.die()


async def test_each_message_says_what_the_time_is_and_what_a_broker_makes_of_it_is_reported_when_it_changes(
    lifelines: Thread,
) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    before_ms = SystemClock().wall_ms()
    response = await end.hello()
    assert before_ms <= response.wall_clock_ms <= SystemClock().wall_ms()
    said = ((400_000, True), (400_999, True), (401_000, True), (401_000, True), (-9, False))
    for beat, (ahead_ms, held_back) in enumerate(said, 2):
        difference = controller_pb2.ClockDifference(ahead_ms=ahead_ms, expiry_held_back=held_back)
        await end.stream.write(controller_pb2.BrokerLifelineRequest(beat=beat, clock_difference=difference))
    await until(lambda: len(lifelines.events) >= 3)
    assert lifelines.events == [
        (3, ClockCompared(broker=end.broker.id, epoch=end.broker.epoch, ahead_ms=ahead_ms, expiry_held_back=held_back))
        for ahead_ms, held_back in (said[0], said[2], said[4])
    ]
    await end.die()


async def test_what_a_broker_says_of_its_disk_and_of_records_that_wait_is_reported(lifelines: Thread) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    await end.hello()
    disk = controller_pb2.LogDirectoryState(free_bytes=-5, refuses_because="x" * 9_000)
    waiting = controller_pb2.UncommittedPartitions(topics=[controller_pb2.BusyTopic(topic_id="t", partitions=[1, 2])])
    await end.stream.write(controller_pb2.BrokerLifelineRequest(beat=2, log_directory=disk, uncommitted=waiting))
    await until(lambda: len(lifelines.events) >= 2)
    who, epoch = end.broker.id, end.broker.epoch
    keys = frozenset({PartitionKey(TopicId("t"), 1), PartitionKey(TopicId("t"), 2)})
    assert lifelines.events == [
        (3, DiskSaid(broker=who, epoch=epoch, free_bytes=0, size_bytes=None, refuses_because="x" * REASON_MAX)),
        (3, CommitsWait(broker=who, epoch=epoch, keys=keys)),
    ]
    await end.die()


async def test_the_end_of_the_reign_ends_the_lifelines(lifelines: Thread) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    await end.hello()
    lifelines.thread.end()

    async def over() -> bool:
        return await end.stream.read() is grpc.aio.EOF

    await until(over)
    assert await end.stream.code() is grpc.StatusCode.OK
    await end.die()


async def test_a_broker_whose_registration_is_gone_is_told_so_on_the_stream_it_holds(lifelines: Thread) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    lifelines.thread.show(ControllerEpoch(3), {end.broker.id: end.broker})
    assert not (await end.hello()).fenced
    lifelines.thread.show(ControllerEpoch(3), {})

    async def told() -> bool:
        response = await end.stream.read()
        assert isinstance(response, controller_pb2.BrokerLifelineResponse)
        return response.fenced

    await until(told)
    await end.die()


async def test_a_broker_that_was_gone_before_the_election_is_told_so_once_the_registrations_are_read(
    lifelines: Thread,
) -> None:
    """Who registered after the election may only not have been seen yet."""
    early, late = FakeBrokerEnd(lifelines, 1), FakeBrokerEnd(lifelines, 2)
    assert early.broker.epoch < late.broker.epoch
    lifelines.thread.begin(ControllerEpoch(3), elected_at=early.broker.epoch)
    assert not (await early.hello()).fenced
    assert not (await late.hello()).fenced
    lifelines.thread.show(ControllerEpoch(3), {})

    async def told() -> bool:
        response = await early.stream.read()
        assert isinstance(response, controller_pb2.BrokerLifelineResponse)
        return response.fenced

    await until(told)
    response = await late.stream.read()
    assert isinstance(response, controller_pb2.BrokerLifelineResponse)
    assert not response.fenced
    await early.die()
    await late.die()


class SoMany(dict[BrokerId, Broker]):
    """As many brokers as make beats come an hour apart."""

    def __len__(self) -> int:
        return 3_600_000


async def test_with_many_brokers_beats_are_seldom_and_what_is_urgent_does_not_wait_for_them(lifelines: Thread) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    end = FakeBrokerEnd(lifelines, 1)
    many = SoMany({end.broker.id: end.broker})
    lifelines.thread.show(ControllerEpoch(3), many)
    assert (await end.hello()).beat_interval_ms == len(many)
    report = controller_pb2.IsrReport(topic_id="t" * 22, partition=1, version=2, isr=[1])
    await end.stream.write(controller_pb2.BrokerLifelineRequest(beat=2, report_number=4, isr_reports=[report]))
    assert (await within(end.stream.read())).report_acknowledged == 4
    lifelines.thread.show(ControllerEpoch(3), SoMany())
    assert (await within(end.stream.read())).fenced
    await end.die()


async def test_a_broker_whose_orders_go_astray_is_told_at_once_and_so_when_that_is_over(lifelines: Thread) -> None:
    """Beats are an hour apart: what comes has not waited for one (safety rule S8)."""
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    astray, other = FakeBrokerEnd(lifelines, 1), FakeBrokerEnd(lifelines, 2)
    many = SoMany({end.broker.id: end.broker for end in (astray, other)})
    lifelines.thread.show(ControllerEpoch(3), many)
    assert not (await astray.hello()).orders_astray
    assert not (await other.hello()).orders_astray
    lifelines.thread.tell_misdirected(ControllerEpoch(3), frozenset({astray.broker.id}))
    assert (await within(astray.stream.read())).orders_astray
    lifelines.thread.tell_misdirected(ControllerEpoch(3), frozenset())
    assert not (await within(astray.stream.read())).orders_astray
    # The other one hears when it has something to be told, and not of this.
    await other.stream.write(controller_pb2.BrokerLifelineRequest(beat=2, report_number=4))
    response = await within(other.stream.read())
    assert (response.beat, response.report_acknowledged, response.orders_astray) == (2, 4, False)
    await astray.die()
    await other.die()


async def test_a_reign_begins_with_no_orders_astray_and_hears_of_none_from_the_one_before(lifelines: Thread) -> None:
    lifelines.thread.begin(ControllerEpoch(3), elected_at=BrokerEpoch(0))
    lifelines.thread.tell_misdirected(ControllerEpoch(3), frozenset({BrokerId(1)}))
    before = FakeBrokerEnd(lifelines, 1)
    assert (await before.hello()).orders_astray
    lifelines.thread.end()
    lifelines.thread.begin(ControllerEpoch(4), elected_at=BrokerEpoch(0))
    lifelines.thread.tell_misdirected(ControllerEpoch(3), frozenset({BrokerId(1)}))
    after = FakeBrokerEnd(lifelines, 1)
    assert not (await after.hello()).orders_astray
    await before.die()
    await after.die()


class CancellingClock(SystemClock):
    """Whoever waits by it is cancelled by nobody."""

    async def sleep(self, seconds: float) -> None:
        raise asyncio.CancelledError


async def test_a_watch_that_a_stray_cancellation_ended_stops_the_process() -> None:
    """It would look for silent brokers no more, and nobody would notice."""
    supervisor, clock = Supervisor("test"), CancellingClock()
    thread = LifelineThread(
        Address(host="127.0.0.1", port=unused_port()),
        clock=clock,
        supervisor=supervisor,
        main_lag=LoopLag(clock),
        session_connected=lambda: True,
        session_timeout_s=6.0,
        report=lambda _epoch, _event: None,
        fences=True,
    )
    await thread.start()
    await until(lambda: supervisor.failure is not None)
    assert "cancel" in repr(supervisor.failure).lower()
    await thread.stop()
    await supervisor.unwind()


# Probes


@pytest.mark.parametrize("part", ["lifeline-watch", "lifeline-lag"])
async def test_a_part_of_the_thread_that_is_cancelled_from_outside_stops_the_process(part: str) -> None:
    lifelines = Thread()
    await lifelines.thread.start()
    loop = lifelines.thread._loop
    assert loop is not None

    async def cancel() -> None:
        next(task for task in asyncio.all_tasks() if task.get_name() == part).cancel()

    await within(loop.do(cancel()))
    await until(lambda: lifelines.supervisor.stopping)
    assert str(lifelines.supervisor.reason).startswith(f"{part} failed")
    await lifelines.thread.stop()
    await lifelines.supervisor.unwind()
