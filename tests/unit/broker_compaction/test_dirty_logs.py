"""Which log is compacted next."""

from hypothesis import given
from hypothesis import strategies as st
from regnum_broker.compaction.dirty_logs import DirtyLogs

LOGS = st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(0, 10), st.integers(0, 200)), max_size=60)


@given(logs=LOGS, small=st.booleans())
def test_the_dirtiest_is_next_and_what_is_overdue_goes_before(
    *, logs: list[tuple[int, bool, int, int]], small: bool
) -> None:
    waiting = DirtyLogs[int](small_bytes=100)
    expected: dict[int, tuple[bool, int, int, int]] = {}
    for order, (key, overdue, tenths, size) in enumerate(logs):
        waiting.put(key, is_overdue=overdue, dirty_ratio=tenths / 10, size_bytes=size)
        expected[key] = (not overdue, -tenths, order, size)
    assert len(waiting) == len(expected)
    assert waiting.dirtiest == max((-one[1] / 10 for one in expected.values()), default=0)
    wanted = sorted(key for key, one in expected.items() if not small or one[3] <= 100)
    wanted.sort(key=lambda key: expected[key][:3])
    found: list[int] = []
    while (key := waiting.take(small=small)) is not None:
        found.append(key)
    assert found == wanted
    assert len(waiting) == len(expected) - len(wanted)


def test_a_log_that_is_taken_or_discarded_waits_in_no_place() -> None:
    waiting = DirtyLogs[str](small_bytes=100)
    for key in ("a", "b", "c"):
        waiting.put(key, is_overdue=False, dirty_ratio=0.5, size_bytes=1)
    waiting.discard("b")
    assert [waiting.take(small=True), waiting.take(small=False), waiting.take(small=True)] == ["a", "c", None]


def test_logs_that_become_dirtier_again_and_again_take_no_more_room_for_it() -> None:
    waiting = DirtyLogs[int]()
    for number in range(10_000):
        waiting.put(number % 3, is_overdue=False, dirty_ratio=number / 10_000, size_bytes=1)
    assert len(waiting._any) < 300
    assert waiting.take(small=False) == 0
