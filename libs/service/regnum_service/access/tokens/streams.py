"""Streams that were opened with a token end with it: by its expiry, or when somebody ends it.

Goals: one place for all services; within a second; a stream costs a dictionary entry, a process with a hundred thousand
tokens and few streams looks at the few.

Algorithm: each stream is kept under its token; each token with streams is put into the second in which it ends. Every
half a second those whose second has come are looked at, and those whose token has changed in the store at once: whose
token is dead are cancelled, some in each turn of the loop, as if their client had hung up, and answered
DELEGATION_TOKEN_EXPIRED; whose token lives longer now is put into another second. A call with one request and one
answer is not cut off: it ends by itself, and the next one is refused.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Final

import grpc

from regnum_service.access.identity import caller
from regnum_service.access.tokens.check import ended, is_dead, shown_in
from regnum_service.access.tokens.table import TokenTable
from regnum_service.clock import Clock

LOOK_S: Final = 0.5
"""Time between two looks."""

ENDED_PER_TURN: Final = 50
"""Streams that are ended in one turn of the event loop, for each has a turn of its own there: it is answered, and what
it held is let go of (safety rule S22)."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""
Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""


class _Stream:
    """A stream that is open."""

    __slots__ = ("ended", "is_dead", "is_over", "task")

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self.task: Final = task
        self.is_dead = False
        """Its token is: it ends in one of the next turns."""
        self.ended = False
        """The cancellation is ours."""
        self.is_over = False
        """It has ended: its task may have gone on to something else."""


class TokenStreams:
    """Open streams by token. Belongs to one event loop."""

    def __init__(self, table: TokenTable, clock: Clock) -> None:
        """Only assigns."""
        self._table: Final = table
        self._clock: Final = clock
        self._streams: Final[dict[str, set[_Stream]]] = {}
        self._ends: Final[dict[int, set[str]]] = {}
        """Tokens with streams, by the second since 1970 in which they end."""
        self._dead: Final[deque[_Stream]] = deque()
        """Streams that are to be ended in the turns that come."""

    def __len__(self) -> int:
        """Streams that are open."""
        return sum(map(len, self._streams.values()))

    @contextmanager
    def opened(self, token_id: str) -> Iterator[None]:
        """A stream of the present task, for as long as the body runs. Raises RegnumError when its token ends."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a stream is opened by a task")
        stream = _Stream(task)
        if token_id not in self._streams:
            self._streams[token_id] = set()
            self._put_off(token_id)
        self._streams[token_id].add(stream)
        try:
            yield
        except asyncio.CancelledError:
            if stream.ended and task.uncancel() == 0:
                raise ended() from None
            raise
        finally:
            stream.is_over = True
            self._streams[token_id].discard(stream)
            if not self._streams[token_id]:
                del self._streams[token_id]

    def changed(self, token_ids: Iterable[str]) -> None:
        """Those tokens came, went, or live longer or shorter."""
        for token_id in token_ids:
            if token_id in self._streams:
                self._look_at(token_id)

    async def run(self) -> None:
        """Look, for ever; a task of the supervisor."""
        while True:
            await self._clock.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """End what has ended by now."""
        now_s = self._clock.wall_ms() // 1_000
        for second in [second for second in self._ends if second <= now_s]:
            for token_id in self._ends.pop(second):
                if token_id in self._streams:
                    self._look_at(token_id)

    def _look_at(self, token_id: str) -> None:
        if not is_dead(self._table.find(token_id), self._clock.wall_ms()):
            self._put_off(token_id)
            return
        begins = not self._dead
        self._dead.extend(stream for stream in self._streams[token_id] if not stream.is_dead)
        for stream in self._streams[token_id]:
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

    def _put_off(self, token_id: str) -> None:
        token = self._table.find(token_id)
        ends_ms = 0 if token is None else token.ends_ms
        self._ends.setdefault(ends_ms // 1_000, set()).add(token_id)


class TokenStreamInterceptor(grpc.aio.ServerInterceptor):
    """Has the streams of a listener end with their tokens. Stands inside the one that says who calls."""

    def __init__(self, streams: TokenStreams) -> None:
        """Only assigns."""
        self._streams: Final = streams

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
            token_id = _token_of(context)
            if token_id is None:
                return await behaviour(requests, context)
            with self._streams.opened(token_id):
                return await behaviour(requests, context)

        return call

    def _streaming(self, behaviour: Any) -> Any:
        async def call(request: Any, context: Context) -> None:
            token_id = _token_of(context)
            if token_id is None:
                await _pass(behaviour(request, context), context)
                return
            with self._streams.opened(token_id):
                await _pass(behaviour(request, context), context)

        return call


async def _pass(responses: Any, context: Context) -> None:
    if not isinstance(responses, AsyncIterator):
        await responses
        return
    async with aclosing(responses):  # type: ignore[type-var]  # it is a generator
        async for response in responses:
            await context.write(response)


def _token_of(context: Context) -> str | None:
    """Id of the token that the caller of this call was told apart by."""
    if not caller().principal.token_authenticated:
        return None
    shown = shown_in(context.invocation_metadata())
    return None if shown is None else shown[0]
