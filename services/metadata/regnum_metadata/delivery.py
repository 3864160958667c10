"""Sending one change to one broker: bounded in time and in memory, and nobody waits for somebody else.

What is small goes out at once. A large message needs its bytes from a budget that all brokers share, since the
transport keeps a copy of it until the broker has read that much. A broker that does not read loses its claim after a
while: the copy stays, one message at most, until the broker is given up; the others go on. Nothing is held while an
answer is awaited.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

BYTES_IN_FLIGHT: Final = 8 * 1024 * 1024
"""Bytes of large messages that are being written, all brokers together."""

SMALL_BYTES: Final = 16 * 1024
"""A message up to this size needs nothing from the budget."""


class BrokerStream(Protocol):
    """How one broker is reached. Every method raises RegnumError."""

    async def send(self, part: bytes) -> None:
        """One message; returns when the transport has taken it, which waits for a broker that does not read."""

    async def answer(self) -> control_pb2.UpdateMetadataResponse:
        """The broker's next answer."""

    def abandon(self) -> None:
        """Forget what is under way; the next message opens the stream anew."""

    async def close(self) -> None:
        """Hang up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a broker is waited for, in seconds."""

    lend_s: float = 0.5
    """Until the bytes of a message that the broker does not read are given back to the others."""
    write_s: float = 10.0
    """Until a broker that does not read a message is given up."""
    answer_s: float = 10.0
    """Until one that does not answer is given up."""


class ByteBudget:
    """Bytes that are lent, first come, first served. Belongs to the event loop."""

    def __init__(self, size: int = BYTES_IN_FLIGHT) -> None:
        self._size = size
        self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.sent = 0
        """Bytes that streams have taken, all brokers together."""

    @property
    def lent(self) -> int:
        """Bytes that are lent."""
        return self._size - self._free

    @asynccontextmanager
    async def lend(self, count: int, *, for_s: float) -> AsyncIterator[None]:
        """Bytes for as long as the block lasts, but not longer than that time; at most all there are."""
        if count <= SMALL_BYTES:
            yield
            return
        count = min(count, self._size)
        await self._take(count)
        returned = False

        def give_back() -> None:
            nonlocal returned
            if not returned:
                returned = True
                self._free += count
                self._serve()

        timer = asyncio.get_running_loop().call_later(for_s, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()

    async def _take(self, count: int) -> None:
        if not self._waiting and count <= self._free:
            self._free -= count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free += count
            self._serve()
            raise

    def _serve(self) -> None:
        while self._waiting:
            count, turn = self._waiting[0]
            if turn.cancelled():
                self._waiting.popleft()
                continue
            if count > self._free:
                return
            self._waiting.popleft()
            self._free -= count
            turn.set_result(None)


async def deliver(
    stream: BrokerStream, parts: Sequence[bytes], budget: ByteBudget, patience: Patience
) -> control_pb2.UpdateMetadataResponse:
    """Send all messages of a change; the broker's answer. Raises RegnumError, and abandons the stream with it."""
    answered = False
    try:
        for part in parts:
            async with budget.lend(len(part), for_s=patience.lend_s), asyncio.timeout(patience.write_s):
                await stream.send(part)
            budget.sent += len(part)
        async with asyncio.timeout(patience.answer_s):
            response = await stream.answer()
        answered = True
    except TimeoutError as error:
        raise RegnumError(
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "the broker did not answer a metadata change"
        ) from error
    else:
        return response
    finally:
        if not answered:
            stream.abandon()
