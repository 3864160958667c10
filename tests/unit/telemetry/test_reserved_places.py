"""Spans that are made when all of their trace is known, at a place that was handed out before."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_ON
from regnum_telemetry import propagation, tracing
from regnum_telemetry.otel import OtelTracer


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def _tracer(exporter: InMemorySpanExporter, *, on: bool = True) -> OtelTracer:
    provider = TracerProvider(shutdown_on_exit=False, sampler=DEFAULT_ON if on else ALWAYS_OFF)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OtelTracer(provider)


def test_a_span_is_made_where_its_children_were_told_that_it_is(exporter: InMemorySpanExporter) -> None:
    tracer = _tracer(exporter)
    place, other = tracer.reserve("root"), tracer.reserve("root")
    assert place != other
    child = tracer.start("child", parent=place)
    child.end()
    tracer.start("another").end()
    tracer.start("root", place=place, at_unix_nano=5, links=(other,)).end(9)
    told = propagation.parse(place)
    assert told is not None
    assert propagation.root_of(child.context) == place, "who knows the trace knows its root"
    below, another, root = exporter.get_finished_spans()
    assert root.context is not None
    assert below.parent is not None
    assert another.context is not None
    assert (f"{root.context.trace_id:032x}", f"{root.context.span_id:016x}") == (told.trace_id, told.span_id)
    assert (root.parent, root.start_time, root.end_time) == (None, 5, 9)
    assert (below.parent.trace_id, below.parent.span_id) == (root.context.trace_id, root.context.span_id)
    # Only that one: ids are random otherwise.
    assert another.context.trace_id != root.context.trace_id


def test_a_span_may_have_an_id_that_was_told_before_within_a_trace_that_was_not_known_then(
    exporter: InMemorySpanExporter,
) -> None:
    tracer = _tracer(exporter)
    above = tracer.start("above")
    told = propagation.beside(above.context, "ab" * 8)
    below = tracer.start("below", parent=above.context, place=told)
    assert below.context == told
    below.end()
    assert exporter.get_finished_spans()[0].parent is not None
    assert propagation.beside(above.context, "") == propagation.beside("", "ab" * 8) == ""


def test_where_nothing_is_sampled_places_say_so(exporter: InMemorySpanExporter) -> None:
    tracer = _tracer(exporter, on=False)
    place = tracer.reserve("root")
    told = propagation.parse(place)
    assert told is not None
    assert not told.sampled
    tracer.start("child", parent=place).end()
    tracer.start("root", place=place).end()
    assert exporter.get_finished_spans() == ()


def test_a_place_is_no_part_of_the_call_that_is_served(exporter: InMemorySpanExporter) -> None:
    """A change of leadership that a call asks for is a trace of its own, whatever flag the caller sends."""
    tracer = _tracer(exporter)
    with tracing.within("00-" + "a" * 32 + "-" + "b" * 16 + "-00"):
        told = propagation.parse(tracer.reserve("root"))
    assert told is not None
    assert told.sampled
    assert told.trace_id != "a" * 32


def test_without_set_up_there_are_no_places() -> None:
    assert tracing.NoTracer().reserve("root") == ""
