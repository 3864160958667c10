"""Who is taken for dead, and who is only silent: probes, and lifelines with a clock that a test moves."""

import asyncio
import socket
from collections.abc import ItemsView

import pytest
import structlog
from regnum.election.v1 import controller_pb2
from regnum_election.brokers.lifeline import BUSY_MAX, Lifelines
from regnum_election.decisions.liveness import Listener, Verdict
from regnum_election.decisions.relief import CutOff, FetchContacts, cut_leaders
from regnum_election.lifelines.beat_news import BeatNews
from regnum_election.lifelines.stream import Stream
from regnum_election.lifelines.witnessed import Said
from regnum_election.reign.events import BrokerDead, ClusterEvent, LeaderCutOff
from regnum_model.contact import Contact
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch
from regnum_model.nodes import Address
from regnum_service.detection import connect, is_dead
from regnum_testing.clock import FakeClock
from regnum_testing.election_values import broker
from regnum_testing.ports import unused_port


async def test_connect_tells_refused_from_accepted() -> None:
    port = unused_port()
    address = Address(host="127.0.0.1", port=port)
    assert await connect(address) is Contact.REFUSED
    with socket.create_server(("127.0.0.1", port)):
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
        self.streams = {
            id: Stream(
                broker=BrokerId(id),
                epoch=BrokerEpoch(id),
                news=BeatNews(broker=BrokerId(id), epoch=BrokerEpoch(id)),
                said=Said(controller_pb2.LifelineHello()),
            )
            for id in ids
        }
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


async def test_a_broker_that_calls_everything_busy_is_not_believed_without_end() -> None:
    said = controller_pb2.BusyPartitions(
        topics=[controller_pb2.BusyTopic(topic_id="t", partitions=range(100_000)) for _ in range(20)]
    )
    silence = Silence(1, 2, 3)
    silence.lifelines._hear(silence.streams[1], controller_pb2.BrokerLifelineRequest(busy=said))
    await silence.run(2.2, silent=1)
    (event,) = (event for event in silence.events if isinstance(event, BrokerDead))
    assert len(event.busy) == BUSY_MAX
