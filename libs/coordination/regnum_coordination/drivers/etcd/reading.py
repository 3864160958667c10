"""Reads: a few nodes one by one, many in packs, and children out of the keys of all that lies below.

A pack goes through raft as a write would, because etcd does not survive the end of a client in the middle of a
read-only transaction; a plain read does not have that defect and costs the members nothing that lasts.

Keys are the paths themselves, so children stand among the keys of their subtrees, which are read with them in large
pages; each page begins behind the subtree that the page before it ended in. How many keys a page has is weighed anew
each time: etcd counts all keys to the end of the folder in every call, so a folder of N children that is read in N
calls costs N times N. See ``listing_page``.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from etcd3.etcdrpc import rpc_pb2

from regnum_coordination.drivers.etcd.keys import Keys, after, child_name, visible
from regnum_coordination.drivers.etcd.pages import MAX_KEYS, PageSize
from regnum_coordination.drivers.etcd.rpc import EtcdRpc
from regnum_coordination.drivers.etcd.transactions import read_request
from regnum_coordination.errors import Compacted, NoNode
from regnum_coordination.paths import ROOT
from regnum_coordination.port import Children, Node, Stat

READ_COST: Final = 10
"""What etcd 3.5 needs for a key that it answers with, in units of what it needs to count one: 2.2 us and 0.2 us."""
SHORT_PAGE: Final = 64
"""Keys of a page that is to show the next child and no more."""
FEW: Final = 16
"""Nodes that are read one by one: each costs the client 0.1 ms, a pack costs the members an entry of their logs."""
PARALLEL_READS: Final = 8
"""Transactions of reads in flight."""

ROOT_STAT: Final = Stat(creation_id=0, modification_id=0, version=0, children_id=0, ephemeral_owner=None)
"""The root is not stored; it always exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Children at one revision."""

    names: frozenset[str]
    """Last path parts, also hidden ones."""
    revision: int
    """Revision of the whole read."""
    node_exists: bool
    """Whether the folder itself exists."""


def node_of(kv: Any, revision: int) -> Node:
    """A node from etcd's key and value, read at a revision."""
    stat = Stat(
        creation_id=kv.create_revision,
        modification_id=kv.mod_revision,
        version=kv.version - 1,
        children_id=revision,
        ephemeral_owner=kv.lease or None,
    )
    return Node(data=kv.value, stat=stat)


class EtcdReader:
    """Reads of one store; all are linearizable."""

    def __init__(self, rpc: EtcdRpc, keys: Keys, *, max_txn_ops: int) -> None:
        self._rpc = rpc
        self._keys = keys
        self._max_txn_ops = max_txn_ops

    async def node(self, path: str, *, keys_only: bool = False) -> tuple[Node | None, int]:
        """A node, and the revision of the read."""
        if path == ROOT:
            return Node(data=b"", stat=ROOT_STAT), 0
        answer = await self._rpc.range(rpc_pb2.RangeRequest(key=self._keys.key(path), keys_only=keys_only))
        revision = int(answer.header.revision)
        return (node_of(answer.kvs[0], revision) if answer.kvs else None), revision

    async def nodes(self, paths: Sequence[str], *, keys_only: bool = False) -> tuple[Node | None, ...]:
        """Nodes, one by one if they are few, else a transaction for each pack."""
        if len(paths) <= FEW:
            found = await asyncio.gather(*(self.node(path, keys_only=keys_only) for path in paths))
            return tuple(node for node, _ in found)
        packs = [paths[at : at + self._max_txn_ops] for at in range(0, len(paths), self._max_txn_ops)]
        gate = asyncio.Semaphore(PARALLEL_READS)

        async def read(pack: Sequence[str]) -> list[Node | None]:
            async with gate:
                return await self._pack(pack, keys_only=keys_only)

        answers = await asyncio.gather(*(read(pack) for pack in packs))
        return tuple(node for answer in answers for node in answer)

    async def _pack(self, paths: Sequence[str], *, keys_only: bool) -> list[Node | None]:
        # The root is not stored; its place in the answer is taken by an empty read.
        wanted = [self._keys.key(path) if path != ROOT else self._keys.never for path in paths]
        answer = await self._rpc.txn(read_request(wanted, self._keys, keys_only=keys_only))
        revision = int(answer.header.revision)
        nodes: list[Node | None] = []
        for path, response in zip(paths, answer.responses, strict=True):
            found = response.response_range.kvs
            if path == ROOT:
                nodes.append(Node(data=b"", stat=ROOT_STAT))
            else:
                nodes.append(node_of(found[0], revision) if found else None)
        return nodes

    async def children(self, path: str) -> Children:
        """Children as the port shows them; raises NoNode."""
        snapshot = await self.snapshot(path)
        if not snapshot.node_exists:
            raise NoNode(path)
        return Children(names=visible(set(snapshot.names), path), children_id=snapshot.revision)

    async def snapshot(self, path: str) -> Snapshot:
        """Children of a folder at one revision, whether or not the folder exists."""
        while True:
            try:
                return await self._snapshot(path)
            except Compacted:
                continue  # the history was compacted between two pages: begin again at a newer revision

    async def _snapshot(self, path: str) -> Snapshot:
        folder, end = self._keys.below(path)
        node_exists, revision = True, 0
        if path != ROOT:
            answer = await self._rpc.range(rpc_pb2.RangeRequest(key=self._keys.key(path), keys_only=True))
            node_exists, revision = bool(answer.kvs), int(answer.header.revision)
        names: set[str] = set()
        cursor, size, total = folder, PageSize(), 0
        while True:
            page = await size.read(self._rpc, cursor, end, revision=revision, keys_only=True)
            revision = revision or page.revision
            total = total or page.count
            passed = total - page.count or page.keys
            for part in page.slices():
                cursor = _take_names(part, folder, cursor, names)
                await asyncio.sleep(0)
            if not page.more or cursor >= end:
                return Snapshot(names=frozenset(names), revision=revision, node_exists=node_exists)
            size.keys = listing_page(page.count, passed / max(len(names), 1))


def listing_page(remaining: int, per_child: float) -> int:
    """How many keys to ask for, so that the folder costs least.

    A short page passes one child, with all that lies below it. A long one passes its keys, and half a child behind
    them. Either counts all that remains.

    Args:
        remaining: keys to the end of the folder.
        per_child: keys of a child's subtree, as far as is known.
    """
    short = (remaining + READ_COST * SHORT_PAGE) / max(per_child, SHORT_PAGE)
    long = (remaining + READ_COST * MAX_KEYS) / (MAX_KEYS + per_child / 2)
    return SHORT_PAGE if short < long else MAX_KEYS


def _take_names(part: Any, folder: bytes, cursor: bytes, names: set[str]) -> bytes:
    """Add the children among some keys; returns where to look for the next one."""
    for kv in part.kvs:
        key = kv.key
        if key < cursor:
            continue  # inside the subtree that was just left behind
        if (name := child_name(key, folder)) is not None:
            names.add(name)
        cursor = after(key, folder)
    return cursor
