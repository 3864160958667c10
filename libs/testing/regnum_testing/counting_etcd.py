"""The reads of an etcd in memory, which counts what they cost a real one: a gRPC channel that answers Range."""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import grpc


class CountingEtcd:
    """Keys and values at revision 7. Reads as etcd 3.5 does, and counts as it does to the end of the range."""

    def __init__(self, values: Mapping[bytes, bytes], *, largest_answer: int = 64 * 1024 * 1024) -> None:
        self._keys = sorted(values)
        self._values = dict(values)
        self._largest_answer = largest_answer
        self.ranges = 0
        """Range calls."""
        self.counted = 0
        """Keys that they counted."""
        self.answered = 0
        """Keys that they answered with."""
        self.limits: list[int] = []
        """Keys that each of them asked for at most."""

    @property
    def channel(self) -> grpc.aio.Channel:
        """What a client takes for a connection."""
        return cast("grpc.aio.Channel", self)

    def unary_unary(self, path: str, **coding: Any) -> Callable[..., Awaitable[Any]]:
        """As of a channel."""

        async def call(request: Any, **options: Any) -> Any:
            del options
            if path != "/etcdserverpb.KV/Range":
                raise AssertionError(f"only reads are answered here, not {path}")
            parse = coding.get("response_deserializer")
            answer = self._range(request).SerializeToString()
            if len(answer) > self._largest_answer:
                raise grpc.aio.AioRpcError(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.aio.Metadata(), grpc.aio.Metadata(), "too large"
                )
            return answer if parse is None else parse(answer)

        return call

    def stream_stream(self, path: str, **coding: Any) -> object:
        """As of a channel; not called."""
        return path, coding

    def _range(self, request: Any) -> Any:
        from etcd3.etcdrpc import rpc_pb2  # noqa: PLC0415 - loadable once the driver is

        begin = bisect_left(self._keys, request.key)
        end = bisect_left(self._keys, request.range_end or request.key + b"\0")
        found = self._keys[begin:end]
        limit = request.limit or len(found)
        self.ranges += 1
        self.limits.append(request.limit)
        self.counted += len(found)
        self.answered += min(limit, len(found))
        answer = rpc_pb2.RangeResponse(count=len(found), more=limit < len(found))
        answer.header.revision = 7
        for key in found[:limit]:
            value = b"" if request.keys_only else self._values[key]
            answer.kvs.add(key=key, value=value, version=1, create_revision=5, mod_revision=6)
        return answer
