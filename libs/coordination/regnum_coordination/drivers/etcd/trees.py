"""A node and all that lies below it: read in pages at one revision, while the next page is under way."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from regnum_coordination.drivers.etcd.keys import Keys
from regnum_coordination.drivers.etcd.pages import Page, PageSize
from regnum_coordination.drivers.etcd.reading import node_of
from regnum_coordination.drivers.etcd.rpc import EtcdRpc
from regnum_coordination.paths import ROOT
from regnum_coordination.port import TreePage


class EtcdTrees:
    """Reads of subtrees of one store; all are linearizable."""

    def __init__(self, rpc: EtcdRpc, keys: Keys) -> None:
        self._rpc = rpc
        self._keys = keys

    async def read(self, path: str) -> AsyncGenerator[TreePage, None]:
        """The pages; raises ConnectionLoss, Compacted."""
        size, revision = PageSize(), 0
        if path != ROOT:
            # Its size says nothing about what lies below.
            upper = await PageSize().read(self._rpc, self._keys.key(path), None, revision=0)
            revision = upper.revision
            yield self._tree_page(next(upper.slices()), revision)
        cursor, end = self._keys.below(path)
        under_way = asyncio.create_task(
            size.read(self._rpc, cursor, end, revision=revision), name=f"etcd page behind {path}"
        )
        try:
            while True:
                page: Page = await under_way
                revision = revision or page.revision
                if page.more:
                    under_way = asyncio.create_task(
                        size.read(self._rpc, page.last_key + b"\0", end, revision=revision),
                        name=f"etcd page behind {path}",
                    )
                for part in page.slices():
                    yield self._tree_page(part, revision)
                    # Whoever reads may do so without waiting for anything (safety rule S22).
                    await asyncio.sleep(0)
                if not page.more:
                    return
        finally:
            under_way.cancel()
            await asyncio.gather(under_way, return_exceptions=True)

    def _tree_page(self, answer: Any, revision: int) -> TreePage:
        path_of = self._keys.path
        nodes = {path: node_of(kv, revision) for kv in answer.kvs if (path := path_of(kv.key)) is not None}
        return TreePage(nodes=nodes, revision=revision)
