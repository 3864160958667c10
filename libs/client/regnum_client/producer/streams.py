"""Produce requests over one stream for each broker, which cost both sides less than calls do.

A broker that has no such stream, or no room for another one, and a request that is large, get a call. Every request has
its own time and its own outcome, as with calls; when the stream breaks, none of those that wait knows whether it was
carried out. What stands in line goes in one message, to a broker that takes several requests in one: a message costs
both sides as much as many requests in it.
"""

import asyncio
import contextvars
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import grpc
from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.nodes import Address
from regnum_service.cancellation import end_task
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error, from_status

from regnum_client.cluster.connections import Connections, call
from regnum_client.tasks import Tasks

if TYPE_CHECKING:
    from regnum.broker.v1.log_pb2_grpc import LogServiceAsyncStub

STREAMED_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger request goes as a call: one that is above the limit of messages would end the stream of the others."""
TOGETHER_MAX: Final = 64
"""Requests in one message, at most."""
TOGETHER_BYTES_MAX: Final = 1024 * 1024
"""About their bytes: to encode a message holds the loop, and to parse it the broker's."""
CALLED_FOR_S: Final = 60.0
"""A broker that has no stream is not asked for one again for so long: it may be replaced by a later release."""

REFUSED_FOR_S: Final = 10.0
"""Nor is one that has as many streams as it may have: others may have closed theirs by then."""

StreamCall = Any
"""grpc.aio.StreamStreamCall, whose stubs are generic and whose class is not."""


class _NoStreamError(Exception):
    """The broker does not serve it; nothing was carried out."""


class ProduceStreams:
    """Of one producer. Belongs to the event loop."""

    def __init__(self, connections: Connections, *, clock: Clock, tasks: Tasks) -> None:
        """Only assigns."""
        self._tasks: Final = tasks
        self._connections: Final = connections
        self._clock: Final = clock
        self._streams: Final[dict[Address, _Stream]] = {}
        self._called_until_s: Final[dict[Address, float]] = {}

    async def produce(
        self, address: Address, message: log_pb2.ProduceStreamRequest, *, timeout_s: float
    ) -> log_pb2.ProduceResponse:
        """Send a request; its number is given here. Raises RegnumError, as a call would."""
        # (To ask the message for its size is to encode all of it.)
        size_bytes = sum(len(part.record_batch) for part in message.request.partitions)
        if size_bytes <= STREAMED_BYTES_MAX and self._has_stream(address):
            stream = self._stream(address)
            try:
                return await stream.produce(message, size_bytes, timeout_s=timeout_s)
            except _NoStreamError:
                self._called_until_s[address] = self._clock.monotonic() + CALLED_FOR_S
            except RegnumError:
                if stream.refused:
                    self._called_until_s[address] = self._clock.monotonic() + REFUSED_FOR_S
                raise
        produce = self._connections.log(address).Produce
        response: log_pb2.ProduceResponse = await call(produce, message.request, timeout_s=timeout_s)
        return response

    async def close(self) -> None:
        """End all streams."""
        streams = tuple(self._streams.values())
        self._streams.clear()
        for stream in streams:
            await stream.close()

    def _has_stream(self, address: Address) -> bool:
        until_s = self._called_until_s.get(address)
        if until_s is None:
            return True
        if self._clock.monotonic() < until_s:
            return False
        del self._called_until_s[address]
        return True

    def _stream(self, address: Address) -> "_Stream":
        stream = self._streams.get(address)
        if stream is None or stream.ended:
            stream = self._streams[address] = _Stream(self._connections.log(address), self._tasks)
            stream.start(address)
        return stream


class _Stream:
    """One stream, until it breaks."""

    def __init__(self, stub: "LogServiceAsyncStub", tasks: Tasks) -> None:
        self._tasks: Final = tasks
        self._stub: Final = stub
        self._count = 0
        self._waiting: Final[dict[int, asyncio.Future[log_pb2.ProduceStreamResponse]]] = {}
        self._line: Final[deque[tuple[log_pb2.ProduceStreamRequest, int]]] = deque()
        """Requests that were not sent yet, with their bytes."""
        self._takes_more = False
        """Whether the broker said that it takes several requests in one message."""
        self._more: Final = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self.ended = False
        """Whether it is broken: nothing more is sent on it."""
        self.refused = False
        """Whether the broker had no room for it, and answered nothing on it."""
        self._answered = False

    def start(self, address: Address) -> None:
        """Begin; not within the span of whoever comes first."""
        context = contextvars.Context()
        # Before the task begins the channel may be closed: a call that is under way then ends, and none can be made.
        started: StreamCall = context.run(self._stub.ProduceStream)
        self._running = self._tasks.start(f"produce stream to {address}", self._run(started), context=context)

    async def produce(
        self, message: log_pb2.ProduceStreamRequest, size_bytes: int, *, timeout_s: float
    ) -> log_pb2.ProduceResponse:
        """Send a request, which has so many bytes, and wait for its answer, so long at most."""
        self._count += 1
        number = message.correlation_id = self._count
        answer: asyncio.Future[log_pb2.ProduceStreamResponse] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        self._line.append((message, size_bytes))
        self._more.set()
        try:
            async with asyncio.timeout(timeout_s):
                outcome = await answer
        except TimeoutError:
            raise RegnumError(
                errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                f"no answer within {timeout_s:.1f} s (the outcome is unknown; look before repeating)",
            ) from None
        finally:
            self._waiting.pop(number, None)
        if outcome.HasField("error"):
            error = from_status(outcome.error)
            raise error or RegnumError(errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, outcome.error.message)
        response: log_pb2.ProduceResponse = outcome.response
        return response

    async def close(self) -> None:
        """End it; who waits hears that the outcome is unknown."""
        if self._running is not None:
            await self._tasks.end(self._running)

    async def _run(self, started: StreamCall) -> None:
        end: RegnumError | _NoStreamError = _broken("the connection was closed while the call was under way")
        try:
            await self._talk(started)
            end = _broken("the broker ended the stream")
        except grpc.aio.AioRpcError as failure:
            end = self._said(failure)
        except (asyncio.CancelledError, asyncio.InvalidStateError):
            # A call also ends so when its channel is closed under it; then nobody asked this task to end.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Or when the broker refuses it before it is set up.
            if started.done() and await started.code() in {
                grpc.StatusCode.UNIMPLEMENTED,
                grpc.StatusCode.RESOURCE_EXHAUSTED,
            }:
                end = self._said(await _failure(started))
        finally:
            self.ended = True
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(end)

    def _said(self, failure: grpc.aio.AioRpcError) -> "RegnumError | _NoStreamError":
        """How the broker ended the stream."""
        if failure.code() is grpc.StatusCode.UNIMPLEMENTED:
            return _NoStreamError()
        self.refused = failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and not self._answered
        return from_rpc_error(failure)

    async def _talk(self, started: StreamCall) -> None:
        writing = self._tasks.start("produce stream: writer", self._write(started))
        try:
            while (response := await started.read()) is not grpc.aio.EOF:
                self._takes_more, self._answered = response.takes_more, True
                for one in (response, *response.more):
                    answer = self._waiting.pop(one.correlation_id, None)
                    if answer is not None and not answer.done():
                        answer.set_result(one)
        finally:
            end_task(writing)
            started.cancel()

    async def _write(self, started: StreamCall) -> None:
        """Send what stands in line, as fast as the broker takes it. The reader hears why that ended."""
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                while (message := self._next()) is not None:
                    await started.write(message)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return
        except asyncio.CancelledError:
            # So does a call whose channel is closed end a write; then nothing asked *this task* to end.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise

    def _next(self) -> log_pb2.ProduceStreamRequest | None:
        """The next message: the first in line, and those behind it that may go with it."""
        first: log_pb2.ProduceStreamRequest | None = None
        together_bytes = 0
        while self._line:
            message, size_bytes = self._line[0]
            if message.correlation_id not in self._waiting:
                # Nobody waits for it any more: it must not be appended after its time.
                self._line.popleft()
                continue
            together_bytes += size_bytes
            if first is None:
                first = message
                first.takes_more = True
            elif self._takes_more and together_bytes <= TOGETHER_BYTES_MAX and len(first.more) < TOGETHER_MAX - 1:
                first.more.append(message)
            else:
                break
            self._line.popleft()
        return first


async def _failure(ended: StreamCall) -> grpc.aio.AioRpcError:
    """What a call that has ended would raise."""
    return grpc.aio.AioRpcError(
        await ended.code(), await ended.initial_metadata(), await ended.trailing_metadata(), await ended.details()
    )


def _broken(how: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, how)
