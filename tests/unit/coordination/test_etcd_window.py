"""How many calls are under way at a time, and what becomes of the others."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc
import pytest
from regnum_coordination.drivers.etcd.rpc import WINDOW, EtcdRpc
from regnum_coordination.errors import ConnectionLoss
from regnum_testing.clock import settle


class _Channel:
    """Counts calls, and answers when it may."""

    def __init__(self) -> None:
        self.under_way = 0
        self.most = 0
        self.answers = asyncio.Event()

    def unary_unary(self, path: str, **coding: object) -> Callable[..., Awaitable[str]]:
        del coding

        async def call(request: object, **options: object) -> str:
            del request, options
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                await self.answers.wait()
            finally:
                self.under_way -= 1
            return path

        return call

    def stream_stream(self, path: str, **coding: object) -> object:
        return path, coding


def _rpc(channel: _Channel, *, timeout_s: float) -> EtcdRpc:
    return EtcdRpc([cast("grpc.aio.Channel", channel)], timeout_s=timeout_s)


async def test_a_flood_of_calls_waits_here_and_is_answered() -> None:
    channel = _Channel()
    rpc = _rpc(channel, timeout_s=30.0)
    calls: list[asyncio.Task[Any]] = [asyncio.create_task(rpc.range(None)) for _ in range(3 * WINDOW)]
    await settle()
    assert channel.under_way == WINDOW
    for call in calls[: WINDOW // 2] + calls[-WINDOW // 2 :]:
        call.cancel()  # of some that are under way and of some that wait
    await settle()
    assert channel.under_way == WINDOW
    channel.answers.set()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, asyncio.CancelledError) for answer in ended].count(True) == WINDOW
    assert channel.most == WINDOW
    assert await rpc.range(None) == "/etcdserverpb.KV/Range"


async def test_who_finds_no_room_in_time_has_sent_nothing() -> None:
    channel = _Channel()
    rpc = _rpc(channel, timeout_s=0.05)
    stuck = [asyncio.create_task(rpc.range(None)) for _ in range(WINDOW)]
    await settle()
    with pytest.raises(ConnectionLoss, match="nothing more was sent"):
        await rpc.put(None)
    assert channel.most == WINDOW
    channel.answers.set()
    await asyncio.gather(*stuck)
