"""Control-plane spans are recorded whatever a ratio or a caller says; ratios are about data."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_ON, Decision, ParentBasedTraceIdRatio, Sampler
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context
from regnum_telemetry import conventions, setup, tracing
from regnum_telemetry.sampling import ControlPlaneSampler

PRODUCE = "regnum.broker.v1.LogService/Produce"
CONTROL = (
    conventions.LEADERSHIP_CHANGE,
    conventions.STORE_WRITE,
    conventions.LEADER_AND_ISR,
    conventions.PUBLISH_CHANGES,
    conventions.BECOME_LEADER,
    conventions.FIRST_APPEND,
    conventions.OUTAGE,
    conventions.CONSUMER_OUTAGE,
    conventions.SEND_TO_TOPIC.format(topic="regnum.broker.v1"),
)
DATA = (conventions.SEND, conventions.RETRIED_SEND, PRODUCE, "regnum.admin.v1.AdminService/CreateTopics")
UNSAMPLED = f"00-{'ab' * 16}-{'cd' * 8}-00"
SAMPLED = f"00-{'ab' * 16}-{'cd' * 8}-01"


def below(*, sampled: bool) -> Context:
    place = SpanContext(0xAB, 0xCD, is_remote=True, trace_flags=TraceFlags(int(sampled)))
    return set_span_in_context(NonRecordingSpan(place), Context())


def records(sampler: Sampler, name: str, above: Context | None, trace_id: int = 0xAB) -> bool:
    return sampler.should_sample(above, trace_id, name).decision is Decision.RECORD_AND_SAMPLE


@pytest.mark.parametrize("data", [ParentBasedTraceIdRatio(0.0), ALWAYS_OFF, DEFAULT_ON])
@pytest.mark.parametrize("above", [None, below(sampled=False), below(sampled=True)])
def test_every_span_of_the_control_plane_is_recorded(data: Sampler, above: Context | None) -> None:
    sampler = ControlPlaneSampler(data)
    assert all(records(sampler, name, above) for name in CONTROL)
    assert [records(sampler, name, above) for name in DATA] == [records(data, name, above) for name in DATA]


def test_a_ratio_holds_for_data_and_its_samplers_are_named() -> None:
    sampler = ControlPlaneSampler(ParentBasedTraceIdRatio(0.25))
    ids = range(0, 1 << 64, 1 << 56)
    kept = [trace_id for trace_id in ids if records(sampler, conventions.SEND, None, trace_id)]
    assert len(kept) == len(ids) // 4
    assert sampler.get_description().startswith("ControlPlane{data:ParentBased{root:TraceIdRatioBased{0.25}")
    told = sampler.should_sample(None, 1, conventions.LEADERSHIP_CHANGE, attributes={"a": 1})
    assert dict(told.attributes) == {"a": 1}


class Kept:
    """A sink that keeps spans."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> bool:
        self.spans += spans
        return True

    def close(self) -> None:
        pass


@contextmanager
def started(kept: Kept) -> Iterator[None]:
    before = tracing.tracer()
    telemetry = setup.start_with("test", "1", kept, environ={"OTEL_TRACES_SAMPLER": "parentbased_traceidratio"})
    try:
        yield
    finally:
        telemetry.close()
        tracing.use(before)


def test_two_hundred_of_two_hundred_changes_are_kept_under_a_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.01")
    kept, calls = Kept(), 0
    with started(kept):
        for _ in range(200):
            root = tracing.tracer().start(conventions.LEADERSHIP_CHANGE)
            tracing.between(conventions.OUTAGE, 1, 2, parent=root.context)
            root.end()
            # A produce call and its remote call, as the producer makes them.
            with tracing.span(conventions.SEND, root=True) as call, tracing.span(PRODUCE):
                calls += bool(call.context)
    names = [span.name for span in kept.spans]
    assert (names.count(conventions.LEADERSHIP_CHANGE), names.count(conventions.OUTAGE)) == (200, 200)
    assert names.count(conventions.SEND) == names.count(PRODUCE) == calls < 20


def test_a_caller_that_records_nothing_speaks_for_its_call_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_TRACES_SAMPLER", raising=False)
    kept = Kept()
    with started(kept):
        for place in (UNSAMPLED, SAMPLED):
            with tracing.span(PRODUCE, parent=place) as call, tracing.span(conventions.STORE_WRITE):
                pass
            assert bool(call.context) is (place == SAMPLED), "what is not recorded has no place"
        tracing.between(conventions.LEADERSHIP_CHANGE, 1, 2, parent=UNSAMPLED)
    assert [span.name for span in kept.spans] == [conventions.STORE_WRITE, PRODUCE, conventions.LEADERSHIP_CHANGE]


@pytest.mark.parametrize(
    ("environ", "made"),
    [
        ({"OTEL_TRACES_SAMPLER": "always_off"}, False),
        ({"OTEL_TRACES_SAMPLER": "parentbased_always_off"}, True),
        ({"OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_everything_can_be_switched_off(
    environ: dict[str, str], made: bool, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    before = tracing.tracer()
    telemetry = setup.start("off", "1", traces_dir=tmp_path, environ=environ)
    try:
        assert tracing.tracer().recording is made
        assert not tracing.tracer().start(conventions.LEADERSHIP_CHANGE).context
    finally:
        telemetry.close()
        tracing.use(before)
    assert list(tmp_path.iterdir()) == []


def test_a_resource_says_which_process_it_is_and_the_cluster_once_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "host.name=node-7,k8s.pod.name=broker-1")
    kept = Kept()
    with started(kept):
        early = tracing.tracer().start("early")
        tracing.in_cluster("")
        tracing.in_cluster("C1")
        tracing.in_cluster("C1")
        for name, cluster in (("one", "C1"), ("two", "C2"), ("again", "C1")):
            tracing.in_cluster(cluster)
            tracing.tracer().start(name).end()
        early.end()
    told = {span.name: span.resource.attributes for span in kept.spans}
    clusters = {name: attributes.get(conventions.CLUSTER_ID) for name, attributes in told.items()}
    # A process of two clusters' clients cannot say of a span which it was for.
    assert clusters == {"one": "C1", "two": None, "again": None, "early": None}
    one = told["one"]
    assert (one[conventions.HOST_NAME], one["k8s.pod.name"]) == ("node-7", "broker-1"), "what the environment says"
    assert (one[conventions.SERVICE_NAME], one[conventions.SERVICE_INSTANCE]) == ("test", "1")
    assert one[conventions.SERVICE_VERSION]
    assert isinstance(one[conventions.PROCESS_PID], int)
    assert {attributes[conventions.START_ID] for attributes in told.values()} == {one[conventions.START_ID]}


def test_two_runs_of_a_process_differ() -> None:
    seen: set[object] = set()
    for _ in range(2):
        kept = Kept()
        with started(kept):
            tracing.tracer().start("one").end()
        seen.add(kept.spans[0].resource.attributes[conventions.START_ID])
    assert len(seen) == 2


def test_all_of_a_span_is_by_the_one_clock_of_its_process(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: tracing.tell_time_by(time.time_ns))
    kept = Kept()
    with started(kept):
        for now_unix_nano in (7_000, 9_000):
            tracing.tell_time_by(lambda now=now_unix_nano: now)  # type: ignore[misc]
            span = tracing.tracer().start(conventions.LEADERSHIP_CHANGE)
            tracing.tell_time_by(lambda now=now_unix_nano: now + 1)  # type: ignore[misc]
            span.end()
    assert [(span.start_time, span.end_time) for span in kept.spans] == [(7_000, 7_001), (9_000, 9_001)]
