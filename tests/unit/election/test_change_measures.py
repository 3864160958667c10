"""What changes of leadership took, as metrics have it: in the words of the report, traced or not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest
from regnum_election.reign.witnesses import Sign, Signs
from regnum_election.state.tally import Tally
from regnum_election.topics.creation import Created
from regnum_election.topics.requests import TopicRequest
from regnum_election.traces.change_trace import Beginning, ChangeTrace
from regnum_election.traces.measured import BOUNDARIES, USUAL, Measured, stages
from regnum_insight.attribution.steps import STEPS
from regnum_model.ids import BrokerId, LeaderEpoch, PartitionKey, TopicId
from regnum_telemetry import conventions, propagation, tracing
from regnum_telemetry.exposition import Exposition
from regnum_telemetry.instruments import Instrument
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import SERIES_MAX, Exemplar, HistogramReading, Labels, Metrics
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.span_recorder import SpanRecorder, recorded_spans
from regnum_testing.waiting import DEADLINE_S, until

KEYS = [PartitionKey(TopicId("t"), number) for number in range(3)]
KIND = conventions.KIND_BROKER_FAILURE
MS = 1_000_000


@pytest.fixture
def recorder() -> Iterator[SpanRecorder]:
    with recorded_spans() as recorder:
        yield recorder


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    cluster = FakeCluster()
    yield cluster
    await cluster.close()


def numbers(metrics: Metrics, instrument: Instrument) -> dict[Labels, float]:
    return {
        labels: value
        for reading in metrics.read()
        if reading.instrument is instrument
        for labels, value in reading.numbers
    }


def histograms(metrics: Metrics, instrument: Instrument) -> dict[Labels, HistogramReading]:
    return {
        labels: one
        for reading in metrics.read()
        if reading.instrument is instrument
        for labels, one in reading.histograms
    }


def came(metrics: Metrics, instrument: Instrument) -> dict[Labels, float]:
    return {labels: value for labels, value in numbers(metrics, instrument).items() if value}


def test_what_is_rare_is_there_before_it_comes_so_that_it_is_seen_to_grow() -> None:
    metrics = Metrics()
    Tally(metrics)
    kinds = {value for name, value in vars(conventions).items() if name.startswith("KIND_")}
    assert {kind for (kind,) in numbers(metrics, instruments.CHANGES)} == kinds == set(USUAL)
    assert {kind for (kind,) in histograms(metrics, instruments.CLIENT_OUTAGE)} == kinds
    assert {kind for kind, _ in histograms(metrics, instruments.CHANGE_STAGE)} == kinds
    # Bounded: with all of them once more there would still be room.
    assert len(histograms(metrics, instruments.CHANGE_STAGE)) < SERIES_MAX / 2


def test_stages_are_called_as_the_steps_of_the_report_and_come_in_their_order() -> None:
    named = list(BOUNDARIES.values())
    assert [step for step in STEPS if step in named] == named


def test_stages_reach_from_boundary_to_boundary_and_add_up() -> None:
    found = stages(
        0,
        {
            conventions.NOTICED_UNIX_NANO: 20 * MS,
            conventions.DETECTED_UNIX_NANO: 30 * MS,
            conventions.DECIDED_UNIX_NANO: 34 * MS,
            conventions.WRITTEN_UNIX_NANO: 37 * MS,
            conventions.DISPATCHED_UNIX_NANO: 45 * MS,
            # Of one that acknowledged before the others were told; and something that is no boundary.
            conventions.ACKNOWLEDGED_UNIX_NANO: 41 * MS,
            conventions.LAST_HEARD_UNIX_NANO: 7,
        },
    )
    assert found == [
        ("noticed", 0.020),
        ("detected", 0.010),
        ("decided", 0.004),
        ("written", 0.003),
        ("dispatched", 0.008),
        ("acknowledged", 0.0),
    ]


def _failure(measured: list[Measured], *, seen_ms: int = 40) -> ChangeTrace:
    noticed = tracing.now_unix_nano()
    beginning = Beginning(
        kind=KIND,
        noticed=Sign(noticed, "lifeline 7"),
        attributes={},
        legacy_name=conventions.FAILOVER,
        signs=lambda: Signs(broken=(Sign(noticed - seen_ms * MS, "follower fetch 2"),)),
    )
    return ChangeTrace(beginning, measured=measured.append)


async def _written(trace: ChangeTrace) -> None:
    """Wait no longer, as when a reign ends."""
    waiting = asyncio.create_task(trace.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting


async def test_an_outage_reaches_from_the_first_sign_to_the_first_acknowledgement_without_any_spans() -> None:
    measured: list[Measured] = []
    trace = _failure(measured)
    trace.open()
    trace.expect_leaders(dict.fromkeys(KEYS, LeaderEpoch(5)), partitions=3)
    for key in KEYS[:2]:
        trace.acknowledged(key, reports=True)
    trace.acknowledged(KEYS[2])
    trace.seal()
    at = tracing.now_unix_nano()
    trace.first_acknowledged(KEYS[0], LeaderEpoch(5), at)
    assert measured == []
    await _written(trace)
    (one,) = measured
    assert (one.kind, one.trace_id, one.is_complete, one.unheard) == (KIND, "", True, 1)
    (outage_s,) = one.outages_s
    assert outage_s >= 0.040
    found = dict(one.stages_s)
    assert found["noticed"] == 0.040
    assert sum(found.values()) == pytest.approx(outage_s, abs=0.001)


async def test_a_plan_has_no_time_before_it_was_noticed(recorder: SpanRecorder) -> None:
    measured: list[Measured] = []
    beginning = Beginning(
        kind=conventions.KIND_BALANCE, noticed=Sign(tracing.now_unix_nano(), ""), attributes={}, signs=None
    )
    trace = ChangeTrace(beginning, measured=measured.append)
    trace.seal()
    await _written(trace)
    # It moved nothing.
    assert measured == []
    trace = ChangeTrace(beginning, measured=measured.append)
    trace.decided([BrokerId(1)])
    trace.seal()
    await _written(trace)
    (one,) = measured
    assert [stage for stage, _ in one.stages_s] == ["decided", "dispatched"]
    place = propagation.parse(recorder.one(conventions.LEADERSHIP_CHANGE).context)
    assert place is not None
    assert one.trace_id == place.trace_id


def test_values_are_shown_with_their_traces_in_openmetrics_and_without_in_prometheus_text() -> None:
    metrics = Metrics()
    tally = Tally(metrics)
    for number, trace_id in ((1, "a" * 32), (2, "b" * 32), (3, "")):
        tally.change_opened(KIND)
        tally.change_measured(
            Measured(
                kind=KIND,
                trace_id=trace_id,
                is_complete=number != 2,
                stages_s=[("noticed", 0.02), ("dispatched", 0.03 * number)],
                outages_s=[number / 16, 0.4],
                unheard=1,
                unix_s=1000.0 + number,
            )
        )
    assert came(metrics, instruments.CHANGES) == {(KIND,): 3}
    assert came(metrics, instruments.CHANGES_ENDED) == {(KIND, "true"): 2, (KIND, "false"): 1}
    assert came(metrics, instruments.CLIENT_OUTAGES_UNHEARD) == {(KIND,): 3}
    outages = histograms(metrics, instruments.CLIENT_OUTAGE)[KIND,]
    assert sum(outages.counts) == 6
    # The newest of each bucket; what nothing traced takes nothing away.
    assert [one for _, one in sorted(outages.exemplars.items())] == [
        Exemplar(trace_id="a" * 32, value=0.0625, unix_s=1001.0),
        Exemplar(trace_id="b" * 32, value=0.125, unix_s=1002.0),
        Exemplar(trace_id="b" * 32, value=0.4, unix_s=1002.0),
    ]
    assert {labels for labels, one in histograms(metrics, instruments.CHANGE_STAGE).items() if sum(one.counts)} == {
        (KIND, "noticed"),
        (KIND, "dispatched"),
    }
    exposition = Exposition("regnum-election", "1", metrics, cluster=lambda: "c1")
    text, _ = exposition.render("application/openmetrics-text; version=1.0.0")
    wanted = (
        'regnum_client_outage_seconds_bucket{cluster="c1",kind="broker failure",le="0.15"} 2.0'
        f' # {{trace_id="{"b" * 32}"}} 0.125 1002.0'
    )
    assert wanted in text.decode()
    assert b"trace_id" not in exposition.render("")[0]


async def test_a_failover_is_counted_and_measured_where_nothing_is_traced(cluster: FakeCluster) -> None:
    await cluster.begin(1, 2, 3)
    metrics = Metrics()
    controller = await cluster.reign(metrics=metrics)
    assignment = tuple((number, tuple(BrokerId(id) for id in (1, 2, 3))) for number in range(2))
    request = TopicRequest(name="t", partitions=0, replication_factor=None, assignment=assignment, mutation=None)
    (outcome,) = (
        await controller.topics.create([request], validate_only=False, wait_s=DEADLINE_S, account=ANYBODY)
    ).outcomes
    assert isinstance(outcome, Created)
    # The first leaders of a topic are no change.
    assert came(metrics, instruments.CHANGES) == {}
    cluster.kill(1)
    await until(lambda: came(metrics, instruments.CHANGES_ENDED) == {(KIND, "true"): 1})
    assert came(metrics, instruments.CHANGES) == {(KIND,): 1}
    found = {labels: one for labels, one in histograms(metrics, instruments.CHANGE_STAGE).items() if sum(one.counts)}
    assert [stage for kind, stage in found if kind == KIND] == ["noticed", "decided", "written", "dispatched"]
    assert all(sum(one.counts) == 1 and not one.exemplars for one in found.values())
