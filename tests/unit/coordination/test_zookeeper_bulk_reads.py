"""Bulk reads: their bytes, and servers that take none."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, cast

import pytest
from kazoo.exceptions import NoAuthError, NoNodeError, UnimplementedError
from kazoo.protocol.states import ZnodeStat
from regnum_coordination.drivers.zookeeper.bulk_reads import BulkRead, Found
from regnum_coordination.drivers.zookeeper.calls import ZooKeeperCalls
from regnum_coordination.drivers.zookeeper.names import ServerNames
from regnum_coordination.drivers.zookeeper.reading import ZooKeeperReader
from regnum_coordination.errors import NoAuth
from regnum_coordination.port import Node, Stat

STAT = bytes.fromhex(
    "0000000000000011000000000000001200000000000000000000000000000000000000030000000000000000"
    "000000000000000700000002000000040000000000000013"
)  # fmt: skip
FOUND = Stat(creation_id=0x11, modification_id=0x12, version=3, children_id=0x13, ephemeral_owner=7)
END = bytes.fromhex("ffffffff01ffffffff")  # fmt: skip


def test_a_request_is_a_header_and_a_single_request_for_each_path() -> None:
    get = bytes.fromhex("0000000400ffffffff00000002") + b"/a" + b"\0"
    assert BulkRead(("/a", "/a")).serialize() == get + get + END
    children = bytes.fromhex("0000000800ffffffff00000003") + "/é".encode() + b"\0"
    assert BulkRead(("/é",), of_children=True).serialize() == children + END
    assert BulkRead(("/é",)).type == 22


def test_answers_are_nodes_names_and_errors_each_in_its_place() -> None:
    data = bytes.fromhex("00000004000000000000000002") + b"xy" + STAT
    none = bytes.fromhex("000000040000000000ffffffff") + STAT
    error = bytes.fromhex("ffffffff00ffffff9bffffff9b")
    names = bytes.fromhex("0000000800000000000000000200000001") + b"a" + b"\0\0\0\2" + "é".encode()
    answers = BulkRead.deserialize(b"head" + data + error + none + names + END, 4)
    assert answers[0] == Found(Node(data=b"xy", stat=FOUND), 4)
    assert isinstance(answers[1], NoNodeError)
    assert answers[2] == Found(Node(data=b"", stat=FOUND), 4)
    assert answers[3] == ["a", "é"]
    assert len(answers) == 4
    with pytest.raises(ValueError, match="operation 9"):
        BulkRead.deserialize(bytes.fromhex("000000090000000000"), 0)


class _Answer:
    """As of kazoo."""

    def __init__(self, answered: Any) -> None:
        self.exception = answered if isinstance(answered, Exception) else None
        self.value = answered

    def successful(self) -> bool:
        return self.exception is None


class _Calls:
    """A server with nodes, old or new; calls are what it answers."""

    def __init__(self, nodes: Sequence[str], *, takes_bulk: bool) -> None:
        self._nodes = nodes
        self._takes_bulk = takes_bulk
        self.bulk = 0
        self.single = 0

    def _node(self, path: str) -> Any:
        if path == "/secret":
            return NoAuthError()
        children = sum(node.rpartition("/")[0] == path for node in self._nodes)
        stat = ZnodeStat(1, 1, 0, 0, 0, 0, 0, 0, 0, children, 1)
        return (path.encode(), stat) if path in self._nodes else NoNodeError()

    def get(self, path: str) -> Any:
        self.single += 1
        return self._node(path)

    def children(self, path: str) -> Any:
        self.single += 1
        return ([node.rpartition("/")[2] for node in self._nodes if node.rpartition("/")[0] == path], None)

    def read_together(self, paths: Sequence[str], *, of_children: bool = False) -> Any:
        self.bulk += 1
        if not self._takes_bulk:
            return UnimplementedError()
        if of_children:
            return [self.children(path)[0] for path in paths]
        stat = Stat(creation_id=1, modification_id=1, version=0, children_id=1, ephemeral_owner=None)
        nodes = [self._node(path) for path in paths]
        return [
            one if isinstance(one, Exception) else Found(Node(data=one[0], stat=stat), one[1].numChildren)
            for one in nodes
        ]

    async def ask_all(self, calls: Sequence[Any]) -> list[Any]:
        return [_Answer(call) for call in calls]


def _reader(calls: _Calls) -> ZooKeeperReader:
    return ZooKeeperReader(cast("ZooKeeperCalls", calls), ServerNames(""), lambda: None)


@pytest.mark.parametrize("takes_bulk", [True, False])
async def test_old_servers_are_asked_one_by_one_and_in_bulk_only_once(*, takes_bulk: bool) -> None:
    nodes = [f"/d/{number}" for number in range(700)] + ["/d", *(f"/d/{number}/x" for number in range(700))]
    calls = _Calls(nodes, takes_bulk=takes_bulk)
    reader = _reader(calls)
    read = await reader.nodes(["/none", *nodes], current=False)
    assert [None if node is None else node.data.decode() for node in read] == [None, *nodes]
    async with aclosing(reader.tree("/d", current=False)) as pages:
        assert {path async for page in pages for path in page.nodes} == set(nodes)
    if takes_bulk:
        assert calls.bulk <= 20
    else:
        assert calls.bulk == 4


async def test_a_node_that_may_not_be_read_fails_the_read() -> None:
    for takes_bulk in (True, False):
        with pytest.raises(NoAuth, match="/secret"):
            await _reader(_Calls(["/a"], takes_bulk=takes_bulk)).nodes(
                ["/a", "/a", "/a", "/a", "/secret"], current=False
            )
