"""Gates of a real server: what passes, what waits, and what is not read meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_service.muting import Muting
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_testing.under_load import until
from regnum_testing.waiting import DEADLINE_S

SHUTDOWN = "/regnum.election.v1.ControllerService/ControlledShutdown"


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    def __init__(self) -> None:
        self.seen: list[int] = []

    async def ControlledShutdown(self, request, context):  # noqa: N802 - the name in the proto
        self.seen.append(request.broker_id)
        if request.broker_id < 0:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "negative")
        return controller_pb2.ControlledShutdownResponse(remaining_partitions=request.broker_id)


class Lifeline(controller_pb2_grpc.LifelineServiceServicer):
    async def BrokerLifeline(self, request_iterator, context):  # noqa: N802 - the name in the proto
        async for request in request_iterator:
            yield controller_pb2.BrokerLifelineResponse(probe=request.beat + 1)


class Turnstile:
    """A gate that a test opens and closes."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.methods: list[str] = []
        self.inside = 0
        self.reads = 0
        self.sizes: list[int] = []
        self.bytes_max = 1_000
        self.lasting = 0

    async def enter(self, method, call) -> Turnstile:
        self.methods.append(method)
        await self.open.wait()
        self.inside += 1
        return self

    def took(self, size_bytes: int) -> None:
        self.sizes.append(size_bytes)
        if size_bytes > self.bytes_max:
            raise RegnumError(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, "too much", retry_after_ms=70)

    def lasts(self) -> None:
        self.lasting += 1

    def leave(self) -> None:
        self.inside -= 1

    async def read(self, method, call) -> None:
        self.reads += 1
        await self.open.wait()


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor("test")
    yield supervisor
    await supervisor.unwind()


@pytest.fixture
def controller() -> Controller:
    return Controller()


@pytest.fixture
def gate() -> Turnstile:
    return Turnstile()


@pytest.fixture
def muting() -> Muting:
    return Muting(SystemClock(), held_max=3)


@pytest.fixture
async def server(supervisor, controller, gate, muting) -> GrpcServer:
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [
            ServiceRegistration(
                name="regnum.election.v1.ControllerService",
                servicer=controller,
                add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
            ),
            ServiceRegistration(
                name="regnum.election.v1.LifelineService",
                servicer=Lifeline(),
                add_to_server=controller_pb2_grpc.add_LifelineServiceServicer_to_server,
            ),
        ],
        supervisor=supervisor,
        gates=(muting, gate),
        unread_bytes_max=65_535,
    )
    await server.start()
    supervisor.defer("server", lambda: server.stop(0))
    return server


@pytest.fixture
async def channel(server) -> AsyncIterator[grpc.aio.Channel]:
    channel = open_channel(server.address)
    yield channel
    await channel.close()


def ask(channel, number, *, timeout_s=DEADLINE_S):
    stub = controller_pb2_grpc.ControllerServiceStub(channel)
    return stub.ControlledShutdown(controller_pb2.ControlledShutdownRequest(broker_id=number), timeout=timeout_s)


async def connection_of(channel, muting) -> str:
    """What the server calls the connection of this channel."""
    seen: list[str] = []
    enter = muting.enter

    async def look(method, call):
        seen.append(call.peer)
        return await enter(method, call)

    muting.enter = look
    await ask(channel, 0)
    return seen[0]


async def test_a_call_passes_its_gate_and_leaves_it(channel, gate):
    assert (await ask(channel, 7)).remaining_partitions == 7
    assert gate.methods == [SHUTDOWN]
    assert gate.inside == 0


async def test_a_gate_hears_how_large_a_message_is_and_may_throw_it_away(channel, gate, controller):
    await ask(channel, 7)
    assert gate.sizes == [controller_pb2.ControlledShutdownRequest(broker_id=7).ByteSize()]
    gate.bytes_max = 1
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(channel, 8)
    assert from_rpc_error(caught.value).retry_after_ms == 70
    assert controller.seen == [7]
    assert gate.inside == 0


async def test_a_refusal_of_the_handler_arrives_as_itself_and_leaves_the_gate(channel, gate, supervisor):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(channel, -1)
    assert from_rpc_error(caught.value).code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert gate.inside == 0
    assert supervisor.failure is None


async def test_bytes_that_do_not_parse_are_the_callers_fault_behind_gates_too(channel, supervisor):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary(SHUTDOWN)(b"\xff\xff\xff", timeout=DEADLINE_S)
    assert from_rpc_error(caught.value).code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert supervisor.failure is None


async def test_a_call_without_its_message_is_refused(channel, supervisor):
    empty = channel.stream_unary(SHUTDOWN)(timeout=DEADLINE_S)
    await empty.done_writing()
    assert await empty.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert supervisor.failure is None


async def test_health_passes_no_gate(channel, gate):
    gate.open.clear()
    answer = await health_pb2_grpc.HealthStub(channel).Check(
        health_pb2.HealthCheckRequest(service=""), timeout=DEADLINE_S
    )
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert gate.methods == []


async def test_a_stream_that_lasts_holds_up_nobody_of_its_muted_connection(channel, muting, controller, gate):
    muting.mute(await connection_of(channel, muting), 0.2)
    stream = controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline(timeout=DEADLINE_S)
    await stream.write(controller_pb2.BrokerLifelineRequest(beat=1))
    assert (await stream.read()).probe == 2
    assert (await ask(channel, 7)).remaining_partitions == 7
    assert gate.lasting
    stream.cancel()


async def test_each_message_of_a_stream_passes_too(channel, gate):
    stream = controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline(timeout=DEADLINE_S)
    for beat in (1, 5):
        await stream.write(controller_pb2.BrokerLifelineRequest(beat=beat))
        assert (await stream.read()).probe == beat + 1
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    assert gate.reads == 3


async def test_calls_of_a_muted_connection_wait_and_those_of_another_do_not(server, channel, muting, controller):
    connection = await connection_of(channel, muting)
    muting.mute(connection, 3600.0)
    held = [asyncio.ensure_future(ask(channel, number)) for number in (1, 2, 3)]

    async def all_wait() -> bool:
        return muting.held == 3

    await until(all_wait)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(channel, 4)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    error = from_rpc_error(caught.value)
    assert error.code == errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
    assert error.retry_after_ms is not None
    assert 3_500_000 < error.retry_after_ms <= 3_600_000
    another = open_channel(server.address)
    assert (await ask(another, 5)).remaining_partitions == 5
    assert controller.seen == [0, 5]
    for call in held:
        call.cancel()
    await another.close()


async def test_a_held_call_whose_deadline_passes_or_whose_client_goes_is_never_carried_out(channel, muting, controller):
    connection = await connection_of(channel, muting)
    muting.mute(connection, 3600.0)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask(channel, 1, timeout_s=0.2)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    async def waits() -> bool:
        return muting.held == 1

    async def nobody_waits() -> bool:
        return muting.held == 0

    # The first call, of which the server hears later that its deadline has passed, is not taken for the second.
    await until(nobody_waits)
    gone = asyncio.ensure_future(ask(channel, 2))
    await until(waits)
    gone.cancel()
    await until(nobody_waits)
    assert controller.seen == [0]
