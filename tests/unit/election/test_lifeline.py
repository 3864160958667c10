"""The lifelines' end at the controller: over real gRPC on its own thread, and with a clock that a test moves."""

import asyncio
import socket
from collections.abc import AsyncIterator, ItemsView

import grpc
import pytest
import structlog
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_election.brokers.lifeline import BUSY_MAX, Lifelines, Stream
from regnum_election.brokers.lifeline_thread import LifelineThread
from regnum_election.decisions.cluster import Broker
from regnum_election.decisions.liveness import Listener, Verdict
from regnum_election.decisions.relief import CutOff, FetchContacts, cut_leaders
from regnum_election.reign.events import BrokerDead, ClusterEvent, IsrsWritten, LeaderCutOff, ReplicasOffline
from regnum_model.contact import Contact
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, PartitionKey, TopicId
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.detection import connect, is_dead
from regnum_service.loop_lag import LoopLag
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import FakeClock
from regnum_testing.election_values import broker
from regnum_testing.ports import unused_port
from regnum_testing.reigning import until
from regnum_testing.waiting import within


class Thread:
    """A lifeline thread and what it reports."""

    def __init__(self) -> None:
        self.events: list[tuple[int, ClusterEvent]] = []
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
        self.server = socket.socket()
        self.server.bind(("127.0.0.1", unused_port()))
        self.server.listen()
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


async def test_a_broker_that_calls_everything_busy_is_not_believed_without_end() -> None:
    said = controller_pb2.BusyPartitions(
        topics=[controller_pb2.BusyTopic(topic_id="t", partitions=range(100_000)) for _ in range(20)]
    )
    silence = Silence(1, 2, 3)
    silence.lifelines._hear(silence.streams[1], controller_pb2.BrokerLifelineRequest(busy=said))
    await silence.run(2.2, silent=1)
    (event,) = (event for event in silence.events if isinstance(event, BrokerDead))
    assert len(event.busy) == BUSY_MAX


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


async def test_connect_tells_refused_from_accepted() -> None:
    port = unused_port()
    address = Address(host="127.0.0.1", port=port)
    assert await connect(address) is Contact.REFUSED
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))
        server.listen()
        assert await connect(address) is Contact.ACCEPTED


@pytest.mark.parametrize(
    ("contacts", "dead"),
    [
        ([Contact.REFUSED, Contact.REFUSED], True),
        ([Contact.ACCEPTED, Contact.REFUSED, Contact.REFUSED], True),
        ([Contact.REFUSED, Contact.ACCEPTED, Contact.ACCEPTED, Contact.ACCEPTED], False),
        ([Contact.REFUSED, Contact.NO_ANSWER], False),
        ([Contact.ACCEPTED] * 4, False),
    ],
)
async def test_death_takes_two_refusals_in_a_row(contacts: list[Contact], dead: bool) -> None:
    left = iter(contacts)

    async def probe(_: Address) -> Contact:
        return next(left)

    clock = FakeClock()
    answer = asyncio.create_task(is_dead(Address(host="h", port=1), probe, clock, attempts=4))
    for _ in range(4):
        await clock.advance(0.1)
    assert await answer is dead


# Silence, with a clock that a test moves


class Silence:
    """Lifelines with streams that answer or not."""

    def __init__(self, *ids: int) -> None:
        self.clock = FakeClock()
        self.events: list[ClusterEvent] = []
        self.lag_s = 0.0
        self.tasks: list[asyncio.Task[None]] = []
        self.lifelines = Lifelines(
            clock=self.clock,
            probe=self.probe,
            report=self.events.append,
            listening=lambda: Listener(
                session_connected=True,
                loop_lag_s=self.lag_s,
                since_silence_fence_s=self.lifelines.since_silence_fence_s,
                session_timeout_s=6.0,
            ),
            spawn=self.spawn,
            fences=True,
        )
        self.lifelines.begin(ControllerEpoch(1), elected_at=BrokerEpoch(0))
        self.lifelines.show(ControllerEpoch(1), {BrokerId(id): broker(id) for id in ids})
        self.streams = {id: Stream(broker=BrokerId(id), epoch=BrokerEpoch(id)) for id in ids}
        for id, stream in self.streams.items():
            self.lifelines._streams[BrokerId(id)] = stream

    async def probe(self, _: Address) -> Contact:
        return Contact.ACCEPTED

    def spawn(self, name: str, coroutine: object) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = asyncio.create_task(coroutine, name=name)  # type: ignore[arg-type]
        self.tasks.append(task)
        return task

    async def run(self, seconds: float, *, silent: int) -> None:
        stream = self.streams[silent]
        stream.oldest_unanswered_s = self.clock.monotonic()
        watch = self.spawn("watch", self.lifelines.watch())
        await self.clock.advance(seconds)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)


async def test_two_seconds_of_silence_report_death() -> None:
    silence = Silence(1, 2, 3)
    await silence.run(1.9, silent=1)
    assert not silence.events
    silence = Silence(1, 2, 3)
    await silence.run(2.2, silent=1)
    assert [event.broker for event in silence.events if isinstance(event, BrokerDead)] == [1]


class CountingListener:
    """The controller's own state, and how often it was looked at."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> Listener:
        self.looks += 1
        return Listener(session_connected=True, loop_lag_s=0.0, since_silence_fence_s=None, session_timeout_s=6.0)


class CountingStreams(dict[BrokerId, Stream]):
    """Streams, and how often one was looked up or all were gone through, each counting as many as there are."""

    looks = 0

    def get(self, key: BrokerId, default: object = None) -> object:  # type: ignore[override]
        self.looks += 1
        return super().get(key, default)

    def __getitem__(self, key: BrokerId) -> Stream:
        self.looks += 1
        return super().__getitem__(key)

    def items(self) -> ItemsView[BrokerId, Stream]:
        self.looks += len(self)
        return super().items()


async def test_a_look_at_1000_brokers_visits_each_a_few_times_and_still_fences_the_silent_one() -> None:
    """It visited a million, and copied the measurements of lag 1,000 times: late, it trusted itself no more."""
    ids = range(1, 1_001)
    silence = Silence(*ids)
    listener = CountingListener()
    streams = CountingStreams(silence.lifelines._streams)
    silence.lifelines._listening, silence.lifelines._streams = listener, streams
    now_s = silence.clock.monotonic()
    silence.lifelines._tick(now_s)
    assert (streams.looks, listener.looks) == (2_000, 0)
    assert not silence.events
    for id in (500, 600):
        silence.streams[id].oldest_unanswered_s = now_s - 2.0
    silence.lifelines._tick(now_s)
    assert streams.looks <= 2_000 + 2_010
    assert listener.looks == 1
    assert [event.broker for event in silence.events if isinstance(event, BrokerDead)] == [500]


async def test_a_look_at_1000_brokers_of_which_some_are_cut_off_visits_no_pairs() -> None:
    class Said(dict[BrokerId, FetchContacts]):
        visits = 0

        def items(self) -> ItemsView[BrokerId, FetchContacts]:
            self.visits += 1
            return super().items()

    quiet = frozenset(BrokerId(id) for id in range(1, 1_001))
    said = Said({id: FetchContacts(silent_followers=quiet - {id}) for id in quiet})
    said[BrokerId(7)] = FetchContacts(unreachable_leaders=frozenset({BrokerId(8)}), silent_followers=quiet)
    assert cut_leaders(said) == {BrokerId(8): CutOff(followers=frozenset({BrokerId(7)}), isolated=frozenset())}
    assert said.visits == 2


def contacts(
    *, unreachable: tuple[int, ...] = (), silent: tuple[int, ...] = ()
) -> controller_pb2.BrokerLifelineRequest:
    said = controller_pb2.FetchContacts(unreachable_leaders=unreachable, silent_followers=silent)
    return controller_pb2.BrokerLifelineRequest(fetch_contacts=said)


async def test_a_leader_cut_off_from_followers_is_reported_at_once_and_while_it_lasts() -> None:
    silence = Silence(1, 2, 3)
    silence.lifelines._hear(silence.streams[1], contacts(silent=(2, 3)))
    silence.lifelines._hear(silence.streams[2], contacts(unreachable=(1,)))
    await silence.run(0.15, silent=3)
    one = LeaderCutOff(
        leader=BrokerId(1),
        epoch=BrokerEpoch(1),
        cut_off=CutOff(followers=frozenset({BrokerId(2)}), isolated=frozenset()),
    )
    assert silence.events == [one]
    silence.lifelines._hear(silence.streams[3], contacts(unreachable=(1,)))
    await silence.run(0.25, silent=3)
    both = LeaderCutOff(
        leader=BrokerId(1),
        epoch=BrokerEpoch(1),
        cut_off=CutOff(followers=frozenset({BrokerId(2), BrokerId(3)}), isolated=frozenset()),
    )
    assert silence.events == [one, both]
    await silence.run(1.05, silent=3)
    assert silence.events == [one, both, both]
    # A message that says nothing of it changes nothing; one that says that all is well ends it.
    silence.lifelines._hear(silence.streams[1], controller_pb2.BrokerLifelineRequest(beat=2))
    silence.lifelines._hear(silence.streams[1], contacts())
    await silence.run(1.5, silent=3)
    assert silence.events == [one, both, both]


async def test_what_an_earlier_life_of_a_broker_says_of_fetches_does_not_count() -> None:
    silence = Silence(1, 2, 3)
    for id, said in ((1, contacts(silent=(2, 3))), (2, contacts(unreachable=(1,))), (3, contacts(unreachable=(1,)))):
        silence.lifelines._hear(silence.streams[id], said)
    brokers = {BrokerId(1): broker(1, epoch=9), BrokerId(2): broker(2), BrokerId(3): broker(3)}
    silence.lifelines.show(ControllerEpoch(1), brokers)
    await silence.run(1.5, silent=3)
    assert not silence.events


async def test_silence_lasts_until_any_registered_broker_says_something_or_answers_a_connection() -> None:
    silence = Silence(1, 2)
    await silence.clock.advance(5.0)
    assert silence.lifelines.silent_s == 5.0
    silence.lifelines._hear(silence.streams[2], controller_pb2.BrokerLifelineRequest(beat=2))
    assert silence.lifelines.silent_s == 0.0
    del silence.lifelines._streams[BrokerId(1)]
    await silence.clock.advance(2.0)
    assert silence.lifelines.silent_s == 2.0
    await silence.run(1.0, silent=2)
    assert silence.lifelines.silent_s < 1.0


async def test_a_broker_that_is_not_registered_breaks_no_silence() -> None:
    silence = Silence(1, 2)
    silence.lifelines.show(ControllerEpoch(1), {BrokerId(1): broker(1)})
    await silence.clock.advance(5.0)
    silence.lifelines._hear(silence.streams[2], controller_pb2.BrokerLifelineRequest(beat=2))
    assert silence.lifelines.silent_s == 5.0


async def test_a_controller_that_lags_reports_nobody() -> None:
    silence = Silence(1, 2, 3)
    silence.lag_s = 0.2
    await silence.run(5.0, silent=1)
    assert not silence.events


async def test_why_a_silent_broker_is_spared_is_said_once_for_each_reason() -> None:
    """It is looked at ten times a second, and a cut may last for hours."""
    with structlog.testing.capture_logs() as logs:
        silence = Silence(1, 2, 3)
        silence.lag_s = 0.2
        await silence.run(5.0, silent=1)
        silence.lag_s = 0.0
        for id in (2, 3):
            silence.streams[id].oldest_unanswered_s = silence.clock.monotonic() - 5.0
        await silence.run(5.0, silent=1)
    said = [line["why"] for line in logs if line["event"] == "silent broker not fenced" and line["broker"] == 1]
    assert said == [Verdict.LAGGING.value, Verdict.TOO_FEW_ANSWER.value]
