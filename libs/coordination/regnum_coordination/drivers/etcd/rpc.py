"""etcd's calls on ``grpc.aio``, with deadlines, and the one table that turns gRPC statuses into the port's errors."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import grpc
from etcd3.etcdrpc import rpc_pb2, rpc_pb2_grpc
from regnum_service.renewed_channel import NAME_OPTIONS

from regnum_coordination.drivers.credentials import Credentials
from regnum_coordination.drivers.etcd.members import MemberChoice
from regnum_coordination.drivers.etcd.tokens import Metadata, TokenSource
from regnum_coordination.drivers.etcd.transactions import is_read_only
from regnum_coordination.errors import (
    Compacted,
    ConnectionLoss,
    CoordinationError,
    InvalidRequest,
    NoAuth,
    SessionExpired,
    StoreFull,
)

CHANNEL_OPTIONS: Final[tuple[tuple[str, str | int], ...]] = (
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.ping_timeout_ms", 2_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", 64 * 1024 * 1024),
    ("grpc.enable_retries", 0),
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.use_local_subchannel_pool", 1),
    *NAME_OPTIONS,
)
"""Why these: etcd ends connections (too_many_pings) that ping more often than every 5 s, or at all while they carry no
call, as etcd3's own channel and members that round_robin has no stream on; a watch may be silent for long, hence no
limit of pings without data; without the ping time-out a frozen member goes unnoticed; a member that lost its leader
must not be asked again and again, hence round_robin."""

WINDOW: Final = 200
"""Calls under way; more wait here, because each takes a tenth of a millisecond of the loop to send, and as much again
when it is answered: a flood of them would hold up the keep-alives until the session is lost."""

HAS_LEADER: Final = (("hasleader", "true"),)
"""Metadata: a member without a leader refuses instead of being silent."""

ERRORS: Final[dict[grpc.StatusCode, type[CoordinationError]]] = {
    grpc.StatusCode.CANCELLED: ConnectionLoss,
    grpc.StatusCode.UNKNOWN: ConnectionLoss,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.DEADLINE_EXCEEDED: ConnectionLoss,
    grpc.StatusCode.NOT_FOUND: SessionExpired,
    grpc.StatusCode.ALREADY_EXISTS: InvalidRequest,
    grpc.StatusCode.PERMISSION_DENIED: NoAuth,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ConnectionLoss,
    grpc.StatusCode.FAILED_PRECONDITION: InvalidRequest,
    grpc.StatusCode.ABORTED: ConnectionLoss,
    grpc.StatusCode.OUT_OF_RANGE: ConnectionLoss,
    grpc.StatusCode.UNIMPLEMENTED: InvalidRequest,
    grpc.StatusCode.INTERNAL: ConnectionLoss,
    grpc.StatusCode.UNAVAILABLE: ConnectionLoss,
    grpc.StatusCode.DATA_LOSS: ConnectionLoss,
    grpc.StatusCode.UNAUTHENTICATED: NoAuth,
}
"""What a status means.

NOT_FOUND is only ever a lease; OUT_OF_RANGE a compacted revision, which readers handle before.
"""


ASKS_FOR_A_USER: Final = "user name is empty"
"""In etcd's refusal of a call without a token."""
NO_SPACE: Final = "database space exceeded"
"""In etcd's refusal of what takes room, while its alarm NOSPACE is on."""
OLD_REVISIONS: Final = ("revision of auth store is old", "revision in header is old")
"""In etcd's refusals of a token, or of a call, from before a change of users or roles."""


def compacted() -> Compacted:
    """What a read or a watch meets with that asks for too old a revision."""
    return Compacted("the revision is compacted away; read anew")


class _TokenRefusedError(Exception):
    """The server did nothing, because it does not know the token."""


def to_error(code: grpc.StatusCode, details: str | None) -> CoordinationError:
    """The port's error for a status."""
    if details is not None and NO_SPACE in details:
        return StoreFull(
            f"etcd takes no writes: {details} (alarm NOSPACE); compact and defragment it, or raise its "
            "--quota-backend-bytes, and then disarm the alarm"
        )
    if details is not None and ASKS_FOR_A_USER in details:
        return NoAuth("etcd asks for a user; add ?user=NAME&password_file=FILE to the URL")
    kind = ERRORS.get(code, ConnectionLoss)
    # Who is named by a certificate has no token to renew: the same call is sent again.
    if kind is ConnectionLoss or any(text in (details or "") for text in OLD_REVISIONS):
        return ConnectionLoss(f"etcd: {code.name}: {details}; a write may have happened, resolve by repeating it")
    return kind(f"etcd: {code.name}: {details}")


class _Member:
    """A channel, and what can be asked on it."""

    def __init__(self, number: int, channel: grpc.aio.Channel) -> None:
        self.number = number
        self.channel = channel
        self.kv = rpc_pb2_grpc.KVStub(channel)
        # As KVStub's, and the answer stays as it comes.
        self.range_bytes: Any = channel.unary_unary(
            "/etcdserverpb.KV/Range", request_serializer=rpc_pb2.RangeRequest.SerializeToString
        )
        self.lease = rpc_pb2_grpc.LeaseStub(channel)
        self.watch = rpc_pb2_grpc.WatchStub(channel)

    def method(self, name: str) -> Any:
        """What is called by a name."""
        if name == "RangeBytes":
            return self.range_bytes
        return getattr(self.lease if name.startswith("Lease") else self.kv, name)


class Stream:
    """A stream of keep-alives or watches, and the member it is with."""

    def __init__(self, call: Any, member: int) -> None:
        self.call: Final = call
        """gRPC's call."""
        self.member: Final = member
        """Number of the member."""
        self.silent: Final = asyncio.Event()
        """Set once the member was found to carry nothing out: nothing will come on a stream of watches."""


class EtcdRpc:
    """Calls to etcd, on a channel to each member; ``members`` says which one is asked."""

    def __init__(
        self, channels: Sequence[grpc.aio.Channel], *, timeout_s: float, tokens: TokenSource | None = None
    ) -> None:
        self._members = [_Member(number, channel) for number, channel in enumerate(channels)]
        self._choice = MemberChoice(len(channels))
        self._tokens = TokenSource(channels, Credentials(), timeout_s=timeout_s) if tokens is None else tokens
        self._timeout_s = timeout_s
        self._window = asyncio.Semaphore(WINDOW)
        self._watches: set[Stream] = set()

    # Messages are Any: the generated code is untyped.

    async def range(self, request: Any) -> Any:
        """Read keys; raises Compacted for a revision that is gone."""
        return await self._call("Range", request)

    async def range_bytes(self, request: Any) -> bytes:
        """Read keys; the answer is not parsed yet."""
        answer: bytes = await self._call("RangeBytes", request)
        return answer

    async def put(self, request: Any) -> Any:
        """Put a key."""
        return await self._call("Put", request)

    async def txn(self, request: Any) -> Any:
        """Carry out a transaction, which must not be read-only."""
        if is_read_only(request):
            raise AssertionError(
                "etcd may not survive a read-only transaction; give it an operation that is not a range"
            )
        return await self._call("Txn", request)

    async def revoke(self, lease_id: int) -> None:
        """End a lease, with all that is tied to it; raises SessionExpired when there is none."""
        await self._call("LeaseRevoke", rpc_pb2.LeaseRevokeRequest(ID=lease_id))

    def keep_alive_stream(self) -> Stream:
        """A stream of keep-alives."""
        member = self._best()
        return Stream(member.lease.LeaseKeepAlive(metadata=HAS_LEADER + self._tokens.metadata), member.number)

    def watch_stream(self) -> Stream:
        """A stream of watches."""
        member = self._best()
        stream = Stream(member.watch.Watch(metadata=HAS_LEADER + self._tokens.metadata), member.number)
        self._watches.add(stream)
        stream.call.add_done_callback(lambda _: self._watches.discard(stream))
        return stream

    async def find_silent(self, key: bytes) -> None:
        """Ask each member that watches are with for a key, and tell its watches where it does not answer in time.

        Such a member may answer pings and keep-alives, and read its own state, while it learns of no change. Of a
        single member nothing is asked, since watches could go nowhere else.
        """
        if len(self._members) > 1:
            await asyncio.gather(*(self._look_at(member, key) for member in {one.member for one in self._watches}))

    async def _look_at(self, member: int, key: bytes) -> None:
        # Not within the window, where a flood of calls would hold it up.
        read = self._members[member].kv.Range
        request = rpc_pb2.RangeRequest(key=key, keys_only=True)
        try:
            await read(request, timeout=self._timeout_s, metadata=HAS_LEADER + self._tokens.metadata)
        except grpc.aio.UsageError:
            return  # the store is closed
        except grpc.aio.AioRpcError as error:
            # Any other status is an answer, or the end of the connection, which ends the streams as well.
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                for stream in self._watches:
                    if stream.member == member:
                        stream.silent.set()

    def _best(self) -> _Member:
        return self._members[self._choice.best(asyncio.get_running_loop().time())]

    def _failed(self, member: int, *, silent: bool) -> None:
        self._choice.failed(member, asyncio.get_running_loop().time(), silent=silent)

    async def recover(self, stream: Stream, failure: Exception | None) -> None:
        """After a stream failed (None: the server gave no status): the next one is with another member.

        With another token too, if that may be why; where that fails, the next call says so.
        """
        self._failed(stream.member, silent=isinstance(failure, TimeoutError))
        if failure is None or _is_token_refusal(failure):
            await self.renew_token()

    async def renew_token(self) -> None:
        """Ask for another token, unless this one is new; where that fails, the next call says why.

        A watch that may not be read ends with the same words as one of an unknown token.
        """
        if not self._tokens.is_new:
            with suppress(CoordinationError):
                await self._tokens.renew(self._tokens.metadata)

    async def close(self) -> None:
        """Close the channels; calls in flight end as ConnectionLoss."""
        for member in self._members:
            await member.channel.close()

    async def _call(self, name: str, request: Any) -> Any:
        await self._enter()
        try:
            token = self._tokens.metadata
            try:
                return await self._answer(name, request, token)
            except _TokenRefusedError:
                await self._tokens.renew(token)
            try:
                return await self._answer(name, request, self._tokens.metadata)
            except _TokenRefusedError:
                raise NoAuth("etcd refuses a token that it has just given; look into its log") from None
        finally:
            self._window.release()

    async def _enter(self) -> None:
        """Wait until another call may be under way; raises ConnectionLoss."""
        if not self._window.locked():
            await self._window.acquire()
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._window.acquire()
        except TimeoutError:
            raise ConnectionLoss(f"{WINDOW} calls to etcd are without an answer; nothing more was sent") from None

    async def _answer(self, name: str, request: Any, token: Metadata) -> Any:
        member = self._best()
        try:
            return await member.method(name)(request, timeout=self._timeout_s, metadata=HAS_LEADER + token)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.OUT_OF_RANGE:
                raise compacted() from None
            if self._tokens.has_user and _is_token_refusal(error):
                raise _TokenRefusedError from None
            meaning = to_error(error.code(), error.details())
            if isinstance(meaning, ConnectionLoss) and not isinstance(meaning, NoAuth):
                self._failed(member.number, silent=error.code() is grpc.StatusCode.DEADLINE_EXCEEDED)
            raise meaning from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The channel was closed under the call; that must not look like a cancellation of the caller.
            raise ConnectionLoss("the store was closed during the call") from None
        except grpc.aio.UsageError:
            raise ConnectionLoss("the store is closed; open a new one") from None


def _is_token_refusal(error: Exception) -> bool:
    return isinstance(error, grpc.aio.AioRpcError) and (
        error.code() is grpc.StatusCode.UNAUTHENTICATED
        or any(text in (error.details() or "") for text in (ASKS_FOR_A_USER, *OLD_REVISIONS))
    )


def bytes_in(request: Any) -> int:
    """Size of a message on the wire."""
    return int(rpc_pb2.TxnRequest.ByteSize(request))
