"""Servers and channels over real connections of this machine."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.channel import Channels, open_channel
from regnum_service.errors import PortTakenError, RegnumError
from regnum_service.health import Health
from regnum_service.interceptor import ErrorInterceptor
from regnum_service.listening import make_server
from regnum_service.server import LIVENESS, GrpcServer, ServiceRegistration
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S

BAD = b"\xff\xff\xff"


class Controller(controller_pb2_grpc.ControllerServiceServicer):
    async def ControlledShutdown(self, request, context):  # noqa: N802 - the name in the proto
        match request.broker_id:
            case 1:
                return controller_pb2.ControlledShutdownResponse(remaining_partitions=7)
            case 2:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_NOT_CONTROLLER, "ask 3 at h:1", metadata={"id": "3"}, retry_after_ms=20
                )
            case 3:
                return await context.abort(grpc.StatusCode.ABORTED, "by hand")
            case 5:
                raise asyncio.CancelledError
            case 6:
                raise TimeoutError
            case 7:
                raise grpc.aio.AioRpcError(
                    grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "next one is down"
                )
            case _:
                raise AssertionError("secret detail")


class Lifeline(controller_pb2_grpc.LifelineServiceServicer):
    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def BrokerLifeline(self, request_iterator, context):  # noqa: N802 - the name in the proto
        try:
            async for request in request_iterator:
                if request.beat < 0:
                    raise RegnumError(errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH, "register again")
                if request.beat == 99:
                    raise ZeroDivisionError
                yield controller_pb2.BrokerLifelineResponse(probe=request.beat + 1)
        finally:
            self.ended.set()


class ReadingLifeline(controller_pb2_grpc.LifelineServiceServicer):
    """The other way to write a stream handler."""

    async def BrokerLifeline(self, request_iterator, context):  # noqa: N802 - the name in the proto
        while (request := await context.read()) is not grpc.aio.EOF:
            await context.write(controller_pb2.BrokerLifelineResponse(probe=request.beat + 1))


class BrokenHealth(health_pb2_grpc.HealthServicer):
    async def Check(self, request, context):  # noqa: N802 - the name in the proto
        raise KeyError("secret detail")


@pytest.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    supervisor = Supervisor("test")
    yield supervisor
    await supervisor.unwind()


def registrations(lifeline: controller_pb2_grpc.LifelineServiceServicer) -> list[ServiceRegistration]:
    return [
        ServiceRegistration(
            name="regnum.election.v1.ControllerService",
            servicer=Controller(),
            add_to_server=controller_pb2_grpc.add_ControllerServiceServicer_to_server,
        ),
        ServiceRegistration(
            name="regnum.election.v1.LifelineService",
            servicer=lifeline,
            add_to_server=controller_pb2_grpc.add_LifelineServiceServicer_to_server,
        ),
    ]


async def serve(supervisor, lifeline=None) -> GrpcServer:
    address = Address(host="127.0.0.1", port=unused_port())
    server = GrpcServer(address, registrations(lifeline or Lifeline()), supervisor=supervisor)
    await server.start()
    supervisor.defer("server", lambda: server.stop(0))
    return server


@pytest.fixture
async def server(supervisor) -> GrpcServer:
    return await serve(supervisor)


@pytest.fixture
async def channel(server) -> AsyncIterator[grpc.aio.Channel]:
    channel = open_channel(server.address)
    yield channel
    await channel.close()


def shutdown(channel, broker_id):
    stub = controller_pb2_grpc.ControllerServiceStub(channel)
    return stub.ControlledShutdown(controller_pb2.ControlledShutdownRequest(broker_id=broker_id), timeout=DEADLINE_S)


async def test_an_answer_passes(channel):
    assert (await shutdown(channel, 1)).remaining_partitions == 7


async def test_a_regnum_error_arrives_as_itself(channel, supervisor):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shutdown(channel, 2)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    error = from_rpc_error(caught.value)
    assert error.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    assert error.message == "ask 3 at h:1"
    assert error.metadata == {"id": "3"}
    assert error.retry_after_ms == 20
    assert supervisor.failure is None


async def test_an_abort_by_hand_passes(channel, supervisor):
    with pytest.raises(grpc.aio.AioRpcError, match="by hand") as caught:
        await shutdown(channel, 3)
    assert caught.value.code() is grpc.StatusCode.ABORTED
    assert supervisor.failure is None


async def test_a_failed_assertion_stops_the_service_and_hides_its_text(channel, supervisor):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shutdown(channel, 4)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(caught.value)
    assert from_rpc_error(caught.value).code == errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR
    assert isinstance(supervisor.failure, AssertionError)
    assert supervisor.stopping


@pytest.mark.parametrize(
    ("broker_id", "code"),
    [
        (5, errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE),
        (6, errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT),
        (7, errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE),
    ],
)
async def test_failures_of_others_are_passed_on_and_stop_nothing(channel, supervisor, broker_id, code):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shutdown(channel, broker_id)
    error = from_rpc_error(caught.value)
    assert error.code == code
    assert caught.value.code() is error.traits.status
    assert supervisor.failure is None


async def test_a_stop_in_the_middle_of_a_stream_is_no_failure(supervisor, server, channel):
    streams = [controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline(timeout=DEADLINE_S) for _ in range(20)]
    for stream in streams:
        await stream.write(controller_pb2.BrokerLifelineRequest(beat=1))
        await stream.read()
    await server.stop(0)
    assert {await stream.code() for stream in streams} <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}
    assert supervisor.failure is None


async def test_bytes_that_do_not_parse_are_the_callers_fault(channel, supervisor):
    call = channel.unary_unary("/regnum.election.v1.ControllerService/ControlledShutdown")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(BAD, timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert from_rpc_error(caught.value).code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert supervisor.failure is None


@pytest.mark.parametrize("lifeline", [Lifeline, ReadingLifeline])
async def test_both_ways_to_write_a_stream_handler(supervisor, lifeline):
    server = await serve(supervisor, lifeline())
    channel = open_channel(server.address)
    stream = controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline(timeout=DEADLINE_S)
    for beat in (1, 5):
        await stream.write(controller_pb2.BrokerLifelineRequest(beat=beat))
        assert (await stream.read()).probe == beat + 1
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF
    assert await stream.code() is grpc.StatusCode.OK

    raw = channel.stream_stream("/regnum.election.v1.LifelineService/BrokerLifeline")(timeout=DEADLINE_S)
    await raw.write(BAD)
    assert await raw.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert supervisor.failure is None
    await channel.close()


async def test_errors_inside_a_stream(channel, supervisor):
    stub = controller_pb2_grpc.LifelineServiceStub(channel)
    stream = stub.BrokerLifeline(timeout=DEADLINE_S)
    await stream.write(controller_pb2.BrokerLifelineRequest(beat=-1))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert from_rpc_error(caught.value).code == errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH
    assert supervisor.failure is None

    stream = stub.BrokerLifeline(timeout=DEADLINE_S)
    await stream.write(controller_pb2.BrokerLifelineRequest(beat=99))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stream.read()
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert isinstance(supervisor.failure, ZeroDivisionError)


async def test_a_client_that_hangs_up_ends_the_handler_and_not_the_service(supervisor):
    lifeline = Lifeline()
    server = await serve(supervisor, lifeline)
    channel = open_channel(server.address)
    stream = controller_pb2_grpc.LifelineServiceStub(channel).BrokerLifeline(timeout=DEADLINE_S)
    await stream.write(controller_pb2.BrokerLifelineRequest(beat=1))
    await stream.read()
    stream.cancel()
    await asyncio.wait_for(lifeline.ended.wait(), DEADLINE_S)
    await channel.close()
    assert supervisor.failure is None


async def test_an_unknown_method_is_unimplemented(channel):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await channel.unary_unary("/regnum.election.v1.ControllerService/Nope")(b"", timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    error = from_rpc_error(caught.value)
    assert error.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert "address" in error.message


async def test_health_follows_set_serving(server, channel):
    stub = health_pb2_grpc.HealthStub(channel)

    async def status(service: str) -> int:
        return (await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE_S)).status

    for service in ("", "regnum.election.v1.LifelineService"):
        assert await status(service) == health_pb2.HealthCheckResponse.NOT_SERVING
    assert await status(LIVENESS) == health_pb2.HealthCheckResponse.SERVING
    await server.set_serving(serving=True)
    for service in ("", "regnum.election.v1.LifelineService"):
        assert await status(service) == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await status("regnum.nope")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_health_watch_hears_of_the_stop(supervisor, server, channel):
    await server.set_serving(serving=True)
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    stopping = asyncio.create_task(server.stop(0.05))
    assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
    await stopping
    assert supervisor.failure is None


async def test_a_watcher_that_does_not_read_holds_nobody_up():
    health = Health()
    health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    slow, prompt = (health.Watch(health_pb2.HealthCheckRequest(), None) for _ in range(2))
    assert (await anext(slow)).status == (await anext(prompt)).status == health_pb2.HealthCheckResponse.NOT_SERVING
    # The slow one is in the middle of its write from here on.
    for _ in range(3):
        health.set("", health_pb2.HealthCheckResponse.SERVING)
        assert (await anext(prompt)).status == health_pb2.HealthCheckResponse.SERVING
        health.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        assert (await anext(prompt)).status == health_pb2.HealthCheckResponse.NOT_SERVING
    health.set("", health_pb2.HealthCheckResponse.SERVING)
    assert (await anext(slow)).status == health_pb2.HealthCheckResponse.SERVING
    await slow.aclose()
    await prompt.aclose()


async def test_health_lists_every_service(server, channel):
    await server.set_serving(serving=True)
    answer = await health_pb2_grpc.HealthStub(channel).List(health_pb2.HealthListRequest(), timeout=DEADLINE_S)
    assert {name: item.status for name, item in answer.statuses.items()} == dict.fromkeys(
        ("", LIVENESS, "regnum.election.v1.ControllerService", "regnum.election.v1.LifelineService"),
        health_pb2.HealthCheckResponse.SERVING,
    )


async def test_a_call_left_to_the_base_class_is_unimplemented_and_stops_nothing(channel, supervisor):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await controller_pb2_grpc.ControllerServiceStub(channel).AllocateProducerIds(
            controller_pb2.AllocateProducerIdsRequest(), timeout=DEADLINE_S
        )
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert supervisor.failure is None


async def test_what_a_library_fails_with_stops_nothing():
    failed = []
    interceptor = ErrorInterceptor(lambda _, error: failed.append(error))
    server = make_server(interceptors=(interceptor,))
    controller_pb2_grpc.add_ControllerServiceServicer_to_server(Controller(), server)
    health_pb2_grpc.add_HealthServicer_to_server(BrokenHealth(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = open_channel(Address(host="127.0.0.1", port=port))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "secret" not in str(caught.value)
    assert failed == []
    with pytest.raises(grpc.aio.AioRpcError):
        await shutdown(channel, 4)
    assert [type(error) for error in failed] == [AssertionError]
    await channel.close()
    await server.stop(0)


async def test_reflection_lists_what_is_served(channel):
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    stream = stub.ServerReflectionInfo(timeout=DEADLINE_S)
    await stream.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    names = {service.name for service in (await stream.read()).list_services_response.service}
    assert {"regnum.election.v1.ControllerService", "grpc.health.v1.Health"} <= names
    await stream.done_writing()


async def test_a_taken_port_is_refused_with_advice(server, supervisor):
    with pytest.raises(PortTakenError, match=f"{server.address}.*choose another"):
        await GrpcServer(server.address, [], supervisor=supervisor).start()


async def test_a_port_can_be_taken_again_after_a_stop(server, supervisor):
    await server.stop(0)
    again = GrpcServer(server.address, registrations(Lifeline()), supervisor=supervisor)
    await again.start()
    channel = open_channel(server.address)
    assert (await shutdown(channel, 1)).remaining_partitions == 7
    await channel.close()
    await again.stop(0)


async def test_nobody_there_is_broker_not_available(server):
    await server.stop(0)
    channel = open_channel(server.address)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await shutdown(channel, 1)
    error = from_rpc_error(caught.value)
    assert error.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    assert not error.traits.outcome_known
    await channel.close()


async def test_channels_are_shared_until_dropped(server):
    channels = Channels()
    first = channels.get(server.address)
    assert channels.get(Address(host=server.address.host, port=server.address.port)) is first
    assert (await shutdown(first, 1)).remaining_partitions == 7
    await channels.drop(server.address)
    await channels.drop(server.address)
    second = channels.get(server.address)
    assert second is not first
    assert (await shutdown(second, 1)).remaining_partitions == 7
    await channels.close()


async def test_channels_that_were_closed_stay_closed(server):
    """What comes late would open one that nobody closes."""
    channels = Channels()
    channels.get(server.address)
    await channels.close()
    with pytest.raises(RegnumError):
        channels.get(server.address)


async def test_a_dropped_channel_takes_its_back_off_with_it(server, supervisor):
    """A channel that met a refused port waits before it tries again; a new one need not."""
    await server.stop(0)
    channels = Channels()
    for _ in range(3):
        with pytest.raises(grpc.aio.AioRpcError):
            await shutdown(channels.get(server.address), 1)
    again = GrpcServer(server.address, registrations(Lifeline()), supervisor=supervisor)
    await again.start()
    await channels.drop(server.address)
    assert (await shutdown(channels.get(server.address), 1)).remaining_partitions == 7
    await channels.close()
    await again.stop(0)
