"""Which call is passed on next: connections take turns, and what waits is bounded."""

import random

import pytest
from regnum_broker.forwarding.lines import LineFullError, LineLimits, Lines, Ticket


def small(**more: int) -> LineLimits:
    told = {
        "calls_max": 10,
        "bytes_max": 100,
        "calls_of_connection": 5,
        "under_way_max": 2,
        "under_way_of_connection": 1,
        **more,
    }
    return LineLimits(**told)


def test_connections_take_turns_however_much_one_of_them_sends() -> None:
    lines = Lines(small())
    many = [lines.enter("a", 1) for _ in range(3)]
    one = lines.enter("b", 1)
    assert lines.admit() == [many[0], one]
    lines.leave(many[0])
    assert lines.admit() == [many[1]]
    lines.leave(one)
    assert lines.admit() == [], "the connection has one under way, as many as it may"
    assert not many[2].is_under_way


def test_a_free_place_goes_to_another_connection_before_the_same_one_again() -> None:
    lines = Lines(small(under_way_max=1, under_way_of_connection=5))
    first, again = lines.enter("a", 1), lines.enter("a", 1)
    other = lines.enter("b", 1)
    assert lines.admit() == [first]
    lines.leave(first)
    assert lines.admit() == [other]
    lines.leave(other)
    assert lines.admit() == [again]


def test_what_waits_is_bounded_in_calls_of_one_in_calls_of_all_and_in_bytes() -> None:
    lines = Lines(small())
    for _ in range(5):
        lines.enter("a", 1)
    with pytest.raises(LineFullError, match="this connection"):
        lines.enter("a", 1)
    with pytest.raises(LineFullError, match="bytes"):
        lines.enter("b", 96)
    for name in "bcdef":
        lines.enter(name, 1)
    with pytest.raises(LineFullError, match="10 calls"):
        lines.enter("g", 1)
    assert (lines.calls, lines.bytes) == (10, 10), "what was refused leaves nothing behind"


def fill(lines: Lines, connection: str, size: int) -> int:
    """Calls of one connection until it is refused."""
    for number in range(1_000):
        try:
            lines.enter(connection, size)
        except LineFullError:
            return number
    raise AssertionError("it was never refused")


def test_one_that_sends_large_calls_without_end_leaves_room_for_others() -> None:
    lines, largest = Lines(LineLimits()), 8 * 1024 * 1024
    assert fill(lines, "greedy", largest) == 2
    lines.enter("other", largest)
    assert fill(lines, "small", 1_000) > 0


def test_many_that_send_small_calls_without_end_leave_places_for_others() -> None:
    lines = Lines(LineLimits())
    taken = [fill(lines, f"greedy-{number}", 1_000) for number in range(12)]
    assert taken == [100] * 9 + [50, 25, 12]
    assert fill(lines, "other", 1_000) > 0


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_and_goes_the_counts_are_right_and_nobody_is_forgotten(seed: int) -> None:
    chance = random.Random(seed)
    limits = small(under_way_max=3, under_way_of_connection=2)
    lines = Lines(limits)
    there: list[Ticket] = []
    for _ in range(2_000):
        if chance.random() < 0.5:
            try:
                there.append(lines.enter(chance.choice("abcd"), chance.randint(0, 30)))
            except LineFullError:
                assert there
        elif there:
            lines.leave(there.pop(chance.randrange(len(there))))
        admitted = lines.admit()
        assert all(ticket.is_under_way and ticket in there for ticket in admitted)
        under_way = [ticket.connection for ticket in there if ticket.is_under_way]
        assert lines.calls == len(there) <= limits.calls_max
        assert lines.bytes == sum(ticket.size for ticket in there) <= limits.bytes_max
        assert lines.under_way == len(under_way) <= limits.under_way_max
        assert all(under_way.count(one) <= limits.under_way_of_connection for one in "abcd")
        waiting = {ticket.connection for ticket in there if not ticket.is_under_way}
        if len(under_way) < limits.under_way_max:
            assert all(under_way.count(one) == limits.under_way_of_connection for one in waiting)
    for ticket in there:
        lines.leave(ticket)
    assert (lines.calls, lines.under_way, lines.bytes) == (0, 0, 0)
    assert lines._waiting == lines._ready == lines._bytes == {}, "a connection that has gone is not remembered"
