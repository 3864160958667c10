"""W3C trace context and the causes that trail an answer."""

from collections.abc import AsyncGenerator

import pytest
from regnum_telemetry import propagation, tracing

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_a_traceparent_is_read_and_written_back() -> None:
    context = propagation.parse(GOOD)
    assert context == (TRACE, SPAN, 1)
    assert propagation.render(context) == GOOD


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True)])
def test_only_one_flag_says_whether_spans_are_recorded(flags: str, sampled: bool) -> None:
    context = propagation.parse(f"00-{TRACE}-{SPAN}-{flags}")
    assert context is not None
    assert context.sampled is sampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE[:-1]}-{SPAN}-01",
    ],
)
def test_what_is_no_traceparent_is_none(text: str) -> None:
    assert propagation.parse(text) is None
    assert propagation.from_metadata([(propagation.TRACEPARENT, text)]) == ""


def test_a_later_version_may_say_more() -> None:
    assert propagation.parse(f"01-{TRACE}-{SPAN}-01-more") == (TRACE, SPAN, 1)


def test_metadata_without_one_is_empty() -> None:
    assert propagation.from_metadata(None) == ""
    assert propagation.from_metadata([("user-agent", "x"), (propagation.TRACEPARENT, b"\x00")]) == ""
    assert propagation.from_metadata([("user-agent", "x"), (propagation.TRACEPARENT, GOOD)]) == GOOD


def test_a_client_that_comes_back_names_its_spans() -> None:
    named = {("topic", 0): SPAN, ("other", 12): SPAN[::-1]}
    value = propagation.render_recovering(named)
    assert propagation.parse_recovering([("user-agent", "x"), (propagation.RECOVERING, value)]) == named
    assert propagation.parse_recovering([(propagation.RECOVERING, propagation.render_recovering({}))]) == {}
    assert propagation.parse_recovering(None) is None
    many = {("t", number): SPAN for number in range(propagation.NAMED_MAX + 5)}
    assert len(propagation.render_recovering(many).split(",")) == propagation.NAMED_MAX
    for wrong in ("t:0", f"t:0={SPAN[:-1]}", f"t:x={SPAN}", f"t:0={'0' * 16}", f"t:0={SPAN.upper()}", f"t:0={SPAN};"):
        assert propagation.parse_recovering([(propagation.RECOVERING, wrong)]) == {}


def test_causes_come_back_by_their_places() -> None:
    other = f"00-{TRACE[::-1]}-{SPAN}-01"
    told = propagation.render_causes([(0, GOOD), (1, ""), (3, other), (7, GOOD)])
    assert len(told) == 2
    assert propagation.parse_causes(told) == {0: GOOD, 3: other, 7: GOOD}


def test_causes_are_bounded_and_what_is_malformed_is_left_out() -> None:
    for told in (
        propagation.render_causes((place, GOOD) for place in range(10_000)),
        propagation.render_causes((place, f"00-{place + 1:032x}-{SPAN}-01") for place in range(10_000)),
    ):
        # As gRPC counts them: its clients fail calls with 8 KiB.
        size = sum(len(key) + len(value) + propagation.ENTRY_BYTES for key, value in told)
        assert propagation.CAUSES_BYTES_MAX - 110 < size <= propagation.CAUSES_BYTES_MAX
    broken = [(propagation.CAUSES, "x;1"), (propagation.CAUSES, f"{GOOD};1,x,-2,3"), ("other", f"{GOOD};9")]
    assert propagation.parse_causes(broken) == {1: GOOD, 3: GOOD}


def test_causes_of_fetches_go_by_topic_id_and_partition() -> None:
    one, two = (f"00-{'ab' * 16}-{id * 16}-01" for id in "12")
    told = propagation.render_fetch_causes([("T1", 0, one), ("T1", 3, two), ("T2", 0, one), ("T3", 1, "")])
    assert told == [(propagation.FETCH_CAUSES, f"{one};T1:0,T2:0"), (propagation.FETCH_CAUSES, f"{two};T1:3")]
    assert propagation.parse_fetch_causes(told) == {("T1", 0): one, ("T2", 0): one, ("T1", 3): two}
    odd = [(propagation.FETCH_CAUSES, f"{one};:1,T,T:x,T:²,T:7"), (propagation.FETCH_CAUSES, "nothing;T:1"), ("k", one)]
    assert propagation.parse_fetch_causes(odd) == {("T", 7): one}
    assert propagation.parse_fetch_causes(None) == {}
    ((key, value),) = propagation.render_fetch_causes(("T", number, one) for number in range(10_000))
    size = len(key) + len(value) + propagation.ENTRY_BYTES
    assert propagation.CAUSES_BYTES_MAX - 10 < size <= propagation.CAUSES_BYTES_MAX


def test_what_a_client_waits_for_is_named_first() -> None:
    """An answer has no room for the causes of all partitions that a client may read."""
    moved = [(place, f"00-{place + 1:032x}-{SPAN}-01") for place in range(10_000)]
    told = propagation.render_causes(moved, first={9_000, 9_999})
    assert list(propagation.parse_causes(told).items())[:3] == [moved[9_000], moved[9_999], moved[0]]
    read = propagation.render_fetch_causes((("T", *one) for one in moved), first={("T", 9_000)})
    assert list(propagation.parse_fetch_causes(read))[:2] == [("T", 9_000), ("T", 0)]


async def test_steps_belong_to_a_place_and_what_runs_between_them_does_not() -> None:
    seen: list[str] = []
    closed: list[bool] = []

    async def steps() -> AsyncGenerator[None, None]:
        try:
            for _ in range(3):
                seen.append(tracing.current())
                yield
        finally:
            closed.append(True)

    async for _ in tracing.each_within(GOOD, steps()):
        assert tracing.current() == ""
    assert (seen, closed) == ([GOOD] * 3, [True])
    # Who gives up between two of them ends them as well.
    given_up = tracing.each_within(GOOD, steps())
    await anext(given_up)
    await given_up.aclose()
    assert closed == [True, True]


def test_who_waited_and_who_answered_come_to_the_same_id_by_themselves() -> None:
    change = f"00-{'ab' * 16}-{'cd' * 8}-01"
    one = propagation.waiting_id(change, "t", 1, 70)
    assert propagation.parse(propagation.beside(change, one)) is not None
    others = [("u", 1, 70), ("t", 2, 70), ("t", 1, 71)]
    assert len({one, *(propagation.waiting_id(change, *other) for other in others)}) == 4
    assert propagation.waiting_id("", "t", 1, 70) == "", "nothing was waited for"
