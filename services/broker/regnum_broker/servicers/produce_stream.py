"""ProduceStream: the requests of one producer, one after another on one call.

Goals: what a request costs is its records; whoever sends more than can be taken is not read.

Algorithm: each request that is read becomes a task, which begins in the order of the requests and so hands its records
to the writer in that order; answers go out as they come about. REQUESTS_MAX may be under way: then nothing more is
read, and flow control holds the producer up. When the call ends, what waits for acknowledgements is given up, as with a
call of its own; what was appended stays.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Final

from regnum.broker.v1 import log_pb2
from regnum_service.errors import RegnumError
from regnum_service.status import to_status

from regnum_broker.serving.produce import SLICE

REQUESTS_MAX: Final = 64
"""Requests of one stream that are under way at once."""


class ProduceStream:
    """One call of ProduceStream. Belongs to the event loop."""

    def __init__(self, produce: Callable[[log_pb2.ProduceRequest], Awaitable[log_pb2.ProduceResponse]]) -> None:
        """Only assigns; ``produce`` is what a call of its own would do."""
        self._produce: Final = produce
        self._under_way: Final[set[asyncio.Task[log_pb2.ProduceStreamResponse]]] = set()
        self._ended: Final[deque[asyncio.Task[log_pb2.ProduceStreamResponse]]] = deque()
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
        async for request in requests:
            await self._room.acquire()
            task = asyncio.create_task(self._answer(request), name="produce stream: request")
            self._under_way.add(task)
            task.add_done_callback(self._end)
            if len(request.request.partitions) > SLICE:
                # It gives the loop turns before its records are handed over: another request would overtake it.
                await asyncio.wait((task,))

    def _end(self, task: asyncio.Task[log_pb2.ProduceStreamResponse]) -> None:
        self._under_way.discard(task)
        self._room.release()
        if not task.cancelled():
            self._ended.append(task)
            self._moved.set()

    async def _answer(self, message: log_pb2.ProduceStreamRequest) -> log_pb2.ProduceStreamResponse:
        try:
            response = await self._produce(message.request)
        except RegnumError as error:
            return log_pb2.ProduceStreamResponse(correlation_id=message.correlation_id, error=to_status(error))
        return log_pb2.ProduceStreamResponse(correlation_id=message.correlation_id, response=response)
