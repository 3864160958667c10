"""Sending one change to one broker: bounded in time and in memory, and nobody waits for somebody else.

Goals: what is held besides the payload itself is bounded, however many brokers there are and whatever they do; the
others are as fast as if the silent ones were not there; whoever reads slowly is served nevertheless.

Constraints: gRPC copies each message for each call, and keeps the copy until the broker has read that much (50 calls
with the same 256 KiB, which nobody reads: 260 KiB each).

Algorithm: what is small goes out at once. A large message needs its bytes from a budget that all brokers share. A
broker that has not read one for a while, when others wait for its bytes and were faster, gets one of a few places for
slow ones, and its bytes go back to the budget; it keeps the place until it has the whole change, so that it comes to an
end, and needs no budget. When no place is free it is given up, and asked again later. Nothing is held while an answer
is awaited, the payload's own bytes least of all.

Example: 200 brokers are sent 4 MB, and 70 of them stop reading. 34 messages are under way at once. Silent ones among
them give their bytes back after half a second: the first 32 have places for slow ones from then on, later ones are
given up. The others go on with what is free. At most 4 MB are held besides the payload.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

BYTES_IN_FLIGHT: Final = 2 * 1024 * 1024
"""Bytes of large messages that are being written, all brokers together."""

SMALL_BYTES: Final = 4 * 1024
"""A message up to this size needs nothing from the budget: a tenth of what the connection itself takes."""

SLOW_BROKERS: Final = 32
"""Brokers that may read slowly at once, each with one message under way besides the budget."""

LOOKS_MAX: Final = 4
"""Times that a message is looked at before it counts as slow though nobody was faster."""


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
    """Until the bytes of a message that others were faster to read are for those that wait for them."""
    write_s: float = 10.0
    """Until a broker that does not read a message is given up."""
    answer_s: float = 10.0
    """Until one that does not answer is given up."""


class TooManySlowError(RegnumError):
    """A broker does not read, others wait for its bytes, and there are slow ones enough."""

    def __init__(self) -> None:
        super().__init__(
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
            "the broker reads slowly, and so do as many others as may at once; it is tried again",
        )


class ByteBudget:
    """Bytes that are lent, first come, first served, and places for slow ones. Belongs to the event loop."""

    def __init__(self, size: int = BYTES_IN_FLIGHT, *, slow: int = SLOW_BROKERS) -> None:
        """``slow``: deliveries that may be slow at once."""
        self._size: Final = size
        self._slow_max: Final = slow
        self._free = size
        self._slow = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.read = 0
        """Bytes of lent messages that brokers have read."""
        self.sent = 0
        """Bytes that streams have taken, all brokers together."""
        self.given_up = 0
        """Deliveries that ended because no place for a slow one was free."""

    @property
    def lent(self) -> int:
        """Bytes that are lent."""
        return self._size - self._free

    @property
    def slow(self) -> int:
        """Deliveries that have a place for slow ones."""
        return self._slow

    @contextmanager
    def delivery(self) -> Iterator["Delivery"]:
        """The messages of one change to one broker; whatever place it came to have is free afterwards."""
        made = Delivery(self)
        try:
            yield made
        finally:
            if made.is_slow:
                self._slow -= 1

    async def take(self, count: int) -> int:
        """Wait for so many bytes, at most all there are; how many they are."""
        count = min(count, self._size)
        if not self._waiting and count <= self._free:
            self._free -= count
            return count
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free += count
            self._serve()
            raise
        return count

    def give_back(self, count: int) -> None:
        """What ``take`` said."""
        self._free += count
        self._serve()

    def overtook(self, read_before: int) -> bool:
        """Whether as much as there is in all was read since; if not, all are slow, or this process was held up."""
        return self.read - read_before >= self._size

    def is_wanted(self) -> bool:
        """Whether somebody waits for bytes."""
        return any(not turn.done() for _, turn in self._waiting)

    def becomes_slow(self) -> bool:
        """Take a place for a slow delivery; False when none is free."""
        if self._slow >= self._slow_max:
            self.given_up += 1
            return False
        self._slow += 1
        return True

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


class Delivery:
    """One change on its way to one broker, message by message. Made by ``ByteBudget.delivery``."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget: Final = budget
        self._lent = 0
        """Bytes of the budget that the message under way has."""
        self._read_before = self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self.is_slow = False
        """Whether it has a place for slow ones, and needs no bytes of the budget."""

    @asynccontextmanager
    async def lend(self, count: int, *, for_s: float) -> AsyncIterator[None]:
        """Bytes of one message for as long as the block lasts, or until others wait for them after that time.

        Raises TooManySlowError, also within the block, when they are taken away and no place for a slow one is free.
        """
        if count <= SMALL_BYTES or self.is_slow:
            yield
            return
        self._lent = await self._budget.take(count)
        self._read_before, self._looks = self._budget.read, 0
        limit = asyncio.timeout(None)
        self._judge_after(for_s, limit)
        try:
            async with limit:
                yield
                self._budget.read += self._lent
        except TimeoutError as error:
            if limit.expired():
                raise TooManySlowError from error
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._give_back()

    def _judge_after(self, for_s: float, limit: asyncio.Timeout) -> None:
        self._timer = asyncio.get_running_loop().call_later(for_s, self._judge, for_s, limit)

    def _judge(self, for_s: float, limit: asyncio.Timeout) -> None:
        """The message has been under way for a while."""
        budget = self._budget
        wanted = budget.is_wanted()
        self._looks += wanted
        if not wanted or (self._looks < LOOKS_MAX and not budget.overtook(self._read_before)):
            self._judge_after(for_s, limit)
        elif budget.becomes_slow():
            self.is_slow = True
            self._give_back()
        else:
            limit.reschedule(asyncio.get_running_loop().time())

    def _give_back(self) -> None:
        lent, self._lent = self._lent, 0
        self._budget.give_back(lent)


async def deliver(
    stream: BrokerStream, parts: Iterable[bytes], budget: ByteBudget, patience: Patience
) -> control_pb2.UpdateMetadataResponse:
    """Send all messages of a change; the broker's answer. Raises RegnumError, and abandons the stream with it.

    Of an iterator nothing is kept once the last message is sent: brokers that owe an answer hold no payload.
    """
    answered = False
    try:
        await _send(stream, parts, budget, patience)
        del parts
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


async def _send(stream: BrokerStream, parts: Iterable[bytes], budget: ByteBudget, patience: Patience) -> None:
    with budget.delivery() as delivery:
        for part in parts:
            async with delivery.lend(len(part), for_s=patience.lend_s), asyncio.timeout(patience.write_s):
                await stream.send(part)
            budget.sent += len(part)
