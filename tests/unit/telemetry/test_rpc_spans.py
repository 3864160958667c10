"""Spans of calls, between a real server and a real channel."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace import ReadableSpan
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.errors import RegnumError
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_telemetry import conventions, propagation, tracing
from regnum_telemetry.rpc_server import TracingInterceptor
from regnum_telemetry.setup import start_with
from regnum_telemetry.tracing import Kind
from regnum_testing.span_recorder import SpanRecorder, recorded_spans
from regnum_testing.waiting import DEADLINE_S, until, within

NAME = "test.v1.EchoService"


class _Echo:
    """Notes the place in which it is called."""

    def __init__(self) -> None:
        self.places: list[str] = []
        self.waits = asyncio.Event()

    async def one(self, request: RequestHeader, context: Any) -> RequestHeader:
        self.places.append(tracing.current())
        with tracing.span("work"):
            pass
        if request.client_id == "wait":
            self.waits.set()
            await asyncio.Event().wait()
        if request.client_id == "refuse":
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "no")
        if request.client_id == "past":
            raise RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "ask another one")
        if request.client_id == "denied":
            # As the authorizer does; the answer is OK and says so of its items.
            tracing.refuse()
        return request

    async def many(self, request: RequestHeader, context: Any) -> AsyncIterator[RequestHeader]:
        self.places.append(tracing.current())
        for _ in range(3):
            yield request

    async def sum(self, requests: AsyncIterator[RequestHeader], context: Any) -> RequestHeader:
        self.places.append(tracing.current())
        count = 0
        async for _ in requests:
            count += 1
        return RequestHeader(api_version=count)

    def add_to(self, _servicer: object, server: Any) -> None:
        read, write = RequestHeader.FromString, RequestHeader.SerializeToString
        handlers = {
            "One": grpc.unary_unary_rpc_method_handler(self.one, read, write),
            "Many": grpc.unary_stream_rpc_method_handler(self.many, read, write),
            "Sum": grpc.stream_unary_rpc_method_handler(self.sum, read, write),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))


@pytest.fixture
def recorder() -> Any:
    with recorded_spans() as recorder:
        yield recorder


@pytest_asyncio.fixture
async def served() -> AsyncIterator[tuple[_Echo, grpc.aio.Channel, Address]]:
    echo, supervisor = _Echo(), Supervisor("test")
    registration = ServiceRegistration(name=NAME, servicer=echo, add_to_server=echo.add_to)
    server = GrpcServer(Address(host="127.0.0.1", port=0), [registration], supervisor=supervisor)
    await server.start()
    channel = open_channel(server.address)
    yield echo, channel, server.address
    await channel.close()
    await server.stop()
    assert supervisor.failure is None


def _unary(channel: grpc.aio.Channel, method: str) -> Any:
    return channel.unary_unary(
        f"/{NAME}/{method}",
        request_serializer=RequestHeader.SerializeToString,
        response_deserializer=RequestHeader.FromString,
    )


async def _ended(recorder: SpanRecorder, count: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while sum(span.end_unix_nano is not None for span in recorder.spans) < count:
            await asyncio.sleep(0)


async def test_both_sides_of_a_call_lie_below_its_cause(
    recorder: SpanRecorder, served: tuple[_Echo, grpc.aio.Channel, Address]
) -> None:
    echo, channel, address = served
    cause = recorder.start("cause")
    with tracing.within(cause.context):
        await _unary(channel, "One")(RequestHeader(), timeout=DEADLINE_S)
    await _ended(recorder, 2)
    client, server = recorder.named(f"{NAME}/One")
    assert (client.kind, server.kind) == (Kind.CLIENT, Kind.SERVER)
    assert client.trace_id == server.trace_id == cause.trace_id
    assert (client.parent, server.parent) == (cause.span_id, client.span_id)
    # What the servicer hands on is below its own span.
    assert echo.places == [server.context]
    for span in (client, server):
        assert span.attributes[conventions.RPC_SYSTEM] == "grpc"
        assert span.attributes[conventions.RPC_METHOD] == f"{NAME}/One"
        assert span.attributes[conventions.RPC_STATUS] == "OK"
    assert client.attributes[conventions.SERVER_PORT] == address.port


async def test_a_call_outside_of_any_trace_has_no_span(
    recorder: SpanRecorder, served: tuple[_Echo, grpc.aio.Channel, Address]
) -> None:
    echo, channel, _ = served
    await _unary(channel, "One")(RequestHeader(), timeout=DEADLINE_S)
    assert recorder.spans == []
    assert echo.places == [""]


async def test_a_refused_call_leaves_a_span_with_its_caller_and_none_here(
    recorder: SpanRecorder, served: tuple[_Echo, grpc.aio.Channel, Address]
) -> None:
    _, channel, _ = served
    with tracing.within(recorder.start("cause").context), pytest.raises(grpc.aio.AioRpcError):
        await _unary(channel, "One")(RequestHeader(client_id="refuse"), timeout=DEADLINE_S)
    client, server = recorder.named(f"{NAME}/One")
    assert (client.attributes[conventions.RPC_STATUS], client.error) == ("INVALID_ARGUMENT", "INVALID_ARGUMENT")
    assert server.end_unix_nano is None, "what does not end is not exported"


async def test_clients_hear_of_more_refusals_than_processes_that_are_told_their_epoch_is_past(
    recorder: SpanRecorder, served: tuple[_Echo, grpc.aio.Channel, Address]
) -> None:
    _, channel, _ = served
    place = (("traceparent", recorder.start("cause").context),)
    for_clients = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [ServiceRegistration(name=NAME, servicer=None, add_to_server=_Echo().add_to)],
        supervisor=Supervisor("test"),
        listener="client",
    )
    await for_clients.start()
    async with open_channel(for_clients.address) as other:
        for one in (channel, other):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await one.unary_unary(f"/{NAME}/One")(
                    RequestHeader(client_id="past").SerializeToString(), timeout=DEADLINE_S, metadata=place
                )
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    await for_clients.stop(0)
    ended = [span for span in recorder.named(f"{NAME}/One") if span.kind is Kind.SERVER and span.end_unix_nano]
    assert [span.attributes[conventions.RPC_STATUS] for span in ended] == ["FAILED_PRECONDITION"]


async def test_a_call_that_a_client_gives_up_leaves_no_span(
    recorder: SpanRecorder, served: tuple[_Echo, grpc.aio.Channel, Address]
) -> None:
    """Whoever connects may give up as many as they like; between processes it belongs to the story."""
    among_processes, channel, _ = served
    place = (("traceparent", recorder.start("cause").context),)
    of_clients = _Echo()
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [ServiceRegistration(name=NAME, servicer=None, add_to_server=of_clients.add_to)],
        supervisor=Supervisor("test"),
        listener="client",
    )
    await server.start()
    async with open_channel(server.address) as other:
        for one, echo in ((channel, among_processes), (other, of_clients)):
            call = one.unary_unary(f"/{NAME}/One")(
                RequestHeader(client_id="wait").SerializeToString(), timeout=DEADLINE_S, metadata=place
            )
            await within(echo.waits.wait())
            call.cancel()
    await server.stop(0)

    def ended() -> list[object]:
        return [span for span in recorder.named(f"{NAME}/One") if span.kind is Kind.SERVER and span.end_unix_nano]

    await until(lambda: len(ended()) == 1)
    assert len(ended()) == 1


async def test_health_and_reflection_have_no_spans(
    recorder: SpanRecorder, served: tuple[_Echo, grpc.aio.Channel, Address]
) -> None:
    _, channel, _ = served
    place = (("traceparent", recorder.start("cause").context),)
    await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S, metadata=place)
    assert [span.kind for span in recorder.spans if span.kind is Kind.SERVER] == []


class Kept:
    """A sink that keeps names."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> bool:
        self.names += [span.name for span in spans]
        return True

    def close(self) -> None:
        pass


@pytest.mark.parametrize(("asked", "written"), [("denied", []), ("refuse", []), ("go on", ["work", f"{NAME}/One"])])
async def test_nothing_that_was_done_for_a_refused_call_is_exported(
    served: tuple[_Echo, grpc.aio.Channel, Address], asked: str, written: list[str]
) -> None:
    _, channel, _ = served
    before, kept = tracing.tracer(), Kept()
    telemetry = start_with("test", "1", kept, environ={})
    try:
        for _ in range(3):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await channel.unary_unary(f"/{NAME}/One")(
                    RequestHeader(client_id=asked).SerializeToString(),
                    timeout=DEADLINE_S,
                    metadata=(("traceparent", f"00-{'ab' * 16}-{'cd' * 8}-01"),),
                )
    finally:
        telemetry.close()
        tracing.use(before)
    assert kept.names == 3 * written


def test_spans_of_a_served_call_wait_for_its_outcome_and_not_for_ever() -> None:
    ended: list[int] = []
    call = tracing.ServedCall()
    for number in range(tracing.HELD_MAX - 1):
        assert call.hold(partial(ended.append, number))
    assert ended == []
    assert call.hold(partial(ended.append, tracing.HELD_MAX - 1))
    assert ended == [*range(tracing.HELD_MAX)]
    call.refused = True
    assert not call.hold(partial(ended.append, -1)), "of a stream that goes on the rest is not lost for one refusal"
    refused = tracing.ServedCall()
    refused.refused = True
    assert refused.hold(partial(ended.append, -2))
    refused.settle()
    assert refused.hold(partial(ended.append, -3)), "what ends after its call is dropped with it"
    assert len(ended) == tracing.HELD_MAX


async def test_a_call_that_reaches_nobody_ends_its_span(
    recorder: SpanRecorder, served: tuple[_Echo, grpc.aio.Channel, Address]
) -> None:
    _, channel, _ = served
    with tracing.within(recorder.start("cause").context), pytest.raises(grpc.aio.AioRpcError):
        await _unary(channel, "Unknown")(RequestHeader(), timeout=DEADLINE_S)
    await _ended(recorder, 1)
    assert recorder.one(f"{NAME}/Unknown").error == "UNIMPLEMENTED"


async def test_streams_have_one_span_for_each_side(
    recorder: SpanRecorder, served: tuple[_Echo, grpc.aio.Channel, Address]
) -> None:
    echo, channel, _ = served
    cause = recorder.start("cause")
    serializers = {
        "request_serializer": RequestHeader.SerializeToString,
        "response_deserializer": RequestHeader.FromString,
    }
    with tracing.within(cause.context):
        answers = [answer async for answer in channel.unary_stream(f"/{NAME}/Many", **serializers)(RequestHeader())]

        async def requests() -> AsyncIterator[RequestHeader]:
            for _ in range(4):
                yield RequestHeader()

        total = await channel.stream_unary(f"/{NAME}/Sum", **serializers)(requests(), timeout=DEADLINE_S)
    assert (len(answers), total.api_version) == (3, 4)
    await _ended(recorder, 4)
    for method in ("Many", "Sum"):
        client, server = recorder.named(f"{NAME}/{method}")
        assert server.parent == client.span_id
        assert client.parent == cause.span_id
    assert all(propagation.parse(place) is not None for place in echo.places)


async def test_a_method_with_two_handlers_has_two_with_spans_however_often_they_alternate(
    recorder: SpanRecorder,
) -> None:
    # What refuses calls for another process is a handler of the same method.
    handlers = [grpc.unary_unary_rpc_method_handler(_Echo().one) for _ in range(2)]
    interceptor, passed = TracingInterceptor(), []
    place = ((propagation.TRACEPARENT, recorder.start("cause").context),)

    async def found(_details: Any) -> Any:
        return handlers[len(passed) % 2]

    for _ in range(6):
        details = SimpleNamespace(method=f"/{NAME}/One", invocation_metadata=place)
        passed.append(await interceptor.intercept_service(found, details))
    assert passed[0] is not passed[1]
    assert passed == passed[:2] * 3


async def test_a_supervised_task_belongs_to_no_call(recorder: SpanRecorder) -> None:
    supervisor = Supervisor("test")
    places: list[str] = []

    async def look() -> None:
        places.append(tracing.current())

    with tracing.within(recorder.start("cause").context):
        await supervisor.start("task", look())
    await supervisor.unwind()
    assert places == [""]
