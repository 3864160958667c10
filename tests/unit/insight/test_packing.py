"""Spans that wait for the rest of their trace: in one process, and as bytes that go between processes."""

import itertools
import random
import tracemalloc

import pytest
from regnum_insight.spans.packing import Waiting, packed, spans_of_trace
from regnum_insight.spans.span import Kind, Span


def span(number: int, *, process: str = "broker 1", end_ns: int = 7, **attributes: str) -> Span:
    links = (("b" * 32, "c" * 16),) if number % 2 else ()
    return Span("a" * 32, f"{number:016x}", "", "append", Kind.INTERNAL.value, 5, end_ns, process, attributes, links)


def trace_of(one: Span) -> str:
    return one.trace_id


SPANS = (
    span(1),
    span(2, topic="orders"),
    span(3, topic="orders", partition="0"),
    span(4, process="broker 2", topic=""),
)


def waited(*spans: Span) -> list[Span]:
    waiting = Waiting()
    for one in spans:
        waiting.add([one], trace_of)
    (found,) = waiting.traces()
    return found


@pytest.mark.parametrize("seed", range(5))
def test_each_span_comes_back_once_and_in_the_order_of_ids(seed):
    mixed = [*SPANS, *SPANS]
    random.Random(seed).shuffle(mixed)
    assert waited(*mixed) == list(SPANS)
    assert spans_of_trace("a" * 32, map(packed, mixed)) == list(SPANS)


def test_of_spans_that_differ_under_one_id_the_same_one_counts_in_any_order_and_either_way():
    different = (span(1, topic="a"), span(1, topic="b"), span(1, process="broker 9"), span(1, end_ns=8))
    orders = [list(order) for order in itertools.permutations(different)]
    found = [waited(*order) for order in orders]
    found += [spans_of_trace("a" * 32, map(packed, order)) for order in orders]
    assert all(one == found[0] for one in found)


def test_spans_that_come_together_go_to_the_trace_that_each_belongs_to():
    mixed = [one._replace(trace_id=trace * 32) for one in SPANS for trace in "ab"]
    waiting = Waiting()
    waiting.add(mixed, lambda one: "b" * 32 if one.name == "append" and one.process == "broker 2" else one.trace_id)
    first, second = waiting.traces()
    assert [(one.trace_id, one.span_id) for one in first] == [("a" * 32, one.span_id) for one in SPANS[:3]]
    assert [(one.trace_id, one.span_id) for one in second] == [("b" * 32, one.span_id) for one in SPANS]


def test_any_text_and_any_time_comes_back():
    odd = span(1, end_ns=2**63 - 1, quoted='"\\\n\x00', foreign="é\U0001f600", empty="", zero="-0", process="ö 1")
    assert waited(odd) == [odd]


def test_traces_come_in_the_order_of_their_ids():
    waiting = Waiting()
    for trace_id in ("c" * 32, "a" * 32, "b" * 32):
        waiting.add([span(1)._replace(trace_id=trace_id)], trace_of)
    assert [found[0].trace_id for found in waiting.traces()] == ["a" * 32, "b" * 32, "c" * 32]


def test_what_many_spans_have_in_common_is_held_once():
    names = {f"regnum.an.attribute.with.a.long.name.{number}": "x" for number in range(20)}
    tracemalloc.start()
    try:
        waiting = Waiting()
        for number in range(5000):
            waiting.add([span(number, process="broker with a long name", **names)], trace_of)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Names of attributes alone would be 760 bytes of each.
    assert held / 5000 < 300
