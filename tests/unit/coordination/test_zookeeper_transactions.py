"""What ZooKeeper's transactions carry and answer, and which groups can happen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import (
    AuthFailedError,
    BadArgumentsError,
    BadVersionError,
    InvalidACLError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    QuotaExceededError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.exceptions import ConnectionLoss as KazooConnectionLoss
from regnum_coordination.drivers.memory.tree import Tree
from regnum_coordination.drivers.zookeeper.answers import to_error, wire_version
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.drivers.zookeeper.transactions import (
    MAX_OPERATIONS,
    MAX_TRANSACTION_BYTES,
    Packer,
    Seen,
    check_size,
    checked_instead,
    first_failure,
    refusal,
    results,
    sent,
    size,
    touched,
)
from regnum_coordination.errors import (
    BadVersion,
    ConnectionLoss,
    InvalidRequest,
    NoAuth,
    NodeExists,
    NodeFailure,
    NoNode,
    NotEmpty,
    SessionExpired,
    StoreFull,
)
from regnum_coordination.port import Absent, Check, Create, Delete, Operation, OperationResult, Set, Stat

NAMES = ServerNames("/r")


@pytest.mark.parametrize(("version", "wire"), [(None, -1), (0, 0), (5, 5), (-1, 2**31 - 1), (2**40, 2**31 - 1)])
def test_no_number_of_ours_means_any_version(version: int | None, wire: int) -> None:
    assert wire_version(version) == wire


def test_the_operation_that_failed_is_neither_rolled_back_nor_skipped() -> None:
    failed = BadVersionError()
    assert first_failure([RolledBackError(), failed, RuntimeInconsistency()]) == (1, failed)
    assert first_failure([True, "/x"]) is None


def test_results_of_a_transaction() -> None:
    left = [
        Stat(creation_id=3, modification_id=9, version=version, children_id=5, ephemeral_owner=77) for version in (4, 5)
    ]
    stats = iter(left)
    assert results([Check("/c"), Create("/n", b"", ephemeral=True), Set("/s", b"", 3)], stats, 9, 42) == (
        OperationResult("/c", None),
        OperationResult("/n", Stat(creation_id=9, modification_id=9, version=0, children_id=9, ephemeral_owner=42)),
        OperationResult("/s", left[0]),
    )
    assert results([Absent("/x"), Delete("/d", 1), Set("/t", b"", 4)], stats, 9, 42) == (
        OperationResult("/x", None),
        OperationResult("/d", None),
        OperationResult("/t", left[1]),
    )


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (NoNodeError(), NoNode),
        (NoChildrenForEphemeralsError(), NoNode),
        (NodeExistsError(), NodeExists),
        (NotEmptyError(), NotEmpty),
        (BadVersionError(), BadVersion),
        (SessionExpiredError(), SessionExpired),
        (SessionMovedError(), ConnectionLoss),
        (KazooConnectionLoss(), ConnectionLoss),
        (NoAuthError(), NoAuth),
        (AuthFailedError(), NoAuth),
        (InvalidACLError(), NoAuth),
        (QuotaExceededError(), StoreFull),
        (BadArgumentsError(), InvalidRequest),
        (RuntimeError("xids do not match"), ConnectionLoss),
    ],
)
def test_errors_have_the_ports_names(found: Exception, wanted: type[Exception]) -> None:
    error = to_error(found, "/a", 3)
    assert type(error) is wanted
    if isinstance(error, NodeFailure):
        assert error.path == "/a"


def test_packs_are_full_and_not_more() -> None:
    packer = Packer(fence_size=100)
    packs = [pack for index in range(MAX_OPERATIONS) if (pack := packer.add(index, 2, 100))]
    packs.append(packer.rest())
    assert [len(pack) for pack in packs] == [MAX_OPERATIONS // 2] * 2
    assert sorted(index for pack in packs for index in pack) == list(range(MAX_OPERATIONS))
    assert packer.rest() == []
    assert packer.add(0, 1, MAX_TRANSACTION_BYTES - 100) == []
    assert packer.add(1, 1, 1) == [0]


def test_a_check_of_absence_is_two_operations() -> None:
    assert sent([Check("/c"), Absent("/x"), Create("/n", b"")]) == 4
    assert size([Absent("/日")], NAMES) == size([Create("/日", b""), Delete("/日", 0)], NAMES)


def test_what_is_checked_instead_of_an_absence_that_cannot_be_created() -> None:
    check = Absent("/a/b/c")
    assert checked_instead(check, "/a/b/c", NoNodeError()) == "/a/b"
    assert checked_instead(check, "/a/b", NoNodeError()) == "/a"
    assert checked_instead(check, "/a", NoNodeError()) is None
    assert checked_instead(check, "/a", NodeExistsError()) == "/a/b/c"
    assert checked_instead(check, "/a/b/c", NodeExistsError()) is None
    assert checked_instead(check, "/a/b", NoChildrenForEphemeralsError()) is None


def test_what_fits_into_no_frame_is_refused() -> None:
    check_size([Set("/a", b"x" * 1_000_000, 0)], NAMES)
    with pytest.raises(InvalidRequest, match="split it"):
        check_size([Create(f"/{number}", b"") for number in range(16_000)], NAMES)
    with pytest.raises(InvalidRequest):
        check_size([Create("/" + "日" * 350_000, b"")], NAMES)


_PATHS = st.sampled_from(["/a", "/a/x", "/a/y", "/b", "/e", "/e/x"])
_VERSIONS = st.sampled_from([None, 0, 1])
_OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Check, _PATHS, _VERSIONS),
    st.builds(Absent, _PATHS),
    st.builds(lambda path, ephemeral: Create(path, b"", ephemeral=ephemeral), _PATHS, st.booleans()),
    st.builds(lambda path, version: Set(path, b"", version), _PATHS, _VERSIONS),
    st.builds(Delete, _PATHS, _VERSIONS),
)


@given(st.lists(_OPERATIONS, max_size=8), st.lists(_OPERATIONS, min_size=1, max_size=4))
def test_a_group_is_refused_as_the_memory_store_would(before: list[Operation], group: list[Operation]) -> None:
    """The memory store is the reference: the same first failure, or none."""
    tree = Tree()
    for operation in before:
        try:
            tree.apply([operation], 1)
        except NodeFailure:
            continue
    seen: dict[str, Seen | None] = {}
    for path in touched(group):
        node, children = tree.get(path), tree.children(path)
        seen[path] = (
            None
            if node is None or children is None
            else Seen(
                version=node.stat.version,
                ephemeral=node.stat.ephemeral_owner is not None,
                children=len(children.names),
            )
        )
    wanted: NodeFailure | None = None
    try:
        tree.apply(group, 1)
    except NodeFailure as error:
        wanted = error
    found = refusal(group, seen)
    assert (type(found), None if found is None else found.path) == (
        type(wanted),
        None if wanted is None else wanted.path,
    )
