"""Marks of what a log remembered: as few as there may be, and never far below a cut."""

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from immutables import Map
from regnum_broker.log.replica.producers.marks import EVERY, FORGOTTEN_MAX, MARKS_MAX, ProducerMarks
from regnum_broker.log.replica.producers.states import NOBODY, KeptBatch, ProducerEntry


def entries(end_offset: int) -> Map[int, ProducerEntry]:
    """What tells of which end it is."""
    return Map({7: ProducerEntry(0, (KeptBatch(0, 0, end_offset - 1, end_offset - 1),), 0)})


def grown(batches: int) -> ProducerMarks:
    """Of a log of so many batches with one record each."""
    marks = ProducerMarks()
    for end in range(1, batches + 1):
        marks.note(1, end, entries(end))
    return marks


REACH: Final = 8_000
"""Batches from the end up to which there is always a mark."""


@settings(deadline=None)
@given(st.integers(1, 20_000), st.data())
def test_what_follows_a_mark_is_no_longer_than_what_is_cut_or_a_few_batches(batches: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, min(batches, REACH)))
    mark = grown(batches).newest(at_most=batches - cut)
    assert mark is not None
    assert batches - cut - mark.end_offset < cut + EVERY
    assert mark.entries == (entries(mark.end_offset) if mark.end_offset else NOBODY)


def test_a_log_of_any_length_has_few_marks_that_reach_far_back() -> None:
    marks = grown(300_000)
    ends = [300_000]
    while mark := marks.newest(at_most=ends[-1] - 1):
        ends.append(mark.end_offset)
    assert len(ends) - 1 <= MARKS_MAX
    assert ends[-1] <= 300_000 - REACH
    assert marks.newest(at_most=0) is None


@given(
    st.lists(
        st.one_of(st.tuples(st.just("grow"), st.integers(1, 300)), st.tuples(st.just("cut"), st.integers(1, 300))),
        max_size=30,
    )
)
def test_a_mark_is_never_of_records_that_were_cut(steps: list[tuple[str, int]]) -> None:
    """Ends are reached again with other batches: what is remembered must be of these."""
    marks, log = ProducerMarks(), [0]
    for life, (kind, number) in enumerate(steps, start=1):
        if kind == "grow":
            for _ in range(number):
                log.append(life)
                marks.note(1, len(log) - 1, Map({life: entries(1)[7]}))
        else:
            del log[max(1, len(log) - number) :]
            marks.cut(len(log) - 1, Map({log[-1]: entries(1)[7]}) if log[-1] else NOBODY)
        mark = marks.newest(at_most=len(log) - 1)
        if mark is not None and mark.entries:
            assert list(mark.entries) == [log[mark.end_offset]]


def test_a_log_without_producers_has_no_marks_and_knows_where_the_first_came() -> None:
    marks = ProducerMarks()
    for end in range(1, 1001):
        marks.note(1, end, NOBODY)
    assert marks.newest(at_most=1000) is None
    marks.note(1, 1001, entries(1001))
    mark = marks.newest(at_most=1000)
    assert mark is not None
    assert (mark.end_offset, mark.entries) == (1000, NOBODY)


def test_who_expired_is_forgotten_everywhere() -> None:
    marks = grown(100)
    marks.forget((7, 8), NOBODY)
    mark = marks.newest(at_most=90)
    assert mark is not None
    assert mark.entries == NOBODY


def test_many_who_expired_cost_no_walk_through_all_marks() -> None:
    marks, many = ProducerMarks(), Map({id: entries(1)[7] for id in range(FORGOTTEN_MAX + 1)})
    for end in range(1, 101):
        marks.note(1, end, many)
    marks.forget(range(FORGOTTEN_MAX + 1), NOBODY)
    assert marks.newest(at_most=100) is None, "only a snapshot can tell"
    marks.note(1, 101, entries(101))
    mark = marks.newest(at_most=100)
    assert mark is not None
    assert (mark.end_offset, mark.entries) == (100, NOBODY)
