"""Groups as etcd transactions: sizes, packing, and who is named when one fails."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_coordination.drivers.etcd.conditions import Seen, conditions, first_failure, places
from regnum_coordination.drivers.etcd.keys import Keys
from regnum_coordination.drivers.etcd.rpc import EtcdRpc
from regnum_coordination.drivers.etcd.transactions import (
    MAX_TRANSACTION_BYTES,
    Packer,
    Part,
    batch_request,
    check_size,
    flat_request,
    is_read_only,
    part,
    read_request,
)
from regnum_coordination.errors import BadVersion, InvalidRequest, NodeExists, NoNode, NotEmpty
from regnum_coordination.port import Absent, Check, Create, Delete, Operation, Set
from regnum_service.channel import aio_channel

KEYS = Keys("")
ABSENT = Seen(version=0, lease=0)


def _failure(operations: list[Operation], present: dict[bytes, Seen]) -> str:
    wanted = conditions(operations, KEYS)
    seen = {}
    for start, end in places(wanted):
        keys = [key for key in sorted(present) if key == start or (end is not None and start <= key < end)]
        seen[start, end] = present[keys[0]] if keys else ABSENT
    return str(first_failure(wanted, seen))


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([Check("/a", 2)], "None"),
        ([Check("/")], "None"),
        ([Check("/a", 0)], str(BadVersion("/a", expected=0, found=2))),
        ([Check("/x")], str(NoNode("/x"))),
        ([Absent("/x"), Absent("/a/n"), Absent("/x/n")], "None"),
        ([Absent("/n"), Absent("/a/b"), Absent("/a")], str(NodeExists("/a/b"))),
        ([Absent("/e/x/n")], str(NoNode("/e/x/n", "its parent is ephemeral"))),
        ([Delete("/e", 0), Absent("/e/n")], "None"),
        ([Create("/f", b"", ephemeral=True), Absent("/f/n")], str(NoNode("/f/n", "its parent is ephemeral"))),
        ([Create("/a/n", b"")], "None"),
        ([Create("/n", b"")], "None"),
        ([Create("/a/b", b"")], str(NodeExists("/a/b"))),
        ([Create("/x/n", b"")], str(NoNode("/x/n", "its parent does not exist"))),
        ([Create("/e/n", b"")], str(NoNode("/e/n", "its parent is ephemeral"))),
        ([Set("/a", b"", 1)], str(BadVersion("/a", expected=1, found=2))),
        ([Delete("/a", 2)], str(NotEmpty("/a"))),
        ([Delete("/a/b", 0), Delete("/a", 2)], "None"),
        ([Delete("/a", None), Delete("/a/b", 0)], str(NotEmpty("/a"))),
        ([Set("/a", b"", 2), Create("/a/b", b""), Check("/x")], str(NodeExists("/a/b"))),
    ],
)
def test_the_first_failing_operation_is_named(operations: list[Operation], expected: str) -> None:
    present = {
        b"/a": Seen(version=3, lease=0),
        b"/a/b": Seen(version=1, lease=0),
        b"/e": Seen(version=1, lease=77),
    }
    assert _failure(operations, present) == expected


def test_deleted_descendants_are_cut_out_of_what_must_be_empty() -> None:
    wanted = conditions([Delete("/t/0/s", 0), Delete("/t/0", 0), Delete("/t", 0)], KEYS)
    assert [place for place in places(wanted) if place[1] is not None and place[0].startswith(b"/t/")] == [
        (b"/t/0/s/", b"/t/0/s0"),
        (b"/t/0/", b"/t/0/s"),
        (b"/t/0/s\0", b"/t/00"),
        (b"/t/", b"/t/0"),
        (b"/t/0\0", b"/t/0/s"),
        (b"/t/0/s\0", b"/t0"),
    ]


def test_a_part_is_as_long_as_its_longest_list() -> None:
    assert part([Check("/a", 0)], KEYS, 1).size == 1
    assert part([Check("/a", 0), Set("/b", b"", 1)], KEYS, 1).size == 2
    assert part([Create("/a/b", b"")], KEYS, 1).size == 3
    assert part([Absent("/a")], KEYS, 1).size == 1
    assert part([Check("/a", 0), Absent("/a/b/c")], KEYS, 1).size == 4


def test_a_part_that_fits_nowhere() -> None:
    big = part([Check(f"/{number}") for number in range(127)], KEYS, 1)
    check_size(big, 129)
    with pytest.raises(InvalidRequest, match="--max-txn-ops"):
        check_size(big, 128)


def _packs(groups: Sequence[Sequence[Operation]], limit: int) -> list[list[Part]]:
    packer = Packer(limit)
    packs = [packer.add(part(group, KEYS, 1, index=index)) for index, group in enumerate(groups)]
    return [full for full in (*packs, packer.rest()) if full]


def test_127_groups_of_one_comparison_fill_a_default_transaction() -> None:
    assert [len(full) for full in _packs([[Set("/a", b"", 0)]] * 300, 128)] == [127, 127, 46]


GROUPS = st.lists(
    st.builds(
        lambda checks, size: [*(Check(f"/c{number}") for number in range(checks)), Set("/é", b"." * size, 0)],
        st.integers(0, 20),
        st.integers(1, MAX_TRANSACTION_BYTES - 100_000),
    ),
    max_size=60,
)


@given(GROUPS, st.integers(24, 300))
def test_packs_keep_the_limits_and_the_order(groups: list[list[Operation]], limit: int) -> None:
    packs = _packs(groups, limit)
    assert [item.index for full in packs for item in full] == list(range(len(groups)))
    for full in packs:
        assert len(full) + max(item.size for item in full) <= limit
        assert batch_request(full, KEYS.session(1), (), KEYS).ByteSize() <= MAX_TRANSACTION_BYTES


def test_plain_groups_go_flat_with_every_comparison_once() -> None:
    groups = [[Check("/t", 0), Check("/any"), Set(f"/t/{number}", b"1", number)] for number in range(3)]
    parts = [part(group, KEYS, 1) for group in groups]
    fence = conditions([Check("/f", 7)], KEYS)
    request = flat_request(parts, KEYS.session(1), fence, 7)
    assert request is not None
    session, fenced, *compared = request.compare
    assert session.key == KEYS.session(1)
    assert (fenced.key, fenced.version) == (b"/f", 8)
    assert sorted((one.key, one.version) for one in compared) == [
        (b"/any", 0),
        (b"/t", 1),
        (b"/t/0", 1),
        (b"/t/1", 2),
        (b"/t/2", 3),
    ]
    assert [operation.request_put.key for operation in request.success] == [b"/t/0", b"/t/1", b"/t/2"]
    assert not is_read_only(request)
    assert flat_request(parts, KEYS.session(1), fence, 6) is None


@pytest.mark.parametrize("group", [[Check("/a")], [Check("/")], [Absent("/a/b")]])
def test_what_writes_nothing_does_not_go_flat(group: list[Operation]) -> None:
    assert flat_request([part(group, KEYS, 1)], KEYS.session(1), (), 128) is None


@pytest.mark.parametrize(
    "group",
    [
        [Delete("/a/b", 3), Delete("/a", 0)],
        [Create("/b", b""), Delete("/a", 0)],
        [Check("/"), Set("/a", b"", 0)],
        [Create("/a", b"", ephemeral=True), Create("/a/b", b"")],
    ],
)
def test_what_has_conditions_of_its_own_takes_them_along(group: list[Operation]) -> None:
    request = flat_request([part([Set("/c", b"", 1)], KEYS, 1), part(group, KEYS, 1)], KEYS.session(1), (), 128)
    assert request is not None
    own = [condition.comparison for condition in conditions(group, KEYS)]
    assert list(request.compare[2:]) == own
    assert len(request.success) == 1 + sum(not isinstance(operation, Check) for operation in group)


def test_what_is_created_goes_flat_and_shares_guards_and_parents() -> None:
    groups = [
        [Check("/ids/é"), Create(f"/t/é/{number}", b""), Create(f"/t/é/{number}/state", b"s", ephemeral=True)]
        for number in range(2)
    ]
    keys = Keys("/x")
    parts = [part(group, keys, 77) for group in groups]
    request = flat_request(parts, keys.session(77), (), 8)
    assert request is not None
    first = request.compare[0]
    kinds = {first.CREATE: "exists", first.VERSION: "version", first.LEASE: "lease"}
    compared = [(one.key.decode(), kinds[one.target], one.version or one.lease) for one in request.compare]
    assert sorted(compared[1:]) == [
        ("/x/ids/é", "exists", 0),
        ("/x/t/é", "exists", 0),
        ("/x/t/é", "lease", 0),
        ("/x/t/é/0", "version", 0),
        ("/x/t/é/0/state", "version", 0),
        ("/x/t/é/1", "version", 0),
        ("/x/t/é/1/state", "version", 0),
    ]
    puts = [operation.request_put for operation in request.success]
    assert [(put.key.decode(), put.value, put.lease) for put in puts] == [
        ("/x/t/é/0", b"", 0),
        ("/x/t/é/0/state", b"s", 77),
        ("/x/t/é/1", b"", 0),
        ("/x/t/é/1/state", b"s", 77),
    ]
    assert flat_request(parts, keys.session(77), (), 7) is None


NAMES = st.sampled_from(["/a", "/a/b", "/c"])
VERSIONS = st.one_of(st.none(), st.integers(0, 3))
OPERATIONS = st.one_of(
    st.builds(Check, NAMES, VERSIONS),
    st.builds(Absent, NAMES),
    st.builds(Create, NAMES, st.just(b"")),
    st.builds(Set, NAMES, st.just(b""), VERSIONS),
    st.builds(Delete, NAMES, VERSIONS),
)


@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=3), min_size=1, max_size=4), st.one_of(st.none(), VERSIONS))
def test_no_write_is_a_read_only_transaction(groups: list[list[Operation]], fence: int | None) -> None:
    parts = [part(group, KEYS, 1) for group in groups]
    fences = () if fence is None else conditions([Check("/f", fence)], KEYS)
    assert not is_read_only(batch_request(parts, KEYS.session(1), fences, KEYS))


def test_checks_alone_are_no_read_only_transaction() -> None:
    """The root needs not even a comparison."""
    for checked in ("/", "/a"):
        assert not is_read_only(batch_request([part([Check(checked)], KEYS, 1)], KEYS.session(1), (), KEYS))


@pytest.mark.parametrize("keys_only", [False, True])
def test_no_read_is_a_read_only_transaction_or_deletes_a_node(keys_only: bool) -> None:
    request = read_request([b"/a", b"/b"], KEYS, keys_only=keys_only)
    assert not is_read_only(request)
    assert [operation.request_range.key for operation in request.success] == [b"/a", b"/b"]
    # etcd never grants a lease with the id 0.
    assert [operation.request_delete_range.key for operation in request.failure] == [b"/.sessions/" + b"0" * 16]
    assert not any(operation.request_delete_range.range_end for operation in request.failure)


def test_ranges_in_both_branches_are_a_read_only_transaction() -> None:
    from etcd3.etcdrpc import rpc_pb2  # noqa: PLC0415 - loadable once the driver is

    look = rpc_pb2.RequestOp(request_range=rpc_pb2.RangeRequest(key=b"/a"))
    write = rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=b"/a"))
    assert is_read_only(rpc_pb2.TxnRequest())
    assert is_read_only(rpc_pb2.TxnRequest(success=[look], failure=[look]))
    assert not is_read_only(rpc_pb2.TxnRequest(success=[look], failure=[look, write]))
    assert not is_read_only(rpc_pb2.TxnRequest(success=[write], failure=[look]))


async def test_a_read_only_transaction_is_not_sent() -> None:
    from etcd3.etcdrpc import rpc_pb2  # noqa: PLC0415 - loadable once the driver is

    async with aio_channel("127.0.0.1:1") as channel:
        rpc = EtcdRpc([channel], timeout_s=1.0)
        with pytest.raises(AssertionError, match="read-only"):
            await rpc.txn(rpc_pb2.TxnRequest())
