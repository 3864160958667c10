"""Answers of a listener: paid for before they are made, and until they were sent.

Goals: clients that ask and do not read take no more memory than the budget has; what is refused for want of memory was
not done; a client that reads notices nothing.

Algorithm: as a request is there, REQUEST_WEIGHT times its size (RESERVED_BYTES_MAX at most) is reserved: answers that
repeat what was asked for, item by item and perhaps with an error each, take about that, and so a call that is refused
has changed nothing. Handlers whose answers grow by what the cluster has say so as they make them (``making``, which
``Encoding`` does for each piece), and are refused in the middle: they only read, or did already what a repeat asks for
and answer that alike. What the answer takes in the end is held until it has left, whatever the account says: it exists.
What a stream says waits for memory, one message at a time. Less than SMALL_BYTES is not counted, and nothing is
reserved for a request of less than a kilobyte: a connection has a hundred calls, and what keeps a member in its group
is not refused.

Connections that do not take their answers are cut off where others lack memory (``unread_answers``).
"""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

from google.protobuf.message import Message

from regnum_service.limits.budget import Budget
from regnum_service.limits.call import Call
from regnum_service.limits.held_bytes import Holding, Purpose
from regnum_service.request_sizes import RECORDS

SMALL_BYTES: Final = 4 * 1024
"""A smaller answer is not counted."""
REQUEST_WEIGHT: Final = 64
"""So many times its request is reserved for an answer: an item of four bytes may become an error of 256."""
RESERVED_BYTES_MIN: Final = 64 * 1024
"""Less is not reserved."""
RESERVED_BYTES_MAX: Final = 4 * 1024 * 1024
"""What is reserved for the largest request: ten thousand items, the most of any, with an error each."""
ITEM_BYTES: Final = 256
"""Is reserved for each partition of a request with records, whose size says nothing."""


def _size(answer: Any) -> int:
    if isinstance(answer, Message):
        return answer.ByteSize()
    return len(answer) if isinstance(answer, bytes) else sum(map(len, answer)) if isinstance(answer, list) else 0


class Answer:
    """The answer, or answers, to one call. Belongs to the event loop."""

    __slots__ = ("_answers", "_call", "_holding", "_made", "_method", "lacked")

    def __init__(self, answers: "Answers", method: str, call: Call) -> None:
        """Only assigns."""
        self._answers: Final = answers
        self._method: Final = method
        self._call: Final = call
        self._holding: Holding | None = None
        self._made = 0
        self.lacked = 0
        """Bytes for which there was no room when it was refused last, or one before it to the same call."""

    def reserve(self) -> None:
        """Hold what was lacked, if there was: it is about to be made anew. Raises RegnumError: it is lacked still."""
        if self.lacked:
            self._hold(self.lacked)

    def asked(self, request: Any, size_bytes: int) -> None:
        """The request is there. Raises RegnumError where there is no memory for an answer; nothing was done."""
        if self._method in RECORDS:
            expected = ITEM_BYTES * len(request.partitions)
        else:
            expected = min(REQUEST_WEIGHT * size_bytes, RESERVED_BYTES_MAX)
        if expected >= RESERVED_BYTES_MIN and expected > self._held().size:
            self._hold(expected)

    def grow(self, size_bytes: int) -> None:
        """So many bytes more are about to be made. Raises RegnumError where there is no memory for them."""
        self._made += size_bytes
        if self._made <= SMALL_BYTES:
            return
        if self._made > self._held().size:
            self._hold(self._made)

    def made(self, answer: Any) -> None:
        """The one answer, a message or its bytes, begins to be sent; what it takes is held until it was."""
        size = _size(answer)
        if size > SMALL_BYTES:
            self._held().become(size)
            sending = self._answers.budget.unread.begin(self._call.peer, size)
            self._call.at_end(sending.close)
        elif self._holding is not None:
            self._holding.become(0)

    @asynccontextmanager
    async def sending(self, answer: Any) -> AsyncIterator[None]:
        """While one of many is sent; begins when there is memory for it."""
        size = _size(answer)
        if size <= SMALL_BYTES:
            yield
            return
        holding = self._held()
        holding.become(0)
        await holding.wait_for(size)
        try:
            with self._answers.budget.unread.sending(self._call.peer, size):
                yield
        finally:
            self._made = 0
            holding.become(0)

    def _hold(self, size_bytes: int) -> None:
        """Hold that much, as one thing of that size: alone it gets in however large it is. Raises RegnumError."""
        holding = self._held()
        holding.become(0)
        self.lacked = size_bytes
        holding.grant(size_bytes, size_bytes)
        self.lacked = 0

    def _held(self) -> Holding:
        if self._holding is None:
            self._holding = holding = self._answers.budget.holding(self._call, Purpose.CONTROL)
            # Until the answer has left, and not only until it is there.
            self._call.at_end(holding.close)
        return self._holding


class Answers:
    """Those of the clients of one process."""

    def __init__(self, budget: Budget, *, counted_elsewhere: Collection[str] = ()) -> None:
        """Only assigns.

        Args:
            budget: pays for them.
            counted_elsewhere: methods whose handlers count what they answer.
        """
        self.budget: Final = budget
        """Pays for them."""
        self._counted_elsewhere: Final = frozenset(counted_elsewhere)

    def begin(self, method: str, call: Call) -> Answer | None:
        """A call came in; what runs for it from now on says what it makes by ``making``. None: its handler counts."""
        answer = None if method in self._counted_elsewhere else Answer(self, method, call)
        _MAKING.set(answer)
        return answer


_MAKING: Final[ContextVar[Answer | None]] = ContextVar("answer", default=None)


def making(size_bytes: int) -> None:
    """The answer to the present call gets so many bytes larger, before it does.

    For calls that change nothing, or whose repeat is answered alike.

    Raises:
        RegnumError: there is no memory for it.
    """
    answer = _MAKING.get()
    if answer is not None:
        answer.grow(size_bytes)
