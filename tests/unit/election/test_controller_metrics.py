"""What a controller counts: elections by their kind, failovers, events, admissions."""

from collections.abc import AsyncIterator

import pytest
from regnum_election.controller import Controller
from regnum_election.reign.event_times import EventTimes
from regnum_election.reign.events import BrokersChanged, EventQueue, IsrsWritten, Superseded
from regnum_election.reign.witnesses import Sign, Signs
from regnum_election.state.tally import source_of
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_election.traces.change_trace import Beginning, ChangeTrace
from regnum_model.ids import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    LogId,
    PartitionKey,
    TopicId,
)
from regnum_model.nodes import LeaderAndIsr, Membership
from regnum_telemetry import conventions
from regnum_telemetry.instruments import Instrument
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Labels, Metrics
from regnum_testing.clock import FakeClock
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S, until

TOPIC = TopicId("t" * 22)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


def numbers(metrics: Metrics, instrument: Instrument) -> dict[Labels, float]:
    return {labels: value for one in metrics.read() if one.instrument is instrument for labels, value in one.numbers}


def counts(metrics: Metrics, instrument: Instrument) -> dict[Labels, int]:
    return {
        labels: sum(read.counts)
        for one in metrics.read()
        if one.instrument is instrument
        for labels, read in one.histograms
    }


async def create(controller: Controller, partitions: int) -> None:
    assignment = tuple((number, tuple(map(BrokerId, (1, 2, 3)))) for number in range(partitions))
    request = TopicRequest(name="t", partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    (outcome,) = (
        await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    ).outcomes
    assert isinstance(outcome, Created)


def state(leader: int, *isr: int, elr: tuple[int, ...] = ()) -> LeaderAndIsr:
    return LeaderAndIsr(
        topic_id=TOPIC,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(1),
        isr=tuple(map(BrokerId, isr)),
        elr=tuple(map(BrokerId, elr)),
        members={BrokerId(id): Membership(broker_epoch=BrokerEpoch(1), log_id=LogId("l")) for id in (*isr, *elr)},
        controller_epoch=ControllerEpoch(1),
    )


def test_where_a_leader_comes_from() -> None:
    before = state(1, 1, 2, elr=(3,))
    assert source_of(None, state(1, 1)) == "first"
    assert source_of(before, state(2, 2)) == "isr"
    assert source_of(before, state(3, 3)) == "elr"
    assert source_of(before, state(4, 4)) == "unclean"
    assert source_of(before, state(NO_LEADER, 1, 2)) == "none"


async def test_elections_failovers_and_events_of_a_reign_are_counted(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    metrics = Metrics()
    controller = await cluster.reign(metrics=metrics)
    await create(controller, 4)
    assert numbers(metrics, instruments.ELECTIONS)[("first",)] == 4
    cluster.kill(1)
    await until(lambda: numbers(metrics, instruments.ELECTIONS)[("isr",)] == 4)
    # Spans go nowhere here; the time is taken all the same.
    await until(lambda: counts(metrics, instruments.FAILOVER_DURATION)[("broker",)] == 1)
    cluster.kill(2)
    cluster.kill(3)
    await until(lambda: numbers(metrics, instruments.ELECTIONS)[("none",)] == 4)
    assert numbers(metrics, instruments.ELECTIONS)[("unclean",)] == 0
    events = counts(metrics, instruments.EVENT_DURATION)
    assert events[("BrokersChanged",)] >= 2
    assert events[("Mutation",)] >= 1


async def test_a_failover_is_timed_from_its_first_sign_to_the_last_acknowledgement() -> None:
    ended: list[tuple[str, float]] = []
    beginning = Beginning(
        kind=conventions.KIND_BROKER_FAILURE,
        legacy_name=conventions.FAILOVER,
        noticed=Sign(5_000_000_000, "lifeline 1"),
        attributes={},
        # What came before it was noticed does not count.
        signs=lambda: Signs(broken=(Sign(1_000_000_000, "follower fetch 2"),)),
    )
    trace = ChangeTrace(beginning, ended=lambda name, seconds: ended.append((name, seconds)))
    trace.open()
    trace.expect([1])
    trace.reached(conventions.WRITTEN_UNIX_NANO, 6_000_000_000)
    trace.seal()
    assert ended == []
    trace.acknowledged(1)
    ((name, seconds),) = ended
    assert name == conventions.FAILOVER
    assert seconds > 1.0


def test_the_time_of_an_event_is_kept_by_kind_whether_or_not_it_ends_well() -> None:
    clock, metrics = FakeClock(), Metrics()
    times = EventTimes(clock, metrics)
    for seconds in (0.25, 0.5):
        with times.of(BrokersChanged()):
            clock.skip(seconds)

    def deposed() -> None:
        with times.of(Superseded(seen=ControllerEpoch(9))):
            clock.skip(1.0)
            raise ValueError("deposed")

    with pytest.raises(ValueError, match="deposed"):
        deposed()
    totals = {
        labels: read.total
        for one in metrics.read()
        if one.instrument is instruments.EVENT_DURATION
        for labels, read in one.histograms
    }
    assert totals == {("BrokersChanged",): pytest.approx(0.75), ("Superseded",): pytest.approx(1.0)}


def test_what_waits_for_the_controller_is_shown_by_its_kind() -> None:
    queue = EventQueue()
    assert dict(queue.depths) == {"cluster": 0, "reported_partitions": 0, "deletion_answers": 0, "mutations": 0}
    queue.put(BrokersChanged(frozenset({"1"})))
    queue.put(IsrsWritten.unseen([PartitionKey(TOPIC, number) for number in range(7)]))
    assert dict(queue.depths) == {"cluster": 1, "reported_partitions": 7, "deletion_answers": 0, "mutations": 0}
