"""ProduceStream: the requests of one producer, one after another on one call.

Goals: what a request costs is its records; whoever sends more than can be taken is not read.

Algorithm: each request that is read becomes a task, which begins in the order of the requests and so hands its records
to the writer in that order; answers go out as they come about. A request is under way until its answer has been sent,
and REQUESTS_MAX may be: then nothing more is read, and flow control holds the producer up, also one that sends and
never reads. A request for which there is no memory is thrown away at once and answered so; those behind it may be
taken. When the call ends, what waits for acknowledgements is given up, as with a call of its own; what was appended
stays.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Final

from regnum.broker.v1 import log_pb2
from regnum_service.errors import RegnumError
from regnum_service.gates import Messages
from regnum_service.status import to_status

from regnum_broker.limits.held_bytes import HeldBytes, Purpose, refusal
from regnum_broker.serving.produce import SLICE

REQUESTS_MAX: Final = 64
"""Requests of one stream that are under way at once."""


class ProduceStream:
    """One call of ProduceStream. Belongs to the event loop."""

    def __init__(
        self,
        produce: Callable[[log_pb2.ProduceRequest], Awaitable[log_pb2.ProduceResponse]],
        *,
        held: HeldBytes | None = None,
        connection: str = "",
    ) -> None:
        """Only assigns.

        Args:
            produce: what a call of its own would do.
            held: where the bytes of requests are counted while they are under way; None: nowhere.
            connection: whose they are.
        """
        self._produce: Final = produce
        self._held: Final = held
        self._connection: Final = connection
        self._under_way: Final[set[asyncio.Task[log_pb2.ProduceStreamResponse]]] = set()
        self._ended: Final[deque[asyncio.Future[log_pb2.ProduceStreamResponse]]] = deque()
        self._room: Final = asyncio.Semaphore(REQUESTS_MAX)
        self._moved: Final = asyncio.Event()

    async def answers(
        self, requests: AsyncIterator[log_pb2.ProduceStreamRequest]
    ) -> AsyncGenerator[log_pb2.ProduceStreamResponse, None]:
        """An answer for each request, until there are no more. What is raised for one that does not parse passes."""
        reading = asyncio.create_task(self._read(requests), name="produce stream: requests")
        reading.add_done_callback(lambda _: self._moved.set())
        try:
            while not reading.done() or self._under_way or self._ended:
                self._moved.clear()
                while self._ended:
                    yield self._ended.popleft().result()
                    self._room.release()
                if reading.done() and reading.exception() is not None:
                    break
                if self._under_way or not reading.done():
                    await self._moved.wait()
            await reading
        finally:
            reading.cancel()
            for task in self._under_way:
                task.cancel()

    async def _read(self, requests: AsyncIterator[log_pb2.ProduceStreamRequest]) -> None:
        coming = aiter(requests)
        while True:
            await self._room.acquire()
            try:
                request = await anext(coming)
            except StopAsyncIteration:
                return
            size = coming.size_bytes if isinstance(coming, Messages) else 0
            if self._held is not None and not self._held.take(self._connection, size, Purpose.PRODUCE):
                self._tell(_thrown_away(request))
                continue
            task = asyncio.create_task(self._answer(request), name="produce stream: request")
            self._under_way.add(task)
            task.add_done_callback(partial(self._end, size=size))
            many = len(request.request.partitions) > SLICE
            # Else a stream at rest would keep what it brought last.
            del request
            if many:
                # It gives the loop turns before its records are handed over: another request would overtake it.
                await asyncio.wait((task,))

    def _end(self, task: asyncio.Task[log_pb2.ProduceStreamResponse], *, size: int) -> None:
        self._under_way.discard(task)
        if self._held is not None:
            self._held.let_go(self._connection, size, Purpose.PRODUCE)
        if not task.cancelled():
            self._tell(task)

    def _tell(self, answer: asyncio.Future[log_pb2.ProduceStreamResponse]) -> None:
        self._ended.append(answer)
        self._moved.set()

    async def _answer(self, message: log_pb2.ProduceStreamRequest) -> log_pb2.ProduceStreamResponse:
        try:
            response = await self._produce(message.request)
        except RegnumError as error:
            return log_pb2.ProduceStreamResponse(correlation_id=message.correlation_id, error=to_status(error))
        return log_pb2.ProduceStreamResponse(correlation_id=message.correlation_id, response=response)


def _thrown_away(request: log_pb2.ProduceStreamRequest) -> asyncio.Future[log_pb2.ProduceStreamResponse]:
    """The answer to a request for which there was no memory."""
    answer: asyncio.Future[log_pb2.ProduceStreamResponse] = asyncio.get_running_loop().create_future()
    answer.set_result(log_pb2.ProduceStreamResponse(correlation_id=request.correlation_id, error=to_status(refusal())))
    return answer
