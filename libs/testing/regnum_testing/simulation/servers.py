"""grpc.aio's server over the simulated network."""

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import grpc

from regnum_testing.simulation.loop import PROCESS, Process, SimulatedLoop
from regnum_testing.simulation.network import Connection, Network

WINDOW_BYTES: Final = 256 * 1024
"""Of one stream, what is under way and not read yet before its sender waits."""

Trailing = Sequence[tuple[str, str | bytes]]


class Inbox:
    """Messages of one stream that arrived, and its end. Belongs to the process that reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, consumed: Callable[[int], None]) -> None:
        """Only assigns; ``consumed`` is told of bytes that were read."""
        self._loop: Final = loop
        self._consumed: Final = consumed
        self._messages: Final[deque[bytes]] = deque()
        self._ended = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, message: bytes) -> None:
        """One arrived."""
        self._messages.append(message)
        self._wake()

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def get(self) -> bytes | None:
        """The next; None: there are no more."""
        while not self._messages:
            if self._ended:
                return None
            self._waiter = self._loop.create_future()
            await self._waiter
        message = self._messages.popleft()
        self._consumed(len(message))
        return message


class Window:
    """What one side may send of a stream before the other has read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Only assigns."""
        self._loop: Final = loop
        self._unread_bytes = 0
        self._waiters: Final[list[asyncio.Future[None]]] = []

    async def take(self, size: int) -> None:
        """Return when there is room; a single message always fits."""
        self._unread_bytes += size
        while self._unread_bytes - size > WINDOW_BYTES:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def give_back(self, size: int) -> None:
        """So much was read, or nothing will be."""
        self._unread_bytes -= size
        waiters = tuple(self._waiters)
        self._waiters.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Details(grpc.HandlerCallDetails):
    """What interceptors are told of a call."""

    def __init__(self, method: str, metadata: tuple[tuple[str, str], ...]) -> None:
        self.method = method
        self.invocation_metadata = metadata


class ServerCall:
    """A call at its server, and the context that handlers see of it."""

    def __init__(
        self,
        connection: Connection,
        number: int,
        method: str,
        metadata: tuple[tuple[str, str], ...],
        deadline_s: float | None,
    ) -> None:
        """Only assigns."""
        self._connection: Final = connection
        self._number: Final = number
        self.method: Final = method
        self._metadata: Final = metadata
        self._deadline_s: Final = deadline_s
        self._server: Final = connection.server
        self._loop: Final = self._server.network.loop
        self.inbox: Final = Inbox(self._loop, self._read)
        self.window: Final = Window(self._loop)
        self.handler: Any = None
        self.task: asyncio.Task[None] | None = None
        self._done = False
        self._callbacks: Final[list[Callable[[Any], None]]] = []
        self._trailing: Trailing = ()
        self._code: Any = 0
        self._details = ""

    def _read(self, size: int) -> None:
        call = self._connection.client_calls.get(self._number)
        if call is not None:
            self._connection.down.send(call.window.give_back, size)

    # What happens to it.

    def cancel(self) -> None:
        """The caller gave it up, or the connection broke, or the server stops."""
        if self._done:
            return
        self._over()
        if self.task is not None and not self.task.done():
            self.task.cancel()

    def end(self, code: grpc.StatusCode, details: str, trailing: Trailing = ()) -> None:
        """Send the status."""
        if self._done:
            return
        self._code = code
        connection, number = self._connection, self._number
        call = connection.client_calls.get(number)
        if call is not None:
            connection.down.send(call.ended, code, details, tuple(trailing))
        self._over()

    def _over(self) -> None:
        self._done = True
        self._connection.server_calls.pop(self._number, None)
        self.inbox.end()
        self.window.give_back(1 << 40)
        for callback in self._callbacks:
            # On the process's loop, as gRPC does.
            self._loop.call_soon(callback, self, context=self._server.context.copy())

    # What handlers see.

    def peer(self) -> str:
        """The other side."""
        return self._connection.peer

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """What the call brought."""
        return self._metadata

    def auth_context(self) -> dict[str, Sequence[bytes]]:
        """Nothing: it is plaintext."""
        return {}

    def set_trailing_metadata(self, trailing: Trailing) -> None:
        """Have that go with the status."""
        self._trailing = trailing

    def trailing_metadata(self) -> Trailing:
        """What comes with its status."""
        return self._trailing

    async def send_initial_metadata(self, metadata: Any) -> None:
        """Nothing is sent."""

    def set_code(self, code: Any) -> None:
        """Have that be the status."""
        self._code = code

    def code(self) -> Any:
        """Its status."""
        return self._code

    def set_details(self, details: str) -> None:
        """Have those be its words."""
        self._details = details

    def details(self) -> str:
        """The words of its status."""
        return self._details

    def done(self) -> bool:
        """Whether it is over."""
        return self._done

    def cancelled(self) -> bool:
        """Whether it was given up."""
        return self._done

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call that when it is over."""
        self._callbacks.append(callback)

    def time_remaining(self) -> float | None:
        """Seconds until its deadline; None: it has none."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - self._loop.time())

    def disable_next_message_compression(self) -> None:
        """Nothing is compressed."""

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Trailing = ()) -> None:
        """End the call. Raises AbortError."""
        self.end(code, details, trailing_metadata)
        raise grpc.aio.AbortError("aborted")

    async def read(self) -> Any:
        """The next message."""
        message = await self.inbox.get()
        if message is None:
            return grpc.aio.EOF
        deserializer = self.handler.request_deserializer
        return message if deserializer is None else deserializer(message)

    async def write(self, message: Any) -> None:
        """Send a message."""
        if self._done:
            raise asyncio.CancelledError
        serializer = self.handler.response_serializer
        data = message if serializer is None else serializer(message)
        await self.window.take(len(data))
        call = self._connection.client_calls.get(self._number)
        if call is not None and not self._done:
            self._connection.down.send(call.inbox.put, data)

    def __aiter__(self) -> AsyncIterator[Any]:
        return _messages(self)


async def _messages(call: ServerCall) -> AsyncIterator[Any]:
    while (message := await call.read()) is not grpc.aio.EOF:
        yield message


class _Opened(NamedTuple):
    call: ServerCall
    ends: asyncio.TimerHandle | None


class SimulatedServer(grpc.aio.Server):
    """Belongs to the process that makes it."""

    def __init__(self, network: Network, interceptors: Sequence[Any]) -> None:
        """Only assigns."""
        process = PROCESS.get()
        assert process is not None, "servers belong to processes"
        self.network: Final = network
        self.process: Final[Process] = process
        self.context: Final = contextvars.copy_context()
        self._interceptors: Final = tuple(interceptors)
        self._generic: Final[list[Any]] = []
        self._address: str | None = None
        self._calls: Final[dict[ServerCall, None]] = {}
        self._stopping = False

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[Any]) -> None:
        """Serve that."""
        self._generic.extend(generic_rpc_handlers)

    def add_registered_method_handlers(self, service_name: str, method_handlers: Any) -> None:
        """They are served as generic ones."""

    def add_insecure_port(self, address: str) -> int:
        """Listen there, once started. Raises RuntimeError: it is taken."""
        if address in self.network.listeners:
            raise RuntimeError(f"{address} is taken")
        self._address = address
        return int(address.rpartition(":")[2])

    def add_secure_port(self, address: str, server_credentials: Any) -> int:
        """Asked for by nothing here."""
        raise NotImplementedError("simulated processes speak plaintext")

    async def start(self) -> None:
        """Listen."""
        assert self._address is not None, "add a port first"
        self.network.listeners[self._address] = self

    async def stop(self, grace: float | None) -> None:
        """End calls, after the grace time."""
        self._stopping = True
        if self._address is not None and self.network.listeners.get(self._address) is self:
            del self.network.listeners[self._address]
        tasks = [call.task for call in self._calls if call.task is not None and not call.task.done()]
        if grace and tasks:
            await asyncio.wait(tasks, timeout=grace)
        for call in tuple(self._calls):
            call.end(grpc.StatusCode.UNAVAILABLE, "the server stops")
            if call.task is not None and not call.task.done():
                call.task.cancel()
        for connection in tuple(self.network.connections.values()):
            if connection.server is self:
                connection.break_server()

    async def wait_for_termination(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - gRPC's own
    ) -> bool:
        """Asked for by nothing here."""
        raise NotImplementedError("simulated servers end by stop(), and nobody waits for them")

    def opened(
        self,
        connection: Connection,
        number: int,
        method: str,
        metadata: tuple[tuple[str, str], ...],
        timeout_s: float | None,
    ) -> None:
        """Asked for by nothing here."""
        """A call arrives."""
        loop: SimulatedLoop = self.network.loop
        if not connection.server_open:
            return
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        call = connection.server_calls[number] = ServerCall(connection, number, method, metadata, deadline_s)
        context = self.context.copy()
        if self._stopping:
            call.end(grpc.StatusCode.UNAVAILABLE, "the server stops")
            return
        self._calls[call] = None
        call.task = loop.create_task(self._serve(call), name=method, context=context)
        if timeout_s is not None:
            call.add_done_callback(lambda _: ending.cancel())
            ending = loop.call_later(timeout_s, call.cancel, context=context)

    async def _find(self, details: Details, after: int = 0) -> Any:
        if after < len(self._interceptors):
            return await self._interceptors[after].intercept_service(
                lambda inner: self._find(inner, after + 1), details
            )
        for generic in self._generic:
            if (handler := generic.service(details)) is not None:
                return handler
        return None

    async def _serve(self, call: ServerCall) -> None:
        try:
            handler = call.handler = await self._find(Details(call.method, call.invocation_metadata()))
            if handler is None:
                call.end(grpc.StatusCode.UNIMPLEMENTED, f"Method not found: {call.method}")
                return
            request = call if handler.request_streaming else await call.read()
            if request is grpc.aio.EOF:
                return
            answer = _behaviour(handler)(request, call)
            if inspect.isasyncgen(answer):
                async for message in answer:
                    await call.write(message)
            elif handler.response_streaming:
                await answer
            else:
                await call.write(await answer)
            code = call.code() if isinstance(call.code(), grpc.StatusCode) else grpc.StatusCode.OK
            call.end(code, call.details(), call.trailing_metadata())
        except grpc.aio.AbortError:
            pass
        except asyncio.CancelledError:
            call.end(grpc.StatusCode.CANCELLED, "cancelled at the server")
        except Exception as error:  # noqa: BLE001 - gRPC does the same
            call.end(grpc.StatusCode.UNKNOWN, f"Unexpected {error!r}")
        finally:
            self._calls.pop(call, None)


def _behaviour(handler: Any) -> Any:
    if handler.request_streaming:
        return handler.stream_stream if handler.response_streaming else handler.stream_unary
    return handler.unary_stream if handler.response_streaming else handler.unary_unary
