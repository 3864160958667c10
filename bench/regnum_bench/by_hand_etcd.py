"""The yardstick on etcd: transactions written by hand on the generated stubs, as many in flight as the batch has.

``FlatLoop`` is the plain one: a transaction of as many comparisons and puts as the server takes, all or nothing: one
conflict fails its neighbours. ``NestedLoop`` promises what ``write_batch`` does, an outcome for each write.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import grpc
from regnum_coordination.drivers import etcd_rpc

etcd_rpc.install()

from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc  # noqa: E402 - the finder must be there first

TIMEOUT_S: Final = 30.0
"""Of one transaction."""
PER_TRANSACTION: Final = 126
"""Writes of one transaction below the server's limit of 128, with two comparisons of the fence's kind."""


class FlatLoop:
    """Conditional puts, all or nothing for each transaction."""

    figure = "by_hand"
    name = "transactions by hand, all or nothing"

    def __init__(self, channel: grpc.aio.Channel, prefix: str, fence: str) -> None:
        self._kv = rpc_pb2_grpc.KVStub(channel)
        self._prefix = prefix
        self._fence = fence

    async def write(self, paths: Sequence[str], data: bytes, version: int) -> int:
        """Set every node at a version; the number of writes that happened."""
        packs = [paths[at : at + PER_TRANSACTION] for at in range(0, len(paths), PER_TRANSACTION)]
        return sum(await asyncio.gather(*(self._send(pack, data, version) for pack in packs)))

    async def _send(self, paths: Sequence[str], data: bytes, version: int) -> int:
        request = rpc_pb2.TxnRequest()
        request.compare.append(at_version(f"{self._prefix}{self._fence}".encode(), 0))
        for path in paths:
            key = f"{self._prefix}{path}".encode()
            request.compare.append(at_version(key, version))
            request.success.add(request_put=rpc_pb2.PutRequest(key=key, value=data, ignore_lease=True))
        answer = await self._kv.Txn(request, timeout=TIMEOUT_S)
        return len(paths) if answer.succeeded else 0


class NestedLoop:
    """Conditional puts, each with its own outcome."""

    figure = "by_hand_one_outcome_each"
    name = "nested transactions by hand, one outcome each"

    def __init__(self, channel: grpc.aio.Channel, prefix: str, fence: str) -> None:
        self._kv = rpc_pb2_grpc.KVStub(channel)
        self._prefix = prefix
        self._fence = fence

    async def write(self, paths: Sequence[str], data: bytes, version: int) -> int:
        """Set every node at a version; the number of writes that happened."""
        packs = [paths[at : at + PER_TRANSACTION] for at in range(0, len(paths), PER_TRANSACTION)]
        return sum(await asyncio.gather(*(self._send(pack, data, version) for pack in packs)))

    async def _send(self, paths: Sequence[str], data: bytes, version: int) -> int:
        request = rpc_pb2.TxnRequest()
        request.compare.append(at_version(f"{self._prefix}{self._fence}".encode(), 0))
        for path in paths:
            key = f"{self._prefix}{path}".encode()
            one = rpc_pb2.TxnRequest()
            one.compare.append(at_version(key, version))
            one.success.add(request_put=rpc_pb2.PutRequest(key=key, value=data, ignore_lease=True))
            one.failure.add(request_range=rpc_pb2.RangeRequest(key=key, keys_only=True))
            request.success.add(request_txn=one)
        answer = await self._kv.Txn(request, timeout=TIMEOUT_S)
        if not answer.succeeded:
            return 0
        return sum(response.response_txn.succeeded for response in answer.responses)


def at_version(key: bytes, version: int) -> Any:
    """Comparison with a version of ours, which is etcd's minus one."""
    return rpc_pb2.Compare(target=rpc_pb2.Compare.VERSION, result=rpc_pb2.Compare.EQUAL, key=key, version=version + 1)
