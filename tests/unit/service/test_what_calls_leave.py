"""What a call leaves in memory once it has ended: nothing that the collector of cycles would have to find.

Full collections are rare, and freeze what they found alive when they were long (safety rule S22): a message in a cycle
stays for long then, or for ever. So the collector is off here.
"""

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import grpc
import pytest
from regnum.broker.v1 import log_pb2, log_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.errors import RegnumError
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.supervisor import Supervisor
from regnum_testing.under_load import until
from regnum_testing.waiting import within

KIB = 1024
MESSAGE = 256 * KIB
CALLS = 20


class Mark:
    """A local of a handler: alive for as long as its frame is."""


class Log(log_pb2_grpc.LogServiceServicer):
    """Answers, refuses, or waits."""

    def __init__(self) -> None:
        self.how = "answered"
        self.marks: weakref.WeakSet[Mark] = weakref.WeakSet()
        self.asked = 0

    async def Produce(self, request, context):  # noqa: N802 - the name in the proto
        mark = Mark()
        self.marks.add(mark)
        self.asked += 1
        if self.how == "refused":
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "no")
        if self.how == "given up":
            await asyncio.Event().wait()
        return log_pb2.ProduceResponse()

    async def ProduceStream(self, request_iterator, context):  # noqa: N802 - the name in the proto
        async for request in request_iterator:
            number = request.correlation_id
            del request
            yield log_pb2.ProduceStreamResponse(correlation_id=number)


class Weigher:
    """A gate that throws away what is larger than it allows."""

    def __init__(self) -> None:
        self.bytes_max = 2 * MESSAGE
        self.inside = 0

    async def enter(self, method, context) -> "Weigher":
        self.inside += 1
        return self

    def took(self, size_bytes: int) -> None:
        if size_bytes > self.bytes_max:
            raise RegnumError(errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED, "too much", retry_after_ms=70)

    def lasts(self) -> None:
        """Nothing."""

    def leave(self) -> None:
        self.inside -= 1

    async def read(self, method, context) -> None:
        """At once."""


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def gate() -> Weigher:
    return Weigher()


@pytest.fixture(params=["gates", "no gates"])
async def server(request, log, gate) -> AsyncIterator[GrpcServer]:
    supervisor = Supervisor("test")
    service = ServiceRegistration(
        name="regnum.broker.v1.LogService",
        servicer=log,
        add_to_server=log_pb2_grpc.add_LogServiceServicer_to_server,
    )
    server = GrpcServer(
        Address(host="127.0.0.1", port=0),
        [service],
        supervisor=supervisor,
        gates=(gate,) if request.param == "gates" else (),
        unread_bytes_max=64 * KIB,
    )
    await server.start()
    supervisor.defer("server", lambda: server.stop(0))
    yield server
    await supervisor.unwind()


@pytest.fixture
async def stub(server) -> AsyncIterator[log_pb2_grpc.LogServiceStub]:
    channel = open_channel(server.address)
    yield log_pb2_grpc.LogServiceStub(channel)
    await channel.close()


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    tracemalloc.start()
    yield
    tracemalloc.stop()
    gc.enable()


def request() -> log_pb2.ProduceRequest:
    made = log_pb2.ProduceRequest()
    made.partitions.add(topic="t", partition=0, record_batch=bytes(MESSAGE))
    return made


async def ask(stub, log, times: int) -> list[str]:
    """So many calls, one after another; how they ended."""
    ended = []
    for number in range(log.asked + 1, log.asked + times + 1):
        call = stub.Produce(request())
        if log.how == "given up":

            async def asked(number=number) -> bool:
                return log.asked == number

            await until(asked)
            call.cancel()
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            await within(call)
        ended.append((await call.code()).name)
    return ended


async def less_than(size: int, before: int) -> None:
    """Wait until less than that is left above before: the last call's task may still have to end."""

    async def free() -> bool:
        return tracemalloc.get_traced_memory()[0] - before < size

    await until(free)


@pytest.mark.parametrize(
    ("how", "status"), [("answered", "OK"), ("refused", "INVALID_ARGUMENT"), ("given up", "CANCELLED")]
)
@pytest.mark.usefixtures("no_collector")
async def test_a_call_that_has_ended_leaves_neither_its_message_nor_its_frames(stub, log, how, status) -> None:
    log.how = how
    await ask(stub, log, 2)
    before = tracemalloc.get_traced_memory()[0]
    assert await ask(stub, log, CALLS) == [status] * CALLS
    await less_than(MESSAGE, before)

    async def no_frames() -> bool:
        return not log.marks

    await until(no_frames)
    assert log.asked == CALLS + 2


@pytest.mark.parametrize("server", ["gates"], indirect=True)
@pytest.mark.usefixtures("no_collector")
async def test_a_message_that_is_thrown_away_is_free_at_once(stub, log, gate) -> None:
    gate.bytes_max = KIB
    await ask(stub, log, 2)
    before = tracemalloc.get_traced_memory()[0]
    assert await ask(stub, log, CALLS) == ["RESOURCE_EXHAUSTED"] * CALLS
    await less_than(MESSAGE, before)
    assert log.asked == gate.inside == 0


@pytest.mark.usefixtures("no_collector")
async def test_streams_at_rest_hold_none_of_their_messages(stub, server) -> None:
    streams = [stub.ProduceStream() for _ in range(CALLS)]

    async def send(number: int) -> None:
        for stream in streams:
            await stream.write(log_pb2.ProduceStreamRequest(correlation_id=number, request=request()))
            assert (await within(stream.read())).correlation_id == number

    small = tracemalloc.get_traced_memory()[0]
    await send(1)
    await less_than(CALLS * MESSAGE // 4, small)
    for stream in streams:
        stream.cancel()
