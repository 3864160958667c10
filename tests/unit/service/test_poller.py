"""What gRPC's poller says to several loops of one process, and what of it reaches the log."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.poller import is_harmless, quiet_poller
from regnum_service.server import GrpcServer
from regnum_service.supervisor import Supervisor
from regnum_testing.waiting import DEADLINE_S, within

ROUNDS = 10


async def check(channel: grpc.aio.Channel) -> None:
    await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)


async def on_a_loop_of_its_own(address: Address, prepare: Callable[[asyncio.AbstractEventLoop], None]) -> None:
    """Ends in the middle of a call, and its loop is closed at once: gRPC has not let go of it."""
    prepare(asyncio.get_running_loop())
    channel = open_channel(address)
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
    await watch.read()


async def on_two_loops(address: Address, prepare: Callable[[asyncio.AbstractEventLoop], None]) -> None:
    """Calls from this loop beside one of another thread, and after that one is closed."""
    prepare(asyncio.get_running_loop())
    async with open_channel(address) as channel:
        await asyncio.gather(asyncio.to_thread(asyncio.run, on_a_loop_of_its_own(address, prepare)), check(channel))
        await check(channel)


@pytest.fixture
async def server() -> AsyncIterator[Address]:
    running = GrpcServer(Address(host="127.0.0.1", port=0), [], supervisor=Supervisor("test"))
    await running.start()
    yield running.address
    await running.stop(0)


async def test_what_it_says_is_recognised_and_not_logged(server: Address, caplog: pytest.LogCaptureFixture) -> None:
    said: list[dict[str, Any]] = []

    def listen(loop: asyncio.AbstractEventLoop) -> None:
        loop.set_exception_handler(lambda _, context: said.append(context))

    for _ in range(ROUNDS):
        await within(on_two_loops(server, listen))
    assert said, "the poller is quiet by itself now: what quiet_poller does is not needed any more"
    assert all(is_harmless(context) for context in said), said
    caplog.clear()
    for _ in range(ROUNDS):
        await within(on_two_loops(server, quiet_poller))
    assert not caplog.records


async def test_a_defect_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    quiet_poller(loop)

    def fail() -> None:
        raise BlockingIOError("a defect")

    loop.call_soon(fail)
    # Two turns: it has run, and the loop has told its handler.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "a defect" in caplog.text


def test_which_complaints_are_harmless() -> None:
    handle = "<Handle PollerCompletionQueue._handle_events()>"
    assert is_harmless({"exception": RuntimeError("Event loop is closed"), "handle": handle})
    assert is_harmless({"exception": BlockingIOError(), "handle": handle})
    assert not is_harmless({"exception": RuntimeError("Event loop is closed"), "handle": "<Handle other()>"})
    assert not is_harmless({"exception": RuntimeError("another"), "handle": handle})
    assert not is_harmless({"message": "a task was destroyed"})
