"""Servers of ours are made in one place, take no compressed messages, and let nobody's questions take their memory."""

import ast
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_model.principals import Principal
from regnum_model.shares import Shares
from regnum_service.channel import aio_channel, blocking_channel
from regnum_service.errors import RegnumError
from regnum_service.gates import GateInterceptor
from regnum_service.interceptor import ErrorInterceptor
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import HeldBytes
from regnum_service.listening import SERVER_OPTIONS, make_server
from regnum_service.reading import IN_ALL, SMALL_BYTES, ReadTurns
from regnum_service.server import LIVENESS, QUESTION_BYTES_MAX, GrpcServer
from regnum_service.supervisor import Supervisor
from regnum_testing.clock import settle
from regnum_testing.waiting import DEADLINE_S, eventually, within

ROOT = Path(__file__).parents[3]
FOLDERS = ("libs", "services", "analysis", "bench")
MAKER = "libs/service/regnum_service/listening.py"
COMPRESSIONS = (grpc.Compression.Gzip, grpc.Compression.Deflate)


def makes_a_server(node: ast.AST) -> bool:
    """``grpc.server(...)``, ``grpc.aio.server(...)``, ``aio.server(...)``, or a name that was imported for it."""
    match node:
        case ast.Call(func=ast.Attribute(attr="server", value=ast.Name(id="grpc" | "aio"))):
            return True
        case ast.Call(func=ast.Attribute(attr="server", value=ast.Attribute(attr="aio"))):
            return True
        case ast.ImportFrom(module="grpc" | "grpc.aio", names=names):
            return any(name.name == "server" for name in names)
    return False


def test_servers_are_made_in_one_place() -> None:
    makers = {
        str(file.relative_to(ROOT))
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
        # To parse all files takes seconds.
        if (".server(" in (text := file.read_text(encoding="utf-8")) or "import server" in text)
        and any(map(makes_a_server, ast.walk(ast.parse(text))))
    }
    assert makers == {MAKER}


@pytest.mark.parametrize(
    "code", ["grpc.server(pool)", "grpc.aio.server()", "aio.server()", "from grpc.aio import server", "x.aio.server()"]
)
def test_a_server_that_is_made_elsewhere_is_found(code: str) -> None:
    assert any(map(makes_a_server, ast.walk(ast.parse(code))))


async def test_what_holds_for_every_server_holds_for_each() -> None:
    for name, _ in SERVER_OPTIONS:
        with pytest.raises(ValueError, match=name):
            make_server((name, 1))


@pytest.fixture
async def server() -> AsyncIterator[GrpcServer]:
    server = GrpcServer(Address(host="127.0.0.1", port=0), [], supervisor=Supervisor("test"))
    await server.start()
    yield server
    await server.stop(0)


@pytest.fixture
async def channel(server: GrpcServer) -> AsyncIterator[grpc.aio.Channel]:
    async with aio_channel(str(server.address)) as channel:
        yield channel


def check(name: str = LIVENESS) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=name)


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_a_client_that_compresses_hears_that_it_must_not(server, channel, compression: grpc.Compression) -> None:
    """By gRPC's blocking API: asyncio's says INTERNAL where the refusal comes before all has been sent."""

    def asked() -> list[grpc.RpcError]:
        with blocking_channel(str(server.address)) as other:
            stub = health_pb2_grpc.HealthStub(other)
            reflection = reflection_pb2_grpc.ServerReflectionStub(other)
            with pytest.raises(grpc.RpcError) as call:
                # A mebibyte, which is a kilobyte on the wire.
                stub.Check(check("x" * (1 << 20)), timeout=DEADLINE_S, compression=compression)
            requests = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
            with pytest.raises(grpc.RpcError) as stream:
                next(reflection.ServerReflectionInfo(requests, timeout=DEADLINE_S, compression=compression))
            return [call.value, stream.value]

    for refused in await asyncio.to_thread(asked):
        assert refused.code() is grpc.StatusCode.UNIMPLEMENTED
        assert refused.details() == f"Compression algorithm '{compression.name.lower()}' is disabled."
    answer = await health_pb2_grpc.HealthStub(channel).Check(check(), timeout=DEADLINE_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_message_that_is_compressed_all_the_same_stays_as_it_came() -> None:
    # As if the call had been let in: what unpacks messages does not.
    took: list[int] = []

    async def take(request: bytes, _context: Any) -> bytes:
        took.append(len(request))
        return b""

    options = [option for option in SERVER_OPTIONS if option[0] != "grpc.compression_enabled_algorithms_bitset"]
    server = grpc.aio.server(options=options)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("x.X", {"Take": grpc.unary_unary_rpc_method_handler(take)}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio_channel(f"127.0.0.1:{port}") as channel:
        await channel.unary_unary("/x.X/Take")(bytes(1 << 20), timeout=DEADLINE_S, compression=grpc.Compression.Gzip)
    await server.stop(0)
    assert took[0] < 10_000


async def test_a_question_is_a_name(channel) -> None:
    large = "x" * QUESTION_BYTES_MAX
    health = health_pb2_grpc.HealthStub(channel)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await health.Check(check(large), timeout=DEADLINE_S)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(QUESTION_BYTES_MAX) in (refused.value.details() or "")
    with pytest.raises(grpc.aio.AioRpcError) as watched:
        await health.Watch(check(large), timeout=DEADLINE_S).read()
    assert watched.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    stream = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(timeout=DEADLINE_S)
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    assert (await stream.read()).list_services_response.service
    await stream.write(reflection_pb2.ServerReflectionRequest(file_containing_symbol=large))
    with pytest.raises(grpc.aio.AioRpcError) as asked:
        await stream.read()
    assert asked.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_streams_of_reflection_are_few_and_their_places_come_back(server, channel) -> None:
    def opened(by: grpc.aio.Channel) -> Any:
        return reflection_pb2_grpc.ServerReflectionStub(by).ServerReflectionInfo(timeout=DEADLINE_S)

    async def answers(stream: Any) -> bool:
        await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        return bool((await stream.read()).list_services_response.service)

    first, second = opened(channel), opened(channel)
    assert await answers(first)
    assert await answers(second)
    third = opened(channel)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await answers(third)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await health_pb2_grpc.HealthStub(channel).Check(check(), timeout=DEADLINE_S)).status
    async with aio_channel(str(server.address), options=(("grpc.use_local_subchannel_pool", 1),)) as other:
        assert await answers(opened(other))
    await first.done_writing()
    assert await first.read() is grpc.aio.EOF

    async def is_let_in() -> bool:
        try:
            return await answers(opened(channel))
        except grpc.aio.AioRpcError:
            return False

    await eventually(is_let_in, what="a stream in the place of one that has ended")


async def test_a_stream_that_says_nothing_is_ended() -> None:
    async def echo(requests: AsyncIterator[bytes], _context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    gate = ReadTurns(of_streams=True)
    server = make_server(
        interceptors=(
            ErrorInterceptor(lambda *_: None),
            GateInterceptor((gate,), methods="/x.", bytes_max=10, silence_s_max=0.05),
        )
    )
    handlers = {"Echo": grpc.stream_stream_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("x.X", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with aio_channel(f"127.0.0.1:{port}") as channel:
        stream = channel.stream_stream("/x.X/Echo")(timeout=DEADLINE_S)
        await stream.write(b"a")
        assert await stream.read() == b"a"
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await stream.read()
        assert ended.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await server.stop(0)
    assert gate.connections == 0


A, B = Call(peer="a"), Call(peer="b")
METHOD = "/x.X/Y"


async def test_so_many_messages_are_read_at_once_of_a_connection_and_of_all() -> None:
    gate = ReadTurns(of_connection=2, in_all=4)
    of_a = [asyncio.create_task(gate.enter(METHOD, A)) for _ in range(4)]
    of_b = [asyncio.create_task(gate.enter(METHOD, B)) for _ in range(2)]
    await settle()
    assert [task.done() for task in of_a] == [True, True, False, False]
    # The last turn is for a connection that has none.
    assert [task.done() for task in of_b] == [True, False]
    of_a[0].result().took(10)
    await settle()
    assert [task.done() for task in (*of_a, *of_b)] == [True, True, False, False, True, False]
    of_a[1].result().took(10)
    await settle()
    # Both have one, and one stays free.
    assert sum(task.done() for task in (*of_a, *of_b)) == 5
    for task in (*of_a[2:], of_b[1]):
        task.cancel()
    await settle()
    for task in (*of_a, *of_b):
        if not task.cancelled():
            task.result().leave()
    assert gate.connections == 0


async def test_a_principal_whose_messages_never_come_keeps_no_other_one_out() -> None:
    gate = ReadTurns()
    guests = [Call(peer=str(connection), principal=Principal("guest")) for connection in range(20)]
    silent = [asyncio.create_task(gate.enter(METHOD, guest)) for guest in guests for _ in range(8)]
    await settle()
    assert sum(task.done() for task in silent) == IN_ALL // 2
    for _ in range(5):
        (await within(gate.enter(METHOD, Call(peer="a", principal=Principal("admin"))))).leave()
    for task in silent:
        task.cancel()
    await settle()
    for task in silent:
        if not task.cancelled():
            task.result().leave()
    assert gate.connections == 0


async def test_more_than_may_wait_are_refused() -> None:
    gate = ReadTurns(of_connection=1, in_all=8, waiting=1)
    turn = await gate.enter(METHOD, A)
    waiting = asyncio.create_task(gate.enter(METHOD, A))
    await settle()
    with pytest.raises(RegnumError) as refused:
        await gate.enter(METHOD, A)
    assert refused.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    (await gate.enter(METHOD, B)).leave()
    turn.leave()
    (await waiting).leave()
    assert (gate.connections, gate.refused) == (0, 1)


async def test_large_messages_under_way_leave_room_for_those_of_others() -> None:
    size = SMALL_BYTES + 1
    held = HeldBytes(Shares(total_max=4 * size, connection_max=4 * size))
    gate = ReadTurns(held=held)
    turns = [await gate.enter(METHOD, A) for _ in range(3)]
    turns[0].took(size)
    turns[1].took(size)
    with pytest.raises(RegnumError) as refused:
        turns[2].took(size)
    assert refused.value.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    turns[2].leave()
    other = await gate.enter(METHOD, B)
    other.took(size)
    assert held.total == 3 * size
    # A call that streams its answers has done with its request.
    turns[0].lasts()
    small = await gate.enter(METHOD, A)
    small.took(SMALL_BYTES)
    for turn in (*turns, other, small):
        turn.leave()
    assert (held.total, gate.connections) == (0, 0)
