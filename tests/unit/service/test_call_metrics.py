"""Calls that a real server serves, and its connections, as metrics."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.collection_pauses import CollectionPauses
from regnum_service.connections import open_at
from regnum_service.errors import RegnumError
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_telemetry import metrics as telemetry
from regnum_telemetry import tracing
from regnum_telemetry.instruments import Instrument
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Labels, Metrics
from regnum_testing.span_recorder import recorded_spans
from regnum_testing.under_load import until

NAME = "test.v1.EchoService"


class Echo:
    """Answers, refuses, streams, waits."""

    async def one(self, request: RequestHeader, context: Any) -> RequestHeader:
        if request.client_id == "refuse":
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "no")
        if request.client_id == "wait":
            await asyncio.Event().wait()
        return request

    async def many(self, requests: AsyncIterator[RequestHeader], context: Any) -> AsyncIterator[RequestHeader]:
        async for request in requests:
            yield request

    def add_to(self, _servicer: object, server: Any) -> None:
        read, write = RequestHeader.FromString, RequestHeader.SerializeToString
        handlers = {
            "One": grpc.unary_unary_rpc_method_handler(self.one, read, write),
            "Many": grpc.stream_stream_rpc_method_handler(self.many, read, write),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, handlers),))


class Served:
    """A server with metrics, and a channel to it."""

    def __init__(self, server: GrpcServer, channel: grpc.aio.Channel, metrics: Metrics) -> None:
        self.server, self.channel, self.metrics = server, channel, metrics

    def numbers(self, instrument: Instrument) -> dict[Labels, float]:
        (reading,) = [one for one in self.metrics.read() if one.instrument is instrument]
        return dict(reading.numbers)

    def ended(self) -> dict[Labels, int]:
        found = [one for one in self.metrics.read() if one.instrument is instruments.CALLS_SERVED]
        return {labels: sum(one.counts) for reading in found for labels, one in reading.histograms}

    async def call(self, client_id: str, *, timeout_s: float = 10.0, method: str = "One") -> None:
        stub: Any = self.channel.unary_unary(
            f"/{NAME}/{method}",
            request_serializer=RequestHeader.SerializeToString,
            response_deserializer=RequestHeader.FromString,
        )
        await stub(RequestHeader(client_id=client_id), timeout=timeout_s)


@pytest_asyncio.fixture
async def served() -> AsyncIterator[Served]:
    echo, metrics = Echo(), Metrics()
    registration = ServiceRegistration(name=NAME, servicer=echo, add_to_server=echo.add_to)
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [registration],
        supervisor=Supervisor("test"),
        listener="client",
        metrics=metrics,
    )
    await server.start()
    channel = open_channel(server.address)
    yield Served(server, channel, metrics)
    await channel.close()
    await server.stop()


async def test_calls_are_counted_by_method_and_by_how_they_ended(served: Served) -> None:
    await served.call("a")
    await served.call("b")
    with pytest.raises(grpc.aio.AioRpcError):
        await served.call("refuse")

    async def all_ended() -> bool:
        return served.ended() == {(f"{NAME}/One", "OK"): 2, (f"{NAME}/One", "INVALID_ARGUMENT"): 1}

    await until(all_ended)


async def test_a_call_that_succeeds_is_counted_by_its_method_however_many_calls_have_failed(served: Served) -> None:
    for number in range(telemetry.SERIES_MAX):
        served.metrics.histogram(instruments.CALLS_SERVED, f"{NAME}/{number}", "UNAUTHENTICATED").record(0.001)
    await served.call("a")

    async def counted() -> bool:
        return served.ended().get((f"{NAME}/One", "OK")) == 1

    await until(counted)
    assert (telemetry.OTHER, telemetry.OTHER) not in served.ended()


async def test_a_call_that_its_caller_gives_up_is_under_way_no_more_and_counts_as_cancelled(served: Served) -> None:
    waiting = asyncio.create_task(served.call("wait"))

    async def one_under_way() -> bool:
        return served.numbers(instruments.CALLS_UNDER_WAY)["client", "unary"] == 1

    await until(one_under_way)
    waiting.cancel()

    async def none_under_way() -> bool:
        return served.numbers(instruments.CALLS_UNDER_WAY)["client", "unary"] == 0

    await until(none_under_way)
    assert served.ended() == {(f"{NAME}/One", "CANCELLED"): 1}


async def test_a_stream_is_under_way_until_it_ends_and_passes_everything(served: Served) -> None:
    stub: Any = served.channel.stream_stream(
        f"/{NAME}/Many",
        request_serializer=RequestHeader.SerializeToString,
        response_deserializer=RequestHeader.FromString,
    )
    stream = stub()
    await stream.write(RequestHeader(client_id="x"))
    assert (await stream.read()).client_id == "x"
    assert served.numbers(instruments.CALLS_UNDER_WAY) == {("client", "unary"): 0, ("client", "stream"): 1}
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF

    async def ended() -> bool:
        return served.ended() == {(f"{NAME}/Many", "OK"): 1}

    await until(ended)
    assert served.numbers(instruments.CALLS_UNDER_WAY)["client", "stream"] == 0


async def test_names_of_methods_that_nobody_serves_make_no_series(served: Served) -> None:
    for number in range(50):
        with pytest.raises(grpc.aio.AioRpcError):
            await served.call("a", method=f"Nothing{number}")
    assert served.ended() == {}


async def test_calls_with_and_without_a_span_are_one_method(served: Served) -> None:
    with recorded_spans() as recorder:
        for _ in range(3):
            await served.call("a")
            with tracing.within(recorder.start("cause").context):
                await served.call("a")

    async def all_ended() -> bool:
        return sum(served.ended().values()) == 6

    await until(all_ended)
    assert served.ended() == {(f"{NAME}/One", "OK"): 6}


async def test_connections_at_a_listener_are_those_that_are_open(served: Served) -> None:
    def open_now() -> float:
        return served.numbers(instruments.CONNECTIONS)[("client",)]

    assert open_now() == 0
    others = [await asyncio.open_connection("127.0.0.1", served.server.address.port) for _ in range(3)]
    await served.call("a")
    assert open_now() == 4
    for _, writer in others:
        writer.close()
        await writer.wait_closed()

    async def one_left() -> bool:
        return open_now() == 1

    await until(one_left)


def test_a_table_of_ten_thousand_connections_is_counted_by_port_and_state(tmp_path: Path) -> None:
    table = tmp_path / "tcp"
    lines = ["  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"]
    for number in range(10_000):
        port, state = (0x2384, 1) if number % 2 else (0x1F90, 1) if number % 4 else (0x2384, 6)
        # The other side's port is the same as ours on some lines: only our side counts.
        lines.append(f"{number:4d}: 0100007F:{port:04X} 0100007F:2384 {state:02X} 00000000:00000000 00:00000000 0 0 0")
    table.write_text("\n".join(lines) + "\n", encoding="ascii")
    assert open_at(0x2384, (table, tmp_path / "missing")) == 5_000
    assert open_at(0x1F90, (table,)) == 2_500
    assert open_at(1, (tmp_path / "missing",)) is None


def test_a_collection_is_timed_by_its_generation() -> None:
    metrics = Metrics()
    moments = iter((10.0, 10.25))
    pauses = CollectionPauses(metrics, now_s=lambda: next(moments))
    pauses("start", {"generation": 2})
    pauses("stop", {"generation": 2})
    (reading,) = metrics.read()
    assert {labels: one.total for labels, one in reading.histograms} == {("0",): 0.0, ("1",): 0.0, ("2",): 0.25}


def test_the_interpreter_tells_of_its_collections_until_the_end() -> None:
    metrics = Metrics()
    pauses = CollectionPauses(metrics)

    def full() -> int:
        (reading,) = metrics.read()
        return sum(dict(reading.histograms)[("2",)].counts)

    pauses.start()
    try:
        gc.collect()
        assert full() >= 1
    finally:
        pauses.stop()
    before = full()
    gc.collect()
    assert full() == before
