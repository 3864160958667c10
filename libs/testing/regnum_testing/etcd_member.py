"""One member of an etcd in this process: its calls over gRPC, without what real members agree on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Self

import grpc
from regnum_coordination.drivers import etcd_rpc
from regnum_service.listening import make_server

from regnum_testing.ports import unused_port

etcd_rpc.install()

from etcd3.etcdrpc import kv_pb2, rpc_pb2  # noqa: E402 - loadable once the finder is there


class EtcdMember:
    """Every node exists, at version 0; nobody changes it. ``hung``: nothing that the log has to carry is answered.

    So a member goes on whose disk hangs: connections, pings and keep-alives are answered, calls and watches are not.
    """

    def __init__(self, *, port: int = 0, tls: grpc.ServerCredentials | None = None) -> None:
        """``port``: 0: an unused one; ``tls``: None: in plaintext."""
        self.no_space = False
        """Whether the alarm NOSPACE is on."""
        self.reads = 0
        """Range calls that came."""
        self.writes = 0
        """Txn calls that came."""
        self.keep_alives = 0
        """Keep-alives that were answered."""
        self.watches = 0
        """Watches that were begun here, ever."""
        self.refuses = False
        """Whether reads are refused at once, as without a leader."""
        self.ends_leases = False
        """Whether a lease ends as soon as it is granted."""
        self._changes: Final[asyncio.Queue[bytes]] = asyncio.Queue()
        self._works = asyncio.Event()
        self._works.set()
        self._server: Final = make_server()
        self._port = port or unused_port()
        self._tls = tls

    async def __aenter__(self) -> Self:
        """Listen."""
        for service, methods in (
            ("KV", {"Range": self._range, "Txn": self._txn, "Put": self._put}),
            ("Lease", {"LeaseGrant": self._grant, "LeaseRevoke": self._revoke, "LeaseKeepAlive": self._keep_alive}),
            ("Watch", {"Watch": self._watch}),
        ):
            handlers = {name: _handler(name, method) for name, method in methods.items()}
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(f"etcdserverpb.{service}", handlers),)
            )
        where = f"127.0.0.1:{self._port}"
        tls = self._tls
        if tls is None:
            self._server.add_insecure_port(where)
        else:
            self._server.add_secure_port(where, tls)
        await self._server.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._server.stop(None)

    @property
    def target(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self._port}"

    def hang(self) -> None:
        """Answer nothing from now on that the log has to carry."""
        self._works.clear()

    def go_on(self) -> None:
        """Answer again, what came meanwhile too."""
        self._works.set()

    def change(self, key: bytes) -> None:
        """Tell a watch, whichever there is, that somebody put a key."""
        self._changes.put_nowait(key)

    async def _range(self, request: Any, context: Any) -> Any:
        self.reads += 1
        if self.refuses:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "etcdserver: no leader")
        await self._works.wait()
        return _found(request.key)

    async def _txn(self, request: Any, context: Any) -> Any:
        """As etcd 3.6: what nested transactions put counts nothing against the space."""
        self.writes += 1
        await self._works.wait()
        if self.no_space and any(one.HasField("request_put") for one in (*request.success, *request.failure)):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
        nested = [one.request_txn for one in request.success if one.HasField("request_txn")]
        answer = rpc_pb2.TxnResponse(succeeded=bool(nested))
        for txn in nested:
            inner = answer.responses.add().response_txn
            for look in txn.failure:
                inner.responses.add(response_range=_found(look.request_range.key))
        return answer

    async def _put(self, _request: Any, context: Any) -> Any:
        await self._works.wait()
        if self.ends_leases:
            await context.abort(grpc.StatusCode.NOT_FOUND, "etcdserver: requested lease not found")
        return rpc_pb2.PutResponse()

    async def _grant(self, request: Any, _context: Any) -> Any:
        return rpc_pb2.LeaseGrantResponse(ID=7, TTL=request.TTL)

    async def _revoke(self, _request: Any, _context: Any) -> Any:
        return rpc_pb2.LeaseRevokeResponse()

    async def _keep_alive(self, requests: AsyncIterator[Any], _context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            self.keep_alives += 1
            yield rpc_pb2.LeaseKeepAliveResponse(ID=request.ID, TTL=0 if self.ends_leases else 60)

    async def _watch(self, requests: AsyncIterator[Any], _context: Any) -> AsyncIterator[Any]:
        async for _ in requests:
            self.watches += 1
            await self._works.wait()
            yield rpc_pb2.WatchResponse(created=True)
            while True:
                key = await self._changes.get()
                await self._works.wait()
                told = rpc_pb2.WatchResponse()
                told.events.add().kv.MergeFrom(kv_pb2.KeyValue(key=key, version=1, mod_revision=2))
                yield told


def _found(key: bytes) -> Any:
    answer = rpc_pb2.RangeResponse(count=1)
    answer.kvs.add(key=key, version=1)
    return answer


_REQUESTS: Final = {
    "Range": rpc_pb2.RangeRequest,
    "Txn": rpc_pb2.TxnRequest,
    "Put": rpc_pb2.PutRequest,
    "LeaseGrant": rpc_pb2.LeaseGrantRequest,
    "LeaseRevoke": rpc_pb2.LeaseRevokeRequest,
    "LeaseKeepAlive": rpc_pb2.LeaseKeepAliveRequest,
    "Watch": rpc_pb2.WatchRequest,
}
_STREAMS: Final = {"LeaseKeepAlive", "Watch"}


def _handler(name: str, method: Callable[..., object]) -> Any:
    make = grpc.stream_stream_rpc_method_handler if name in _STREAMS else grpc.unary_unary_rpc_method_handler
    return make(
        method,
        request_deserializer=_REQUESTS[name].FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )
