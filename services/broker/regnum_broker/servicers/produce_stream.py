"""ProduceStream: the requests of one producer, one after another on one call.

Goals: what a request costs is its records; whoever sends more than can be taken is not read.

Algorithm: what came in one message is handed on together, and in the order of the requests to the writer; answers go
out as they come about, all that there are in one message if the producer takes that. A request is under way until its
answer has been sent; while REQUESTS_MAX are, nothing more is read, and flow control holds the producer up, also one
that sends and never reads. A message for which there is no memory is thrown away at once and answered so; those behind
it may be taken. When the call ends, what waits for acknowledgements is given up, as with a call of its own; what was
appended stays.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from regnum.broker.v1 import log_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError
from regnum_service.gates import Messages
from regnum_service.limits.call import OWN, Call
from regnum_service.limits.held_bytes import HeldBytes, Purpose, refusal
from regnum_service.status import to_status

REQUESTS_MAX: Final = 64
"""Requests of one stream that are under way at once, give or take those that came in one message."""

TOGETHER_MAX: Final = 64
"""Requests, or answers, in one message."""

ANSWER_PARTITIONS_MAX: Final = 400
"""Partitions of the answers that go together: to encode a message is one turn (safety rule S22)."""

Outcome = Any
"""RegnumError, or an answer: a message, or what becomes one."""

Told = Callable[[int, Outcome], None]
"""Takes the answer to a request by its place among those that came together."""


class UnderWay(Protocol):
    """A request that is not answered yet."""

    def give_up(self) -> None:
        """Nobody waits for it any more."""


class Producing(Protocol):
    """Takes requests, each of which is what a call of its own would be."""

    async def take(
        self, requests: Sequence[log_pb2.ProduceRequest], told: Told, *, call: Call
    ) -> Mapping[int, UnderWay]:
        """Returns when there is room for more: those that are not answered yet, by place. Answers may come before."""


class Quota(Protocol):
    """What the stream's producer may send (``limits.throttling.WriteQuota``)."""

    def check(self, client_id: str, size_bytes: int) -> None:
        """Raises RegnumError where a message of that size may not be appended now."""

    def charge(self, client_id: str, size_bytes: int) -> float:
        """So much came; returns until when its producer is to wait."""

    def left_ms(self, until_s: float) -> int:
        """What is left of that, in milliseconds."""


class Unlimited:
    """No quota at all."""

    def check(self, _client_id: str, _size_bytes: int) -> None:
        """Everything may be."""

    def charge(self, _client_id: str, _size_bytes: int) -> float:
        """Nobody waits."""
        return 0.0

    def left_ms(self, _until_s: float) -> int:
        """Nothing."""
        return 0


async def _copy(message: log_pb2.ProduceResponse, response: Any) -> None:
    message.CopyFrom(response)


class ProduceStream:
    """One call of ProduceStream. Belongs to the event loop."""

    def __init__(
        self,
        producing: Producing,
        *,
        fill: Callable[[log_pb2.ProduceResponse, Any], Awaitable[None]] = _copy,
        held: HeldBytes | None = None,
        call: Call = OWN,
        quota: Quota | None = None,
    ) -> None:
        """Only assigns.

        Args:
            producing: takes the requests.
            fill: puts an answer into its message, in turns where it is long.
            held: where the bytes of requests are counted while they are under way; None: nowhere.
            call: whose they are.
            quota: what the producer may send; None: everything.
        """
        self._quota: Final = quota or Unlimited()
        self._producing: Final = producing
        self._fill: Final = fill
        self._held: Final = held
        self._call: Final = call
        self._count = 0
        self._under_way: Final[dict[int, UnderWay | None]] = {}
        """By a number that the stream gives: correlation ids are the producer's."""
        self._sizes: Final[dict[int, int]] = {}
        """Bytes that they hold."""
        self._until_s: Final[dict[int, float]] = {}
        """Until when their producer is to wait for each."""
        self._ended: Final[deque[tuple[int, Outcome]]] = deque()
        """Correlation ids, and what became of their requests."""
        self._inside = 0
        """Requests whose answers have not been sent."""
        self._room: Final = asyncio.Event()
        self._moved: Final = asyncio.Event()
        self._together = False

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
                    answer = await self._next_answer()
                    yield answer
                    self._inside -= 1 + len(answer.more)
                    self._room.set()
                if reading.done() and reading.exception() is not None:
                    break
                if self._under_way or not reading.done():
                    await self._moved.wait()
            await reading
        finally:
            reading.cancel()
            for number, request in tuple(self._under_way.items()):
                if request is not None:
                    request.give_up()
                self._forget(number)

    async def _next_answer(self) -> log_pb2.ProduceStreamResponse:
        name, outcome = self._ended.popleft()
        answer = log_pb2.ProduceStreamResponse(correlation_id=name, takes_more=True)
        await self._tell(answer, outcome)
        if self._together:
            partitions = _partitions_of(outcome)
            while self._ended and len(answer.more) < TOGETHER_MAX - 1:
                name, outcome = self._ended[0]
                partitions += _partitions_of(outcome)
                if partitions > ANSWER_PARTITIONS_MAX:
                    break
                self._ended.popleft()
                await self._tell(answer.more.add(correlation_id=name), outcome)
        return answer

    async def _tell(self, answer: log_pb2.ProduceStreamResponse, outcome: Outcome) -> None:
        if isinstance(outcome, RegnumError):
            answer.error.CopyFrom(to_status(outcome))
        else:
            answer.response.SetInParent()
            await self._fill(answer.response, outcome)

    async def _read(self, requests: AsyncIterator[log_pb2.ProduceStreamRequest]) -> None:
        coming = aiter(requests)
        while True:
            while self._inside >= REQUESTS_MAX:
                self._room.clear()
                await self._room.wait()
            try:
                message = await anext(coming)
            except StopAsyncIteration:
                return
            if len(message.more) >= TOGETHER_MAX:
                # A request costs two bytes, and an answer a kilobyte: so many are not even answered one by one.
                raise _too_many()
            # No name for it is left here: a stream at rest would keep what it brought last.
            taking = self._take(_requests_in(message), coming.size_bytes if isinstance(coming, Messages) else 0)
            del message
            await taking
            del taking

    async def _take(self, several: Sequence[log_pb2.ProduceStreamRequest], size_bytes: int) -> None:
        """Take what came in one message of so many bytes."""
        self._together = several[0].takes_more
        self._inside += len(several)
        names = [request.correlation_id for request in several]
        error = self._refusal(several, size_bytes)
        if error is not None:
            for name in names:
                self._end(name, error)
            return
        numbers = range(self._count, self._count + len(several))
        self._count += len(several)
        # What the message holds is divided among them; nobody asks who holds how much of it.
        each, rest = divmod(size_bytes, len(several))
        for place, number in enumerate(numbers):
            self._under_way[number], self._sizes[number] = None, each + (rest if place == 0 else 0)
            # Before it is appended: who hangs up meanwhile has sent it all the same.
            self._until_s[number] = self._quota.charge(several[place].request.header.client_id, self._sizes[number])

        def told(place: int, outcome: Outcome) -> None:
            if numbers[place] in self._under_way:
                if not isinstance(outcome, RegnumError):
                    throttle_ms = self._quota.left_ms(self._until_s[numbers[place]])
                    outcome.throttle_time_ms = max(outcome.throttle_time_ms, throttle_ms)
                self._forget(numbers[place])
                self._end(names[place], outcome)

        taking = self._producing.take([request.request for request in several], told, call=self._call)
        del several
        for place, request in (await taking).items():
            self._under_way[numbers[place]] = request

    def _refusal(self, several: Sequence[log_pb2.ProduceStreamRequest], size_bytes: int) -> RegnumError | None:
        if any(request.more for request in several[1:]):
            return _too_many()
        try:
            for client_id in {request.request.header.client_id for request in several}:
                self._quota.check(client_id, size_bytes)
        except RegnumError as error:
            return error
        if self._held is not None and not self._held.take(
            self._call.peer, size_bytes, Purpose.PRODUCE, principal=self._call.entity
        ):
            return refusal()
        return None

    def _forget(self, number: int) -> None:
        del self._under_way[number], self._until_s[number]
        size = self._sizes.pop(number)
        if self._held is not None:
            self._held.let_go(self._call.peer, size, Purpose.PRODUCE, principal=self._call.entity)

    def _end(self, name: int, outcome: Outcome) -> None:
        self._ended.append((name, outcome))
        self._moved.set()


def _partitions_of(outcome: Outcome) -> int:
    return 0 if isinstance(outcome, RegnumError) else len(outcome.results)


def _requests_in(message: log_pb2.ProduceStreamRequest) -> list[log_pb2.ProduceStreamRequest]:
    return [message, *message.more]


def _too_many() -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_INVALID_REQUEST,
        f"a message carries {TOGETHER_MAX} requests at most, and those in more carry none; nothing was appended",
    )
