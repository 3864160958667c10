"""Transactions as one request: the bytes are kazoo's own, and so is what is read of an answer."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import BadVersionError, RolledBackError, RuntimeInconsistency
from kazoo.protocol import serialization
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE
from regnum_coordination.drivers.zookeeper.answers import stat_of, wire_version
from regnum_coordination.drivers.zookeeper.bulk_writes import BulkWrite
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.port import Absent, Check, Create, Delete, Operation, Set, Stat

NAMES = ServerNames("/r")
END = bytes.fromhex("ffffffff01ffffffff")  # fmt: skip
STAT = struct.pack("!qqqqiiiqiiq", 3, 9, 0, 0, 4, 0, 0, 77, 1, 2, 5)

_PATHS = st.sampled_from(["/a", "/a/b", "/é日", "/\x01"])
_VERSIONS = st.sampled_from([None, 0, 7, -1, 2**40])
_DATA = st.binary(max_size=5)
_OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Check, _PATHS, _VERSIONS),
    st.builds(Absent, _PATHS),
    st.builds(lambda path, data, ephemeral: Create(path, data, ephemeral=ephemeral), _PATHS, _DATA, st.booleans()),
    st.builds(Set, _PATHS, _DATA, _VERSIONS),
    st.builds(Delete, _PATHS, _VERSIONS),
)


def _of_kazoo(operations: list[Operation], access: object) -> bytes:
    """Kazoo's own bytes."""
    parts: list[object] = []
    for operation in operations:
        path = NAMES.path(operation.path)
        match operation:
            case Check(version=version):
                parts.append(serialization.CheckVersion(path, wire_version(version)))
            case Set(data=data, version=version):
                parts.append(serialization.SetData(path, data, wire_version(version)))
            case Create(data=data, ephemeral=ephemeral):
                parts.append(serialization.Create(path, data, access, int(ephemeral)))
            case Delete(version=version):
                parts.append(serialization.Delete(path, wire_version(version)))
            case Absent():
                parts.append(serialization.Create(path, b"", access, 0))
                parts.append(serialization.Delete(path, 0))
    return bytes(serialization.Transaction(parts).serialize())


@given(st.lists(_OPERATIONS, max_size=8), st.sampled_from([OPEN_ACL_UNSAFE, CREATOR_ALL_ACL]))
def test_the_bytes_are_those_of_kazoo_but_for_checks_made_already(
    operations: list[Operation], access: list[object]
) -> None:
    request = BulkWrite.of(operations, NAMES, access)
    sent = [operations[place] for place in dict.fromkeys(request.places)]
    assert all(
        request.places.count(place) == (2 if isinstance(operations[place], Absent) else 1) for place in request.places
    )
    assert request.serialize() == _of_kazoo(sent, access)
    assert request.type == serialization.Transaction.type
    last: dict[str, int] = {}
    for place, operation in enumerate(operations):
        if not isinstance(operation, Check):
            assert place in request.places
            continue
        # What is left out is what the check of the same path before it has required already.
        version = wire_version(operation.version)
        assert (place in request.places) == (last.get(operation.path) != version)
        last[operation.path] = version


def test_a_guard_that_many_groups_share_is_sent_once() -> None:
    groups = [(Check("/guard"), Set(f"/n/{number}", b"", 0)) for number in range(100)]
    request = BulkWrite.of([operation for group in groups for operation in group], NAMES, ())
    assert len(request.places) == 101
    assert request.wire.count(b"/r/guard") == 1


def test_what_is_checked_instead_of_an_absence_is_sent_in_its_place() -> None:
    operations: list[Operation] = [Absent("/a/b"), Absent("/a/b"), Create("/a", b"")]
    sent: list[Operation] = [Absent("/a"), Absent("/a/b"), Create("/a", b"")]
    request = BulkWrite.of(operations, NAMES, OPEN_ACL_UNSAFE, {0: "/a"})
    assert request == BulkWrite.of(sent, NAMES, OPEN_ACL_UNSAFE)
    assert request.places == [0, 0, 1, 1, 2]


def test_an_answer_tells_what_each_operation_left() -> None:
    operations: list[Operation] = [
        Check("/c"),
        Check("/c"),
        Create("/n", b""),
        Set("/s", b"", 3),
        Delete("/d", None),
    ]
    header = struct.Struct("!iBi").pack
    answer = b"".join(
        (
            *(b"head", header(13, 0, 0)),
            *(header(1, 0, 0), struct.pack("!i", 4), b"/r/n"),
            *(header(5, 0, 0), STAT),
            header(2, 0, 0),
            END,
        )
    )
    request = BulkWrite.of(operations, NAMES, OPEN_ACL_UNSAFE)
    stat = Stat(creation_id=3, modification_id=9, version=4, children_id=5, ephemeral_owner=77)
    assert request.deserialize(answer, 4) == [None, None, stat, None]
    of_kazoo = serialization.Transaction.deserialize(answer, 4)
    assert (len(of_kazoo), stat_of(of_kazoo[2])) == (4, stat)


def test_a_failed_transaction_names_its_first_failure() -> None:
    answer = b"".join(struct.pack("!iBii", -1, 0, code, code) for code in (0, -103, -2)) + END
    request = BulkWrite.of([Check("/a"), Check("/b", 1), Check("/c")], NAMES, ())
    told = request.deserialize(answer, 0)
    assert [type(one) for one in told] == [RolledBackError, BadVersionError, RuntimeInconsistency]


def test_an_answer_that_is_none_to_this_request_is_refused() -> None:
    """Kazoo then fails the request, which leaves its outcome unknown."""
    request = BulkWrite.of([Set("/a", b"", 0), Set("/b", b"", 0)], NAMES, ())
    one = struct.pack("!iBi", 5, 0, 0) + STAT
    with pytest.raises(ValueError, match="1 of 2"):
        request.deserialize(one + END, 0)
    with pytest.raises(ValueError, match="operation 99"):
        request.deserialize(struct.pack("!iBi", 99, 0, 0), 0)
    with pytest.raises(struct.error):
        request.deserialize(one + one, 0)
