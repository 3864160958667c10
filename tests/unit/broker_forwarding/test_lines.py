"""Which call is passed on next: connections take turns, and what waits is bounded."""

import random

import pytest
from regnum_broker.forwarding.lines import PRINCIPAL_TIMES, LineFullError, LineLimits, Lines, Ticket

PRINCIPALS = {"a": "User:p", "b": "User:p", "c": "User:q", "d": "User:r"}


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


def enter(lines: Lines, connection: str, size: int, *, principal: str | None = None) -> Ticket:
    """A call of a principal of its own, unless another is said."""
    return lines.enter(connection, size, principal=principal or f"User:{connection}")


def test_connections_take_turns_however_much_one_of_them_sends() -> None:
    lines = Lines(small())
    many = [enter(lines, "a", 1) for _ in range(3)]
    one = enter(lines, "b", 1)
    assert lines.admit() == [many[0], one]
    lines.leave(many[0])
    assert lines.admit() == [many[1]]
    lines.leave(one)
    assert lines.admit() == [], "the connection has one under way, as many as it may"
    assert not many[2].is_under_way


def test_a_free_place_goes_to_another_connection_before_the_same_one_again() -> None:
    lines = Lines(small(under_way_max=1, under_way_of_connection=5))
    first, again = enter(lines, "a", 1), enter(lines, "a", 1)
    other = enter(lines, "b", 1)
    assert lines.admit() == [first]
    lines.leave(first)
    assert lines.admit() == [other]
    lines.leave(other)
    assert lines.admit() == [again]


def test_what_waits_is_bounded_in_calls_of_one_in_calls_of_all_and_in_bytes() -> None:
    lines = Lines(small())
    for _ in range(5):
        enter(lines, "a", 1)
    with pytest.raises(LineFullError, match="this connection"):
        enter(lines, "a", 1)
    with pytest.raises(LineFullError, match="bytes"):
        enter(lines, "b", 96)
    for name in "bcdef":
        enter(lines, name, 1)
    with pytest.raises(LineFullError, match="10 calls"):
        enter(lines, "g", 1)
    assert (lines.calls, lines.bytes) == (10, 10), "what was refused leaves nothing behind"


def fill(lines: Lines, connection: str, size: int, *, principal: str | None = None) -> int:
    """Calls of one connection until it is refused."""
    for number in range(1_000):
        try:
            enter(lines, connection, size, principal=principal)
        except LineFullError:
            return number
    raise AssertionError("it was never refused")


def test_one_that_sends_large_calls_without_end_leaves_room_for_others() -> None:
    lines, largest = Lines(LineLimits()), 8 * 1024 * 1024
    assert fill(lines, "greedy", largest) == 2
    enter(lines, "other", largest)
    assert fill(lines, "small", 1_000) > 0


def test_many_that_send_small_calls_without_end_leave_places_for_others() -> None:
    lines = Lines(LineLimits())
    taken = [fill(lines, f"greedy-{number}", 1_000) for number in range(12)]
    assert taken == [100] * 9 + [50, 25, 12]
    assert fill(lines, "other", 1_000) > 0


def test_a_thousand_connections_of_one_principal_leave_room_for_another_and_for_a_third() -> None:
    lines = Lines(LineLimits())
    assert sum(fill(lines, f"c{number}", 1, principal="User:crowd") > 0 for number in range(1_000)) < 1_000
    taken = lines.calls
    assert 700 <= taken <= 750, "one alone has three quarters"
    crowd = lines.admit()
    assert len(crowd) == 96
    other = enter(lines, "other", 1)
    assert lines.admit() == [other], "it goes at once, though the controller answers nobody"
    assert fill(lines, "other", 1, principal="User:other") > 50
    assert fill(lines, "third", 1) > 20


def test_principals_take_turns_and_of_each_its_connections() -> None:
    lines = Lines(small(under_way_max=1, under_way_of_connection=5))
    crowd = [enter(lines, f"c{number}", 1, principal="User:crowd") for number in range(3)]
    one = enter(lines, "d", 1, principal="User:one")
    order: list[Ticket] = []
    while lines.calls:
        (next_one,) = lines.admit()
        order.append(next_one)
        lines.leave(next_one)
    assert order == [crowd[0], one, crowd[1], crowd[2]]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_and_goes_the_counts_are_right_and_nobody_is_forgotten(seed: int) -> None:
    chance = random.Random(seed)
    limits = small(under_way_max=3, under_way_of_connection=2)
    lines = Lines(limits)
    there: list[Ticket] = []
    for _ in range(2_000):
        if chance.random() < 0.5:
            try:
                connection = chance.choice("abcd")
                there.append(enter(lines, connection, chance.randint(0, 30), principal=PRINCIPALS[connection]))
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
        left = limits.under_way_max - len(under_way)
        for one in {ticket.connection for ticket in there if not ticket.is_under_way} if left else ():
            of_principal = sum(PRINCIPALS[other] == PRINCIPALS[one] for other in under_way)
            assert under_way.count(one) == limits.under_way_of_connection or (
                of_principal and of_principal + 1 > PRINCIPAL_TIMES * (left - 1)
            ), "who waits while there is a place has as many as it may"
    for ticket in there:
        lines.leave(ticket)
    assert (lines.calls, lines.under_way, lines.bytes) == (0, 0, 0)
    assert lines._waiting == lines._ready == lines._bytes == lines._principals == {}, (
        "a connection that has gone is not remembered"
    )
