"""grpc.aio's channel over the simulated network."""

import asyncio
import contextvars
import itertools
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Final, Self

import grpc

from regnum_testing.simulation.loop import PROCESS, Process
from regnum_testing.simulation.network import CONNECT_S, Connection, Network
from regnum_testing.simulation.servers import Inbox, Window

BACKOFF_S: Final = (0.05, 1.0)
"""Pause after an attempt to connect that failed: the first, and the longest."""

_NUMBERS: Final = itertools.count(1)


class SimulatedChannel(grpc.aio.Channel):
    """Belongs to the process that opens it."""

    def __init__(self, network: Network, target: str) -> None:
        """Only assigns."""
        process = PROCESS.get()
        assert process is not None, "channels belong to processes"
        self.network: Final = network
        self.process: Final[Process] = process
        self._target: Final = target
        self._connection: Connection | None = None
        self._waiting: Final[dict[ClientCall, None]] = {}
        """Calls that wait for the connection."""
        self._connecting = False
        self._backoff_s = BACKOFF_S[0]
        self._down_until_s = 0.0
        self._closed = False

    def start(self, call: "ClientCall") -> None:
        """Send a call over the connection, as soon as there is one."""
        loop = self.network.loop
        connection = self._connection
        if connection is not None and connection.client_open:
            call.go(connection)
            return
        if loop.time() < self._down_until_s:
            # gRPC does not wait for another attempt.
            loop.call_soon(call.finish, grpc.StatusCode.UNAVAILABLE, f"{self._target}: connection failed before")
            return
        self._waiting[call] = None
        if not self._connecting:
            self._connecting = True
            loop.in_world(2 * self.network.delay_s(), self._connect)

    def _connect(self) -> None:
        network, server = self.network, self.network.at(self._target)
        if server is None:
            self._failed("connection refused")
        elif (
            server.process.paused
            or network.is_cut(self.process, server.process)
            or network.is_cut(server.process, self.process)
        ):
            network.loop.in_world(CONNECT_S, self._failed, "no answer")
        else:
            self._connecting, self._backoff_s = False, BACKOFF_S[0]
            self._connection = connection = network.connect(self.process, server, self._target)
            for call in self._taken():
                call.go(connection)

    def _failed(self, why: str) -> None:
        self._connecting = False
        self._down_until_s = self.network.loop.time() + self._backoff_s
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_S[1])
        for call in self._taken():
            call.finish(grpc.StatusCode.UNAVAILABLE, f"{self._target}: {why}")

    def _taken(self) -> tuple["ClientCall", ...]:
        waiting = tuple(self._waiting)
        self._waiting.clear()
        return waiting

    def forget(self, call: "ClientCall") -> None:
        """It ended before it was sent."""
        self._waiting.pop(call, None)

    def _multicallable(self, method: Any, serialize: Any, deserialize: Any, *, streams: bool, answers: bool) -> Any:
        def begin(request: Any = None, *, timeout: float | None = None, metadata: Any = None, **_: Any) -> Any:
            call = ClientCall(self, str(method), serialize, deserialize, timeout, tuple(metadata or ()))
            if not streams:
                call.send(request)
                call.half_close()
            elif request is not None:
                call.pump(request)
            return call if answers else UnaryCall(call)

        return begin

    def unary_unary(
        self,
        method: Any,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        **_: Any,
    ) -> Any:
        """One request, one answer."""
        return self._multicallable(method, request_serializer, response_deserializer, streams=False, answers=False)

    def unary_stream(
        self,
        method: Any,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        **_: Any,
    ) -> Any:
        """One request, a stream of answers."""
        return self._multicallable(method, request_serializer, response_deserializer, streams=False, answers=True)

    def stream_unary(
        self,
        method: Any,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        **_: Any,
    ) -> Any:
        """A stream of requests, one answer."""
        return self._multicallable(method, request_serializer, response_deserializer, streams=True, answers=False)

    def stream_stream(
        self,
        method: Any,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        **_: Any,
    ) -> Any:
        """A stream each way."""
        return self._multicallable(method, request_serializer, response_deserializer, streams=True, answers=True)

    async def close(self, grace: float | None = None) -> None:
        """Cancel its calls and hang up."""
        del grace
        self._closed = True
        for call in self._taken():
            call.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            for call in tuple(connection.client_calls.values()):
                call.cancel()
            connection.break_client()

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002
        """State of the connection."""
        del try_to_connect
        if self._closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        is_up = self._connection is not None and self._connection.client_open
        return grpc.ChannelConnectivity.READY if is_up else grpc.ChannelConnectivity.IDLE

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Not simulated: no process here waits for the state of a channel."""
        raise NotImplementedError("simulated channels have no states to wait for")

    async def channel_ready(self) -> None:
        """Not simulated: no process here waits for the state of a channel."""
        raise NotImplementedError("simulated channels have no states to wait for")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()


class ClientCall:
    """The client's side of a call with a stream of answers; of one with one answer see ``UnaryCall``."""

    def __init__(
        self,
        channel: SimulatedChannel,
        method: str,
        serialize: Any,
        deserialize: Any,
        timeout_s: float | None,
        metadata: tuple[tuple[str, str], ...],
    ) -> None:
        """Begins it."""
        self._channel: Final = channel
        self._method: Final = method
        self._serialize: Final = serialize
        self._deserialize: Final = deserialize
        self._metadata: Final = metadata
        self._loop: Final = channel.network.loop
        self.number: Final = next(_NUMBERS)
        self.inbox: Final = Inbox(self._loop, self._read)
        self.window: Final = Window(self._loop)
        self._connection: Connection | None = None
        self._unsent: list[bytes | None] = []
        """Messages before there is a connection; None: that there will be no more."""
        self._status: tuple[grpc.StatusCode, str, tuple[Any, ...]] | None = None
        self._done_callbacks: Final[list[Callable[[Any], None]]] = []
        self._context: Final = contextvars.copy_context()
        self._cancelled_here = False
        self._pump: asyncio.Task[None] | None = None
        self._ended: Final = asyncio.Event()
        self._deadline_s: Final = None if timeout_s is None else self._loop.time() + timeout_s
        self._timer = (
            None
            if timeout_s is None
            else self._loop.call_later(
                max(0.0, timeout_s), self.give_up, grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"
            )
        )
        channel.start(self)

    # What the connection does.

    def go(self, connection: Connection) -> None:
        """There is a connection."""
        if self._status is not None:
            return
        self._connection = connection
        connection.client_calls[self.number] = self
        self._channel.network.on_call(connection.client, connection.server.process, self._method)
        left_s = None if self._deadline_s is None else self._deadline_s - self._loop.time()
        connection.up.send(connection.server.opened, connection, self.number, self._method, self._metadata, left_s)
        unsent, self._unsent = self._unsent, []
        for data in unsent:
            self._put(data)

    def _put(self, data: bytes | None) -> None:
        connection = self._connection
        if connection is None:
            self._unsent.append(data)
        else:
            connection.up.send(_arrived, connection, self.number, data)

    def _read(self, size: int) -> None:
        connection = self._connection
        if connection is not None and self._status is None:
            connection.up.send(_consumed, connection, self.number, size)

    def ended(self, code: grpc.StatusCode, details: str, trailing: tuple[Any, ...]) -> None:
        """The server's status arrived."""
        self.finish(code, details, trailing)

    def broken(self) -> None:
        """The connection broke."""
        self.finish(grpc.StatusCode.UNAVAILABLE, "the connection broke")

    def finish(self, code: grpc.StatusCode, details: str, trailing: tuple[Any, ...] = ()) -> None:
        """It is over, with what has arrived still to be read."""
        if self._status is not None:
            return
        self._status = (code, details, trailing)
        if self._timer is not None:
            self._timer.cancel()
        self._channel.forget(self)
        if self._connection is not None:
            self._connection.client_calls.pop(self.number, None)
        self.inbox.end()
        self.window.give_back(1 << 40)
        if self._pump is not None:
            self._pump.cancel()
        self._ended.set()
        for callback in self._done_callbacks:
            self._loop.call_soon(callback, self, context=self._context)

    def give_up(self, code: grpc.StatusCode, details: str) -> None:
        """End it from this side, and tell the server."""
        if self._status is not None:
            return
        connection = self._connection
        self.finish(code, details)
        if connection is not None and connection.client_open:
            connection.up.send(_reset, connection, self.number)

    # What the caller does.

    def send(self, message: Any) -> int:
        """Send without waiting for room; returns the bytes."""
        data = message if self._serialize is None else self._serialize(message)
        self._put(data)
        return len(data)

    def half_close(self) -> None:
        """No more requests."""
        self._put(None)

    def pump(self, requests: Any) -> None:
        """Send what an iterator gives."""

        async def run() -> None:
            if hasattr(requests, "__aiter__"):
                async for request in requests:
                    await self.write(request)
            else:
                for request in requests:
                    await self.write(request)
            self.half_close()

        self._pump = self._loop.create_task(run())

    async def write(self, message: Any) -> None:
        """Send one request."""
        self._raise_if_over()
        data = message if self._serialize is None else self._serialize(message)
        try:
            await self.window.take(len(data))
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise_if_over()
        self._put(data)

    def _raise_if_over(self) -> None:
        if self._status is None:
            return
        if self._cancelled_here:
            raise asyncio.CancelledError
        if self._status[0] is not grpc.StatusCode.OK:
            raise self.error()
        raise asyncio.InvalidStateError("the call is over")

    async def done_writing(self) -> None:
        """No more requests."""
        self.half_close()

    async def read(self) -> Any:
        """The next answer, or ``grpc.aio.EOF``."""
        if self._cancelled_here:
            raise asyncio.CancelledError
        try:
            data = await self.inbox.get()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if data is not None:
            return data if self._deserialize is None else self._deserialize(data)
        if self._cancelled_here:
            raise asyncio.CancelledError
        assert self._status is not None, "an inbox ends with its call"
        if self._status[0] is grpc.StatusCode.OK:
            return grpc.aio.EOF
        raise self.error()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._answers()

    async def _answers(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    def error(self) -> grpc.aio.AioRpcError:
        """What a call that failed raises."""
        assert self._status is not None, "not over"
        code, details, trailing = self._status
        return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details=details)

    def cancel(self) -> bool:
        """End it."""
        if self._status is not None:
            return False
        self._cancelled_here = True
        self.give_up(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")
        return True

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._status is not None and self._status[0] is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Whether it is over."""
        return self._status is not None

    def time_remaining(self) -> float | None:
        """Seconds until its deadline; None: it has none."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._loop.time())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call that when it is over."""
        if self._status is not None:
            self._loop.call_soon(callback, self)
        else:
            self._done_callbacks.append(callback)

    async def _over(self) -> tuple[grpc.StatusCode, str, tuple[Any, ...]]:
        await self._ended.wait()
        assert self._status is not None, "just ended"
        return self._status

    async def code(self) -> grpc.StatusCode:
        """Its status."""
        return (await self._over())[0]

    async def details(self) -> str:
        """The words of its status."""
        return (await self._over())[1]

    async def trailing_metadata(self) -> Any:
        """What comes with its status."""
        return grpc.aio.Metadata(*(await self._over())[2])

    async def initial_metadata(self) -> Any:
        """Nothing."""
        return grpc.aio.Metadata()

    async def wait_for_connection(self) -> None:
        """Nothing to wait for."""


class UnaryCall:
    """A call with one answer: awaited."""

    def __init__(self, call: ClientCall) -> None:
        """Begins to wait for the answer."""
        self._call: Final = call
        self._answer: Final = asyncio.get_running_loop().create_task(self._one(), name="unary call")
        self._answer.add_done_callback(_seen)

    async def _one(self) -> Any:
        answer = await self._call.read()
        if answer is not grpc.aio.EOF:
            await self._call.read()
        return answer

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)


def _seen(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


def _arrived(connection: Connection, number: int, data: bytes | None) -> None:
    call = connection.server_calls.get(number)
    if call is not None:
        if data is None:
            call.inbox.end()
        else:
            call.inbox.put(data)


def _consumed(connection: Connection, number: int, size: int) -> None:
    call = connection.server_calls.get(number)
    if call is not None:
        call.window.give_back(size)


def _reset(connection: Connection, number: int) -> None:
    call = connection.server_calls.get(number)
    if call is not None:
        call.cancel()
