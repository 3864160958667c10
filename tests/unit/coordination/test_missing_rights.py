"""A store that refuses its user for a while, as the drivers and the resolver of unknown outcomes see it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from regnum_coordination.drivers import etcd_rpc
from regnum_coordination.drivers.credentials import Credentials
from regnum_coordination.drivers.etcd.rpc import EtcdRpc
from regnum_coordination.drivers.etcd.tokens import TokenSource
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import ConnectionLoss, NoAuth
from regnum_coordination.port import Check, Create, Group, Outcome, Refused, Unknown, Written
from regnum_coordination.recipes.resolve import Resolver
from regnum_testing.clock import FakeClock
from regnum_testing.waiting import within

etcd_rpc.install()

from etcd3.etcdrpc import rpc_pb2  # noqa: E402 - loadable once the finder is there

GROUPS: Sequence[Group] = [(Create(f"/{name}", b""),) for name in "abc"]


class _Closed(MemoryStore):
    """Refuses writes of some paths for want of rights; the transaction as a whole, as etcd does."""

    def __init__(self, server: MemoryServer) -> None:
        super().__init__(server)
        self.paths: set[str] = set()

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        if self.paths & {operation.path for group in groups for operation in group}:
            return (Unknown(NoAuth("permission denied")),) * len(groups)
        return await super().write_batch(groups, fence=fence)


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer(groups_per_transaction=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def test_missing_rights_are_waited_for(server: MemoryServer, clock: FakeClock) -> None:
    store = _Closed(server)
    store.paths = {"/a", "/b", "/c"}
    task = asyncio.create_task(Resolver(store, clock, takes_writes=_says(answer=False)).write_batch(GROUPS))
    await clock.advance(10.0)
    assert not task.done()
    store.paths.clear()
    await clock.advance(2.0)
    assert [type(outcome) for outcome in await within(task)] == [Written] * 3
    store.paths = {"/d"}
    late = asyncio.create_task(Resolver(store, clock).multi([Create("/d", b"")], deadline_s=1.0))
    await clock.advance(3.0)
    with pytest.raises(NoAuth, match="permission denied"):
        await within(late)


async def test_a_closed_node_is_refused_alone_while_others_are_open(server: MemoryServer, clock: FakeClock) -> None:
    store = _Closed(server)
    store.paths = {"/b"}
    resolver = Resolver(store, clock, takes_writes=_says(answer=True))
    first, closed, last = await within(resolver.write_batch(GROUPS))
    assert isinstance(closed, Refused)
    assert isinstance(closed.error, NoAuth)
    assert isinstance(first, Written)
    assert isinstance(last, Written)


async def test_a_refusal_settles_no_earlier_attempt(server: MemoryServer, clock: FakeClock) -> None:
    """What was sent without an answer may land after rights were taken away (safety rule S1)."""
    store = _Closed(server)
    held = server.hold_write()
    resolver = Resolver(store, clock, takes_writes=_says(answer=True))
    task = asyncio.create_task(resolver.write_batch(GROUPS[:1]))
    await within(held.arrived.wait())
    store.paths = {"/a"}
    await clock.advance(5.0)
    assert not task.done()
    held.commit()
    store.paths.clear()
    await clock.advance(2.0)
    assert [type(outcome) for outcome in await within(task)] == [Written]


def _says(*, answer: bool) -> Callable[[], Awaitable[bool]]:
    async def says() -> bool:
        return answer

    return says


class _Etcd:
    """A channel to a server of which the test says what it asks for."""

    def __init__(self) -> None:
        self.asks_for_users = False
        self.password = b"secret"
        self.passwords: list[bytes] = []
        """Those that were shown."""
        self.tokens: list[str] = []
        """Those that count."""
        self.denied = False
        self.changed = False
        """Whether somebody changes a user or role while a call is on its way."""

    def unary_unary(self, path: str, **coding: object) -> Callable[..., Awaitable[Any]]:
        del coding

        async def call(request: Any, *, metadata: tuple[tuple[str, str], ...] = (), **options: object) -> Any:
            del options
            if path.endswith("Authenticate"):
                return self._authenticate(request)
            self._check(dict(metadata).get("token"))
            return rpc_pb2.RangeResponse()

        return call

    def stream_stream(self, path: str, **coding: object) -> object:
        return path, coding

    def _authenticate(self, request: Any) -> Any:
        self.passwords.append(request.password.encode())
        if not self.asks_for_users:
            raise _error(grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: authentication is not enabled")
        if request.password.encode() != self.password:
            raise _error(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID")
        self.tokens.append(f"token {len(self.passwords)}")
        return rpc_pb2.AuthenticateResponse(token=self.tokens[-1])

    def _check(self, token: str | None) -> None:
        if self.asks_for_users and token is None:
            raise _error(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: user name is empty")
        if self.asks_for_users and token not in self.tokens:
            raise _error(grpc.StatusCode.UNAUTHENTICATED, "etcdserver: invalid auth token")
        if self.changed:
            self.changed = False
            raise _error(grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: revision of auth store is old")
        if self.denied:
            raise _error(grpc.StatusCode.PERMISSION_DENIED, "etcdserver: permission denied")


def _error(code: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


def _rpc(etcd: _Etcd, password: Path | None) -> EtcdRpc:
    channels = [cast("grpc.aio.Channel", etcd)]
    user = None if password is None else "anna"
    tokens = TokenSource(channels, Credentials(user=user, password_file=password), timeout_s=1.0)
    return EtcdRpc(channels, timeout_s=1.0, tokens=tokens)


async def test_a_server_that_begins_to_ask_for_a_user_is_waited_for() -> None:
    """Whatever etcd's status for it: neither a request that can never succeed, nor a store that is away."""
    etcd = _Etcd()
    rpc = _rpc(etcd, None)
    await rpc.range(rpc_pb2.RangeRequest(key=b"a"))
    etcd.asks_for_users = True
    with pytest.raises(NoAuth, match="asks for a user"):
        await rpc.range(rpc_pb2.RangeRequest(key=b"a"))
    etcd.asks_for_users, etcd.denied = False, True
    with pytest.raises(NoAuth, match="permission denied"):
        await rpc.range(rpc_pb2.RangeRequest(key=b"a"))
    etcd.denied = False
    await rpc.range(rpc_pb2.RangeRequest(key=b"a"))


async def test_a_user_is_named_to_a_server_that_asks_for_one_later(tmp_path: Path) -> None:
    """So that processes are started with a user before the server is told to ask for one, and after it asks no more."""
    etcd, file = _Etcd(), tmp_path / "password"
    file.write_bytes(b"secret")
    rpc = _rpc(etcd, file)
    await rpc.renew_token()
    await rpc.range(rpc_pb2.RangeRequest(key=b"a"))
    etcd.asks_for_users = True
    await rpc.range(rpc_pb2.RangeRequest(key=b"a"))
    assert etcd.tokens


async def test_a_password_that_is_refused_is_not_shown_with_every_call(tmp_path: Path) -> None:
    etcd, file = _Etcd(), tmp_path / "password"
    file.write_bytes(b"secret")
    etcd.asks_for_users = True
    rpc = _rpc(etcd, file)
    await rpc.range(rpc_pb2.RangeRequest(key=b"a"))
    etcd.password = b"another"
    etcd.tokens.clear()
    for _ in range(3):
        with pytest.raises(NoAuth, match="does not take the user anna"):
            await rpc.range(rpc_pb2.RangeRequest(key=b"a"))
    assert etcd.passwords == [b"secret", b"secret"]


async def test_a_change_of_users_during_a_call_of_one_named_by_a_certificate_is_no_mistake_of_the_call() -> None:
    """There is no token that could be renewed; the same call is taken when it is sent again."""
    etcd = _Etcd()
    rpc = _rpc(etcd, None)
    etcd.changed = True
    with pytest.raises(ConnectionLoss, match="auth store is old"):
        await rpc.range(rpc_pb2.RangeRequest(key=b"a"))
    await rpc.range(rpc_pb2.RangeRequest(key=b"a"))


async def test_a_change_of_users_during_a_call_with_a_token_is_not_noticed(tmp_path: Path) -> None:
    etcd, file = _Etcd(), tmp_path / "password"
    file.write_bytes(b"secret")
    etcd.asks_for_users = True
    rpc = _rpc(etcd, file)
    await rpc.renew_token()
    etcd.changed = True
    await rpc.range(rpc_pb2.RangeRequest(key=b"a"))
    assert (etcd.changed, len(etcd.tokens)) == (False, 2)
