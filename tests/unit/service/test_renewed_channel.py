"""Who calls a name reaches whoever has it now."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2
from regnum_model.nodes import Address
from regnum_service.channel import CHANNEL_OPTIONS, aio_channel, blocking_channel, open_channel
from regnum_service.detection import WATCH
from regnum_service.renewed_channel import NAME_OPTIONS, RENEWED_AFTER_S, RenewedChannel, is_name
from regnum_service.server import GrpcServer
from regnum_service.supervisor import Supervisor
from regnum_testing.name_server import NameServer
from regnum_testing.ports import unused_port
from regnum_testing.waiting import eventually, until

CHECK = "/grpc.health.v1.Health/Check"
FOUND_WITHIN_S = 20.0
"""Longer than it takes a starved machine, and shorter than the 30 s for which gRPC keeps an address by itself."""
State = grpc.ChannelConnectivity


class FakeCall:
    def __init__(self) -> None:
        self.ended: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.ended.append(callback)

    def end(self) -> None:
        for callback in self.ended:
            callback(self)


class FakeChannel:
    """Its state is what the test says."""

    def __init__(self) -> None:
        self.state = State.READY
        self.calls: list[FakeCall] = []
        self.closed = False

    def unary_unary(self, method: str) -> Callable[[], FakeCall]:
        def start() -> FakeCall:
            self.calls.append(FakeCall())
            return self.calls[-1]

        return start

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self.state

    async def close(self, grace: float | None = None) -> None:
        self.closed = True


class Stage:
    """A renewed channel over fakes, and a clock."""

    def __init__(self, *, follows_name: bool = True) -> None:
        self.now_s = 0.0
        self.version = 1
        self.asked = 0
        self.made: list[FakeChannel] = []
        self.channel = RenewedChannel(
            self._make, follows_name=follows_name, version=self._asked_version, now_s=lambda: self.now_s
        )
        self.call: Callable[[], FakeCall] = self.channel.unary_unary("/a/B")

    def _asked_version(self) -> int:
        self.asked += 1
        return self.version

    def _make(self) -> grpc.aio.Channel:
        self.made.append(FakeChannel())
        return cast("grpc.aio.Channel", self.made[-1])

    def used(self) -> list[int]:
        return [len(channel.calls) for channel in self.made]


async def test_a_channel_that_fails_is_given_up_when_it_is_called_again() -> None:
    stage = Stage()
    stage.call()
    stage.made[0].state = State.TRANSIENT_FAILURE
    stage.now_s = RENEWED_AFTER_S - 0.001
    stage.call()
    assert stage.used() == [2], "gRPC tries again by itself first"
    stage.now_s = RENEWED_AFTER_S
    stage.call()
    assert stage.used() == [2, 1]
    stage.made[1].state = State.TRANSIENT_FAILURE
    stage.call()
    assert stage.used() == [2, 2], "the new one has its time, too: a peer that is away costs no channel for each call"
    stage.now_s *= 2
    stage.call()
    assert stage.used() == [2, 2, 1]


async def test_one_whose_connection_ended_is_not_begun_again_at_the_address_of_before() -> None:
    stage = Stage()
    stage.made[0].state = State.IDLE
    stage.now_s = RENEWED_AFTER_S
    stage.call().end()
    assert stage.used() == [1], "nobody has called it yet"
    stage.made[0].state = State.READY
    stage.call().end()
    stage.made[0].state = State.IDLE
    stage.call()
    assert stage.used() == [2, 1]
    await until(lambda: stage.made[0].closed)


async def test_when_a_stream_ends_it_is_asked_whether_what_channels_are_made_of_changed() -> None:
    """A stream that is ended with its certificate comes again: by then the new one has to be known."""
    stage = Stage()
    stream = stage.call()
    asked = stage.asked
    stream.end()
    assert stage.asked == asked + 1
    await stage.channel.close()


async def test_a_name_that_moved_while_nobody_called_is_found_by_the_first_call() -> None:
    """By itself gRPC tries the address of before, which here is silent, until a second is over."""
    port = unused_port()
    supervisor = Supervisor("test")
    before = GrpcServer(Address(host="127.0.0.2", port=port), [], supervisor=supervisor)
    after = GrpcServer(Address(host="127.0.0.3", port=port), [], supervisor=supervisor)
    await before.start()
    await after.start()
    async with NameServer("127.0.0.2") as names:
        target, now_s = names.target(port), [0.0]
        channel = RenewedChannel(
            lambda: aio_channel(target, options=CHANNEL_OPTIONS),
            follows_name=True,
            now_s=lambda: now_s[0],
        )
        assert await answers(check_on(channel))
        now_s[0] = RENEWED_AFTER_S
        await before.stop()
        await until(lambda: channel._standing.channel.get_state() is State.IDLE)
        names.address = "127.0.0.3"
        async with silent_at("127.0.0.2", port) as came:
            assert await answers(check_on(channel))
            assert came == []
        assert channel.renewals == 1
        await channel.close()
    await after.stop()
    await supervisor.unwind()


@pytest.mark.parametrize("state", [State.CONNECTING, State.READY])
def test_a_channel_that_does_not_fail_is_kept(state: grpc.ChannelConnectivity) -> None:
    stage = Stage()
    stage.made[0].state = state
    stage.now_s = 1_000.0
    stage.call()
    assert stage.used() == [1]
    assert stage.channel.renewals == 0


def test_a_channel_to_an_address_is_left_to_grpc() -> None:
    stage = Stage(follows_name=False)
    stage.made[0].state = State.TRANSIENT_FAILURE
    stage.now_s = 1_000.0
    stage.call()
    assert stage.used() == [1]


async def test_what_began_on_the_channel_before_ends_there_and_only_then_is_it_closed() -> None:
    stage = Stage()
    before = stage.call()
    stage.version = 2
    stage.call()
    assert stage.used() == [1, 1]
    await asyncio.sleep(0)
    assert not stage.made[0].closed
    before.end()
    await until(lambda: stage.made[0].closed)
    assert not stage.made[1].closed
    await stage.channel.close()
    assert stage.made[1].closed


async def test_what_is_closed_is_not_made_anew_for_who_comes_late() -> None:
    stage = Stage()
    stage.call()
    await stage.channel.close()
    stage.version = 2
    stage.now_s = 2 * RENEWED_AFTER_S
    stage.made[0].state = State.TRANSIENT_FAILURE
    stage.call()
    assert stage.used() == [2]
    assert stage.channel.renewals == 0


async def test_files_that_change_while_a_channel_is_made_are_not_missed() -> None:
    """The version is asked for first: at worst one more channel is made."""
    versions = [1]

    def make() -> grpc.aio.Channel:
        versions[0] += 1
        return cast("grpc.aio.Channel", FakeChannel())

    channel = RenewedChannel(make, follows_name=False, version=lambda: min(versions[0], 3))
    call = channel.unary_unary("/a/B")
    call()
    assert channel.renewals == 1
    call()
    assert channel.renewals == 2
    call()
    assert channel.renewals == 2


@pytest.mark.parametrize(
    ("host", "named"),
    [("broker-1.broker.regnum.svc", True), ("localhost", True), ("127.0.0.1", False), ("::1", False), ("[::1]", False)],
)
def test_names_are_told_from_addresses(host: str, named: bool) -> None:
    assert is_name(host) is named


async def test_every_channel_to_a_name_asks_for_it_again_and_soon() -> None:
    assert set(NAME_OPTIONS) <= set(CHANNEL_OPTIONS)
    named = open_channel(Address(host="localhost", port=1))
    plain = open_channel(Address(host="127.0.0.1", port=1))
    try:
        assert isinstance(named._channel, RenewedChannel)  # type: ignore[attr-defined]
        assert not isinstance(plain._channel, RenewedChannel)  # type: ignore[attr-defined]
    finally:
        await named.close()
        await plain.close()


@asynccontextmanager
async def silent_at(address: str, port: int) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """Somebody who takes connections, which it gives, and says nothing, as a Pod whose process is stopped."""

    async def hold(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(hold, address, port)
    try:
        yield held
    finally:
        server.close()
        for writer in held:
            writer.close()


async def answers(call: Callable[..., Any]) -> bool:
    with suppress(grpc.RpcError):
        await call(health_pb2.HealthCheckRequest(), timeout=2.0)
        return True
    return False


def check_on(channel: Any) -> Any:
    return channel.unary_unary(
        CHECK,
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )


async def test_a_name_that_moved_is_found_by_channels_of_both_kinds_while_the_old_address_is_silent() -> None:
    """With gRPC's own options it takes 30 s."""
    port = unused_port()
    supervisor = Supervisor("test")
    server = GrpcServer(Address(host="127.0.0.3", port=port), [], supervisor=supervisor)
    async with NameServer("127.0.0.2") as names, silent_at("127.0.0.2", port):
        target = names.target(port)
        with blocking_channel(target, options=CHANNEL_OPTIONS) as blocking:
            channel = RenewedChannel(lambda: aio_channel(target, options=CHANNEL_OPTIONS), follows_name=True)
            call, blocking_call = check_on(channel), check_on(blocking)

            async def asked(request: health_pb2.HealthCheckRequest, timeout: float) -> object:
                return await asyncio.to_thread(blocking_call, request, timeout=timeout)

            assert not any(await asyncio.gather(answers(call), answers(asked)))
            await server.start()
            names.address = "127.0.0.3"
            await asyncio.gather(
                eventually(lambda: answers(call), within_s=FOUND_WITHIN_S),
                eventually(lambda: answers(asked), within_s=FOUND_WITHIN_S),
            )
            watch = channel.unary_stream(
                WATCH,
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )(health_pb2.HealthCheckRequest())
            assert await watch.read()
            watch.cancel()
            await channel.close()
    await server.stop()
    await supervisor.unwind()


async def test_a_name_server_that_is_silent_is_not_waited_for() -> None:
    """It would be asked three times, after 2 and 4 and 8 s, and the call would wait for all of it."""
    async with NameServer("127.0.0.3") as names:
        names.silent = True
        async with aio_channel(names.target(1), options=CHANNEL_OPTIONS) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as failed:
                await check_on(channel)(health_pb2.HealthCheckRequest(), timeout=60.0)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        assert names.questions <= 2


@pytest.mark.full
async def test_a_name_that_stood_for_nothing_for_long_is_found_when_it_is_back() -> None:
    """By itself gRPC waits 1.6 times as long each time: after half a minute for a quarter of a minute."""
    port = unused_port()
    supervisor = Supervisor("test")
    server = GrpcServer(Address(host="127.0.0.3", port=port), [], supervisor=supervisor)
    await server.start()
    async with NameServer("127.0.0.3") as names:
        target = names.target(port)
        channel = RenewedChannel(lambda: aio_channel(target, options=CHANNEL_OPTIONS), follows_name=True)
        call = check_on(channel)
        assert await answers(call)
        await server.stop()
        names.address = None
        loop = asyncio.get_running_loop()
        gone_s = loop.time()
        while loop.time() - gone_s < 30.0:
            assert not await answers(call)
            await asyncio.sleep(0.05)
        assert channel.renewals >= 10
        asked = names.questions
        assert asked < 300, "a name that stands for nothing is asked for a few times a second at most"
        server = GrpcServer(Address(host="127.0.0.3", port=port), [], supervisor=supervisor)
        await server.start()
        names.address = "127.0.0.3"
        await eventually(lambda: answers(call), within_s=10.0)
        await channel.close()
    await server.stop()
    await supervisor.unwind()
