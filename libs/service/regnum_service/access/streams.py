"""Streams end with what they were opened with: a delegation token, or a certificate.

Goals: one place for all services; within a second; a stream costs a dictionary entry, a process with a hundred thousand
tokens and few streams looks at the few.

Algorithm: each stream is kept under its credential; each credential with streams is put into the second in which it
ends. Every half a second those whose second has come are looked at, and those that changed at once: whose credential
is dead are cancelled, some in each turn of the loop, as if their client had hung up, and answered why; whose credential
lives longer now is put into another second. A call with one request and one answer is not cut off: it ends by itself,
and the next one is refused.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Final, Generic, TypeVar

import grpc

from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

LOOK_S: Final = 0.5
"""Time between two looks."""

ENDED_PER_TURN: Final = 50
"""Streams that are ended in one turn of the event loop, for each has a turn of its own there: it is answered, and what
it held is let go of (safety rule S22)."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""
Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""
CredentialT = TypeVar("CredentialT", bound=Hashable)
"""What streams are opened with."""


class _Stream:
    """A stream that is open."""

    __slots__ = ("ended", "is_dead", "is_over", "task")

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self.task: Final = task
        self.is_dead = False
        """Its credential is: it ends in one of the next turns."""
        self.ended = False
        """The cancellation is ours."""
        self.is_over = False
        """It has ended: its task may have gone on to something else."""


class EndingStreams(Generic[CredentialT]):
    """Open streams by credential. Belongs to one event loop."""

    def __init__(
        self,
        clock: Clock,
        *,
        ends_ms: Callable[[CredentialT], int],
        refusal: Callable[[CredentialT], RegnumError],
    ) -> None:
        """Only assigns.

        Args:
            clock: says when, by its wall time.
            ends_ms: after which moment a credential is dead, in milliseconds since 1970; 0: it is.
            refusal: what is said to a stream that is ended, asked for in the context of its call.
        """
        self._clock: Final = clock
        self._ends_ms: Final = ends_ms
        self._refusal: Final = refusal
        self._streams: Final[dict[CredentialT, set[_Stream]]] = {}
        self._ends: Final[dict[int, set[CredentialT]]] = {}
        """Credentials with streams, by the second since 1970 in which they end."""
        self._dead: Final[deque[_Stream]] = deque()
        """Streams that are to be ended in the turns that come."""

    def __len__(self) -> int:
        """Streams that are open."""
        return sum(map(len, self._streams.values()))

    @contextmanager
    def opened(self, credential: CredentialT) -> Iterator[None]:
        """A stream of the present task, for as long as the body runs. Raises RegnumError when its credential ends."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a stream is opened by a task")
        stream = _Stream(task)
        if credential not in self._streams:
            self._streams[credential] = set()
            self._put_off(credential)
        self._streams[credential].add(stream)
        try:
            yield
        except asyncio.CancelledError:
            if stream.ended and task.uncancel() == 0:
                raise self._refusal(credential) from None
            raise
        finally:
            stream.is_over = True
            self._streams[credential].discard(stream)
            if not self._streams[credential]:
                del self._streams[credential]

    def changed(self, credentials: Iterable[CredentialT]) -> None:
        """Those credentials came, went, or live longer or shorter."""
        for credential in credentials:
            if credential in self._streams:
                self._look_at(credential)

    def all_changed(self) -> None:
        """Any of them may live shorter."""
        self.changed(tuple(self._streams))

    async def run(self) -> None:
        """Look, for ever; a task of the supervisor."""
        while True:
            await self._clock.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """End what has ended by now."""
        now_s = self._clock.wall_ms() // 1_000
        for second in [second for second in self._ends if second <= now_s]:
            for credential in self._ends.pop(second):
                if credential in self._streams:
                    self._look_at(credential)

    def _look_at(self, credential: CredentialT) -> None:
        if self._ends_ms(credential) >= self._clock.wall_ms():
            self._put_off(credential)
            return
        begins = not self._dead
        self._dead.extend(stream for stream in self._streams[credential] if not stream.is_dead)
        for stream in self._streams[credential]:
            stream.is_dead = True
        if begins and self._dead:
            asyncio.get_running_loop().call_soon(self._end_some)

    def _end_some(self) -> None:
        for _ in range(min(ENDED_PER_TURN, len(self._dead))):
            stream = self._dead.popleft()
            if not stream.is_over:
                stream.ended = True
                stream.task.cancel()
        if self._dead:
            asyncio.get_running_loop().call_soon(self._end_some)

    def _put_off(self, credential: CredentialT) -> None:
        self._ends.setdefault(self._ends_ms(credential) // 1_000, set()).add(credential)


class StreamInterceptor(grpc.aio.ServerInterceptor, Generic[CredentialT]):
    """Has the streams of a listener end with their credentials. Stands inside the one that says who calls."""

    def __init__(
        self, streams: EndingStreams[CredentialT], credential_of: Callable[[Context], CredentialT | None]
    ) -> None:
        """Only assigns; ``credential_of``: what the caller of a call was told apart by; None: nothing that ends."""
        self._streams: Final = streams
        self._credential_of: Final = credential_of

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler whose streams end; the interceptor around this one remembers it."""
        handler = await continuation(handler_call_details)
        if handler is None or not (handler.request_streaming or handler.response_streaming):
            return handler
        parse, render = handler.request_deserializer, handler.response_serializer
        if not handler.response_streaming:
            return grpc.stream_unary_rpc_method_handler(self._single(handler.stream_unary), parse, render)
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(self._streaming(handler.stream_stream), parse, render)
        return grpc.unary_stream_rpc_method_handler(self._streaming(handler.unary_stream), parse, render)

    def _single(self, behaviour: Any) -> Any:
        async def call(requests: Any, context: Context) -> Any:
            credential = self._credential_of(context)
            if credential is None:
                return await behaviour(requests, context)
            with self._streams.opened(credential):
                return await behaviour(requests, context)

        return call

    def _streaming(self, behaviour: Any) -> Any:
        async def call(request: Any, context: Context) -> None:
            credential = self._credential_of(context)
            if credential is None:
                await _pass(behaviour(request, context), context)
                return
            with self._streams.opened(credential):
                await _pass(behaviour(request, context), context)

        return call


async def _pass(responses: Any, context: Context) -> None:
    if not isinstance(responses, AsyncIterator):
        await responses
        return
    async with aclosing(responses):  # type: ignore[type-var]  # it is a generator
        async for response in responses:
            await context.write(response)
