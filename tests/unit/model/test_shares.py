"""Who may hold how much: the hog leaves room, whoever comes new gets in, and all together never hold more."""

from hypothesis import given
from hypothesis import strategies as st
from regnum_model.shares import Shares

MIB = 1024 * 1024
SHARES = Shares(total_max=256 * MIB, connection_max=256 * MIB)


def filled(shares: Shares, *, own: int = 0, total: int = 0, size: int = MIB) -> int:
    """What a connection holds that takes all it can get."""
    while shares.allow(size, own=own, total=total):
        own, total = own + size, total + size
    return own


def test_one_that_takes_all_it_can_get_leaves_half():
    assert filled(SHARES) == 128 * MIB


def test_a_second_one_gets_half_of_what_is_left():
    assert filled(SHARES, total=128 * MIB) == 64 * MIB


def test_as_the_first_lets_go_both_tend_to_a_third():
    first, second = 128 * MIB, 0
    for _ in range(1_000):
        first -= MIB
        second = filled(SHARES, own=second, total=first + second)
        first = filled(SHARES, own=first, total=first + second)
    assert abs(first - 85 * MIB) <= 2 * MIB
    assert abs(second - 85 * MIB) <= 2 * MIB


def test_a_connection_has_a_bound_of_its_own():
    assert filled(Shares(total_max=256 * MIB, connection_max=10 * MIB)) == 10 * MIB


def test_who_holds_nothing_gets_in_with_what_is_larger_than_its_bound():
    shares = Shares(total_max=256 * MIB, connection_max=10 * MIB)
    assert shares.allow(64 * MIB, own=0, total=100 * MIB)
    assert not shares.allow(1, own=64 * MIB, total=164 * MIB)


def test_what_is_larger_than_all_there_is_gets_in_alone():
    assert SHARES.allow(300 * MIB, own=0, total=0)
    assert not SHARES.allow(300 * MIB, own=0, total=1)


def test_a_thousand_with_one_request_each_get_in_until_it_is_full():
    total = 0
    for _ in range(1_000):
        if SHARES.allow(MIB, own=0, total=total):
            total += MIB
    assert total == 256 * MIB


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 300 * MIB), st.booleans()), max_size=200))
def test_whatever_comes_and_goes_all_together_hold_no_more_than_there_is(steps):
    held: dict[int, list[int]] = {connection: [] for connection in range(10)}
    for connection, size, take in steps:
        total = sum(map(sum, held.values()))
        if not take and held[connection]:
            held[connection].pop()
        elif take and SHARES.allow(size, own=sum(held[connection]), total=total):
            held[connection].append(size)
            assert total + size <= SHARES.total_max or total == 0
            # Nobody who holds something already takes what would leave others less than that.
            mine = sum(held[connection])
            assert len(held[connection]) == 1 or mine <= SHARES.total_max - total - size
