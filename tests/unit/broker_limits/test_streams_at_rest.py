"""Streams of requests behind the gate of a broker's client listener: they last, and nobody stands behind them."""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum_broker.limits.intake import READ_OF_CONNECTION
from regnum_broker.limits.limits import ClientLimits
from regnum_broker.servicers.produce_stream import ProduceStream
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.limits.call import Call
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_testing.waiting import DEADLINE_S

MIB = 1024 * 1024
STREAMS = 3 * READ_OF_CONNECTION


class Log(log_pb2_grpc.LogServiceServicer):
    """Appends nothing."""

    def __init__(self, limits: ClientLimits) -> None:
        self.limits = limits

    async def ProduceStream(self, request_iterator, context):  # noqa: N802 - the name in the proto
        stream = ProduceStream(self, held=self.limits.held, call=Call(peer=context.peer()))
        async for answer in stream.answers(request_iterator):
            yield answer

    async def take(self, requests, told, *, call):
        for place in range(len(requests)):
            told(place, log_pb2.ProduceResponse())
        return {}

    async def ListOffsets(self, request, context):  # noqa: N802 - the name in the proto
        return log_pb2.ListOffsetsResponse()


@pytest.fixture
def limits() -> ClientLimits:
    return ClientLimits(held_max=64 * MIB, connection_held_max=16 * MIB, clock=SystemClock())


@pytest.fixture
async def stub(limits) -> AsyncIterator[log_pb2_grpc.LogServiceStub]:
    supervisor = Supervisor("test")
    service = ServiceRegistration(
        name="regnum.broker.v1.LogService",
        servicer=Log(limits),
        add_to_server=log_pb2_grpc.add_LogServiceServicer_to_server,
    )
    server = GrpcServer(Address(host="127.0.0.1", port=0), [service], supervisor=supervisor, gates=limits.gates)
    await server.start()
    supervisor.defer("server", lambda: server.stop(0))
    channel = open_channel(server.address)
    yield log_pb2_grpc.LogServiceStub(channel)
    await channel.close()
    await supervisor.unwind()


async def test_streams_at_rest_hold_up_no_other_call_of_their_connection(stub, limits):
    streams: list[grpc.aio.StreamStreamCall] = []
    async with asyncio.timeout(DEADLINE_S):
        for number in range(STREAMS):
            stream = stub.ProduceStream()
            await stream.write(log_pb2.ProduceStreamRequest(correlation_id=number))
            assert (await stream.read()).correlation_id == number
            streams.append(stream)
        await stub.ListOffsets(log_pb2.ListOffsetsRequest())
        assert limits.intake.calls == 0
        for stream in streams:
            await stream.done_writing()
            assert await stream.read() is grpc.aio.EOF
    assert (limits.intake.calls, limits.held.total) == (0, 0)
