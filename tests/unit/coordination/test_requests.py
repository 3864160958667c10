"""Which groups may share a transaction, and what is refused on every driver."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.port import Absent, Check, Create, Delete, Group, Operation, Set
from regnum_coordination.requests import check_batch, check_operations, footprint, waves

PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/b/x"])
OPERATIONS = st.one_of(
    st.builds(Check, PATHS),
    st.builds(Absent, PATHS),
    st.builds(Create, PATHS, st.just(b"")),
    st.builds(Set, PATHS, st.just(b""), st.just(0)),
    st.builds(Delete, PATHS, st.just(0)),
)


def test_the_example() -> None:
    groups: list[Group] = [
        (Set("/a", b"", 0),),
        (Set("/b", b"", 0),),
        (Check("/a", 1), Set("/c", b"", 0)),
        (Create("/a/x", b""),),
    ]
    assert waves(groups) == ((0, 1), (2, 3))


def test_siblings_share_a_transaction() -> None:
    groups: list[Group] = [(Create(f"/d/{number}", b""),) for number in range(5)]
    assert waves([*groups, (Set("/e", b"", 0),)]) == (tuple(range(6)),)


def test_emptying_a_folder_comes_before_deleting_it() -> None:
    assert waves([(Delete("/d/x", 0),), (Delete("/d", 0),)]) == ((0,), (1,))
    assert waves([(Delete("/d", 0),), (Delete("/d/x", 0),)]) == ((0, 1),)


def test_reading_what_a_later_group_writes_shares_a_transaction() -> None:
    """Comparisons look at the time before the transaction, which is the order of the list."""
    assert waves([(Check("/a"), Set("/b", b"", 0)), (Set("/a", b"", 0),)]) == ((0, 1),)


@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=2).map(tuple), max_size=12))
def test_no_wave_holds_a_write_and_a_later_use_of_it(groups: list[Group]) -> None:
    result = waves(groups)
    assert sorted(index for wave in result for index in wave) == list(range(len(groups)))
    for wave in result:
        for place, earlier in enumerate(wave):
            before = footprint(groups[earlier])
            for later in wave[place + 1 :]:
                after = footprint(groups[later])
                assert not before.writes & (after.reads | after.writes)
                assert not before.changes_children & after.reads_children


@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=2).map(tuple), max_size=12))
def test_users_of_a_write_are_in_later_waves(groups: list[Group]) -> None:
    wave_of = {index: number for number, wave in enumerate(waves(groups)) for index in wave}
    for earlier in range(len(groups)):
        for later in range(earlier + 1, len(groups)):
            before, after = footprint(groups[earlier]), footprint(groups[later])
            if before.writes & (after.reads | after.writes) or before.changes_children & after.reads_children:
                assert wave_of[earlier] < wave_of[later]


@pytest.mark.parametrize(
    "operations",
    [
        [Set("/a", b"", 0), Delete("/a", 0)],
        [Delete("/a", 0), Check("/a")],
        [Absent("/a"), Create("/a", b"")],
        [Create("/a", b""), Absent("/a")],
        [Absent("/a"), Delete("/a", 0)],
        [Absent("/")],
        [Create("/", b"")],
        [Create("/a", b"x" * 1_000_001)],
        [Create("/a", b"x" * 600_000), Create("/b", b"x" * 600_000)],
        [Check("relative")],
    ],
)
def test_refused_operations(operations: list[Operation]) -> None:
    with pytest.raises(InvalidRequest):
        check_operations(operations)
    with pytest.raises(InvalidRequest):
        check_batch([(Create("/fine", b""),), tuple(operations)], None)


def test_refused_batches() -> None:
    with pytest.raises(InvalidRequest, match="empty"):
        check_batch([()], None)
    with pytest.raises(InvalidRequest, match="fences"):
        check_batch([(Set("/f", b"", 0),)], Check("/f", 0))
    check_batch([(Check("/f"), Absent("/f"), Absent("/f"), Set("/a", b"", 0))], Check("/f", 0))
