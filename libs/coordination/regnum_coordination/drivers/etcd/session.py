"""A session as a lease: granted and revoked through etcd3, kept alive on one long stream on the loop.

Goals: the owner knows before the store does that its session may be over; a lost connection costs no session as long
as it comes back in time; a server that is gone is noticed.

Constraints: a keep-alive counts from the moment it was sent, not from its answer. The refresh of a dead lease is
answered with TTL 0 and no error. The loop may be held for a moment by other work.

Algorithm: send a keep-alive every sixth of the TTL. Each answer moves the local deadline to its sending time plus 0.8
of the TTL. No answer within a third of the TTL, or a broken stream: SUSPENDED, and a new stream with another member
after a short pause. Its first answer must come within a third of the time left, so that a silent member, or one that
looks for a leader, leaves time for others.
Past the deadline, or TTL 0: LOST, for good (safety rule S8).

At each of these moments the members that watches are with are asked for the session's key: a member whose disk hangs
passes keep-alives on to the leader, so that the session is well while its watches are silent. That is one read for each
session and sixth of the TTL: 200 in a second for 200 brokers with 6 s, as many as keep-alives.
"""

import asyncio
import random
from contextlib import suppress
from typing import Final

import grpc
from etcd3.etcdrpc import rpc_pb2

from regnum_coordination.drivers.etcd.rpc import EtcdRpc, Stream
from regnum_coordination.drivers.session_state import SessionStateFeed
from regnum_coordination.port import SessionState

BEATS: Final = 6
"""Keep-alives within a TTL."""

DEADLINE_SHARE: Final = 0.8
"""Part of the TTL after which the owner gives the session up by itself."""

RETRY_SHARE: Final = 1 / 3
"""Part of the time left that the first keep-alive of a stream may take."""


class LeaseSession:
    """Keeps one lease alive. ``start`` it once."""

    def __init__(self, rpc: EtcdRpc, *, key: bytes, lease_id: int, ttl_s: float, granted_at_s: float) -> None:
        self._rpc = rpc
        self._key = key
        self.lease_id: Final = lease_id
        """etcd's id of the lease: the session's id."""
        self._ttl_s = ttl_s
        self._deadline_s = granted_at_s + DEADLINE_SHARE * ttl_s
        self.feed: Final = SessionStateFeed(SessionState.CONNECTED)
        """The state; read it through ``state``."""
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> SessionState:
        """The state at this moment: LOST also when the loop was held beyond the deadline."""
        self._is_over()
        return self.feed.state

    def start(self) -> None:
        """Begin to keep the lease alive."""
        self._tasks = [
            asyncio.create_task(self._keep_alive(), name=f"etcd lease {self.lease_id:x}"),
            asyncio.create_task(self._look_at_members(), name=f"etcd members of {self.lease_id:x}"),
        ]

    async def stop(self) -> None:
        """LOST, and no more keep-alives."""
        self.feed.set(SessionState.LOST)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _is_over(self) -> bool:
        if self._left_s() <= 0:
            self.feed.set(SessionState.LOST)
        return self.feed.is_lost

    def _left_s(self) -> float:
        return self._deadline_s - asyncio.get_running_loop().time()

    async def _look_at_members(self) -> None:
        while not self._is_over():
            await asyncio.sleep(self._ttl_s / BEATS)
            await self._rpc.find_silent(self._key)

    async def _keep_alive(self) -> None:
        try:
            await self._keep_alive_until_over()
        finally:
            # However this task ends, nobody keeps the lease alive any more, and waiters must learn of it.
            self.feed.set(SessionState.LOST)

    async def _keep_alive_until_over(self) -> None:
        pause_s = 0.05
        while not self._is_over():
            stream = self._rpc.keep_alive_stream()
            try:
                if await self._use(stream):
                    pause_s = 0.05
            finally:
                stream.call.cancel()
            if self._is_over():
                return
            self.feed.set(SessionState.SUSPENDED)
            await asyncio.sleep(max(0.0, min(pause_s * (0.5 + random.random() / 2), self._left_s())))
            pause_s = min(pause_s * 2, 0.5)

    async def _use(self, stream: Stream) -> bool:
        """Send keep-alives until the stream fails or the lease is dead; whether any was answered."""
        answered = False
        loop = asyncio.get_running_loop()
        while (left_s := self._left_s()) > 0:
            sent_at_s = loop.time()
            # What is left is not staked on one member: five attempts in a row fit into it.
            share = 1 if answered else RETRY_SHARE
            try:
                async with asyncio.timeout(min(self._ttl_s / 3, left_s * share)):
                    await stream.call.write(rpc_pb2.LeaseKeepAliveRequest(ID=self.lease_id))
                    answer = await stream.call.read()
            except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError, grpc.aio.UsageError) as error:
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, self._left_s())):
                        await self._rpc.recover(stream, error)
                return answered
            if answer is grpc.aio.EOF:
                await self._rpc.recover(stream, None)
                return answered
            if answer.TTL <= 0:
                self.feed.set(SessionState.LOST)
                return answered
            answered = True
            self._deadline_s = max(self._deadline_s, sent_at_s + DEADLINE_SHARE * answer.TTL)
            if self._left_s() > 0:
                self.feed.set(SessionState.CONNECTED)
            await asyncio.sleep(max(0.0, sent_at_s + self._ttl_s / BEATS - loop.time()))
        return answered
