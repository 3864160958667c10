"""Messages of health and reflection on a listener of clients: tiny, few at once, and not for long."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.health import Health
from regnum_service.interceptor import ErrorInterceptor
from regnum_service.small_calls import SMALL_BYTES_MAX, SmallCalls
from regnum_service.status import from_rpc_error
from regnum_testing.waiting import within

CHECK = "/grpc.health.v1.Health/Check"
SERVING = health_pb2.HealthCheckResponse.SERVING
NAMES = reflection_pb2.ServerReflectionRequest(list_services="")
LONG = "x" * SMALL_BYTES_MAX

Connect = Callable[[], grpc.aio.Channel]


@asynccontextmanager
async def serving(small: SmallCalls) -> AsyncIterator[Connect]:
    """A server with health and reflection behind that; yields what opens connections to it."""
    failed: list[BaseException] = []
    server = grpc.aio.server(interceptors=(ErrorInterceptor(lambda _, error: failed.append(error)), small))
    health = Health()
    health.set("", SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    reflection.enable_server_reflection([reflection.SERVICE_NAME], server)
    address = Address(host="127.0.0.1", port=server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    channels: list[grpc.aio.Channel] = []

    def connect() -> grpc.aio.Channel:
        channel = open_channel(address)
        channels.append(channel)
        return channel

    try:
        yield connect
    finally:
        for channel in channels:
            await channel.close()
        await server.stop(0)
    assert not failed


def check(channel: grpc.aio.Channel, service: str = "") -> Awaitable[Any]:
    return within(health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service)))


async def silent(channel: grpc.aio.Channel) -> Any:
    """A check that has begun and does not bring its message."""
    call = channel.stream_unary(CHECK)()
    await channel.channel_ready()
    return call


async def refused(call: Awaitable[Any]) -> tuple[grpc.StatusCode, int]:
    """How a call was refused: its status, and its error."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), from_rpc_error(caught.value).code


async def test_health_is_told_and_watched_as_ever() -> None:
    async with serving(SmallCalls()) as connect:
        channel = connect()
        assert (await check(channel)).status == SERVING
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await within(watch.read())).status == SERVING
        answers = await asyncio.gather(*(check(channel) for _ in range(50)))
        assert {answer.status for answer in answers} == {SERVING}
        assert (await refused(check(channel, "nobody")))[0] is grpc.StatusCode.NOT_FOUND
        watch.cancel()


async def test_a_large_message_is_refused_and_so_is_what_is_none() -> None:
    async with serving(SmallCalls()) as connect:
        channel = connect()
        invalid = (grpc.StatusCode.INVALID_ARGUMENT, errors_pb2.ERROR_CODE_INVALID_REQUEST)
        assert await refused(check(channel, LONG)) == invalid
        raw = channel.unary_unary(CHECK)
        assert await refused(within(raw(b"\xff\xff"))) == invalid
        asked = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await asked.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=LONG))
        assert await refused(within(asked.read())) == invalid


async def test_who_does_not_bring_his_message_loses_his_turn() -> None:
    async with serving(SmallCalls(read_at_once=1, read_s_max=0.2)) as connect:
        call = await silent(connect())
        assert await refused(within(call)) == (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        )
        assert (await check(connect())).status == SERVING


async def test_one_connection_holds_one_turn_and_the_checks_of_another_go_on() -> None:
    async with serving(SmallCalls(read_at_once=2, read_s_max=300.0, calls_of_connection=5)) as connect:
        hostile = connect()
        calls = [await silent(hostile) for _ in range(6)]
        # The sixth is told, so the five before it have come.
        throttled = (grpc.StatusCode.RESOURCE_EXHAUSTED, errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED)
        done, waiting = await asyncio.wait(
            [asyncio.ensure_future(refused(call)) for call in calls], timeout=10.0, return_when=asyncio.FIRST_COMPLETED
        )
        assert [one.result() for one in done] == [throttled]
        assert (await check(connect())).status == SERVING
        assert not any(one.done() for one in waiting)
        for one in (*waiting, *calls):
            one.cancel()


async def test_so_many_messages_are_read_at_once_and_the_next_when_one_of_them_has_come() -> None:
    async with serving(SmallCalls(read_at_once=1, read_s_max=300.0, calls_of_connection=1)) as connect:
        hostile = connect()
        first = await silent(hostile)
        # It is told, so the one before it has its turn, or this one has.
        done, _ = await asyncio.wait(
            [asyncio.ensure_future(refused(call)) for call in (first, await silent(hostile))],
            timeout=10.0,
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert len(done) == 1
        second = asyncio.ensure_future(check(connect()))
        await asyncio.wait([second], timeout=0.3)
        assert not second.done()
        await hostile.close()
        assert (await second).status == SERVING


async def test_streams_of_reflection_are_few() -> None:
    async with serving(SmallCalls(streams_max=1, stream_s_max=300.0)) as connect:
        stub = reflection_pb2_grpc.ServerReflectionStub(connect())
        first = stub.ServerReflectionInfo()
        await first.write(NAMES)
        answer = await within(first.read())
        assert [one.name for one in answer.list_services_response.service] == [reflection.SERVICE_NAME]
        assert (await refused(within(stub.ServerReflectionInfo().read())))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        await first.done_writing()
        assert await within(first.read()) is grpc.aio.EOF
        again = stub.ServerReflectionInfo()
        await again.write(NAMES)
        assert (await within(again.read())).list_services_response.service


async def test_a_stream_of_reflection_that_rests_is_ended() -> None:
    async with serving(SmallCalls(stream_s_max=0.2)) as connect:
        resting = reflection_pb2_grpc.ServerReflectionStub(connect()).ServerReflectionInfo()
        assert await refused(within(resting.read())) == (
            grpc.StatusCode.DEADLINE_EXCEEDED,
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        )
