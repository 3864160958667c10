"""Produce requests of one connection that were read together: handed to the writer together, answered one by one.

Goals: what a client has sent ahead costs one hand-over to the writer, one answer of a leader to each follower and one
write to the socket, and not one for each request; batches are appended, and requests answered, in the order in which
they came.

Algorithm: a connection that is free takes the whole Produce requests that have come meanwhile, of ITEMS_AT_ONCE items
together at most (a larger one is answered by itself); what comes behind them waits for the next time. They pass the
gates once, as the requests of one message of a produce stream do, and are taken all or none: what a quota refuses is
taken later, and nothing of the connection overtakes it. An answer is there once its own request has come about.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Final, Protocol

from regnum_kafka_wire.apis import PRODUCE, Buffers
from regnum_kafka_wire.gen.produce_request import ProduceRequest
from regnum_kafka_wire.gen.produce_response import ProduceResponse
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError, reason_of
from regnum_service.limits.call import Call

from regnum_broker.kafka.context import Context
from regnum_broker.kafka.data import Data, ToProduce
from regnum_broker.kafka.refusals import Again, Attempts, is_waited_for, told
from regnum_broker.serving import produce_requests as requests

TOGETHER_MAX: Final = 64
"""Requests that are taken together, as in one message of a produce stream."""
ITEMS_AT_ONCE: Final = 1_000
"""Elements that a message, or messages, may have to be read or written on the event loop, two milliseconds at most. A
larger one is read and written on the thread that works for callers, in turns of them: 25,000 take 60 ms (safety rule
S22)."""

Outcome = requests.ProduceResponse | RegnumError
Told = Callable[[int, Outcome], None]
"""Takes what became of a request, by its place among those that came together."""


class UnderWay(Protocol):
    """A request that is not answered yet."""

    def give_up(self) -> None:
        """Its answer is not waited for any more."""


class Taking(Protocol):
    """Appends (``serving.calls.log.LogCalls``)."""

    async def take(
        self, requests: Sequence[requests.ProduceRequest], told: Told, *, call: Call
    ) -> Mapping[int, UnderWay]:
        """Take all of them, or raise RegnumError and none; returns those that are not answered yet, by place."""


Rendered = Callable[[Context, ProduceResponse | None, str], Buffers | None]
"""Makes the frame of an answer (None: of none), and counts its call by the name of its error."""


class Together:
    """Some requests until they are answered. Belongs to the event loop; closed by its connection."""

    def __init__(self, *, data: Data, render: Rendered) -> None:
        """Only assigns.

        Args:
            data: translates.
            render: makes frames.
        """
        self._data: Final = data
        self._render: Final = render
        self._asked: Final[list[tuple[ProduceRequest, Context]]] = []
        self._to_produce: Final[dict[int, ToProduce]] = {}
        self._under_way: Mapping[int, UnderWay] = {}
        self.answers: Final[list[asyncio.Future[Buffers | Code | None]]] = []
        """Frames, in the order of the requests; None: its producer waits for none. An error: likewise, and it is told
        by the end of its connection (``refusals.unheard``)."""
        self.items = 0
        """Partitions of all."""
        self.leaving: Final = ExitStack()
        """Done when they have ended."""

    async def add(self, request: ProduceRequest, context: Context) -> None:
        """One more, behind those before."""
        place = len(self.answers)
        self.items += sum(len(topic.partition_data) for topic in request.topic_data)
        self._asked.append((request, context))
        self.answers.append(asyncio.get_running_loop().create_future())
        try:
            to_produce = self._to_produce[place] = await self._data.to_produce(request, context)
        except RegnumError as error:
            self._answer(place, error)
            return
        if not to_produce.places:
            self._answer(place, requests.ProduceResponse())

    async def take(self, log: Taking, clock: Clock) -> None:
        """Have them appended; returns when they are on their way to the writer, or refused since they waited long."""
        places = [place for place, answer in enumerate(self.answers) if not answer.done()]
        attempts = Attempts(clock)
        while places:
            try:
                self._under_way = await log.take(
                    [self._to_produce[place].request for place in places],
                    lambda index, outcome: self._answer(places[index], outcome),
                    call=self._asked[0][1].call,
                )
            except RegnumError as error:
                if not is_waited_for(error.code):
                    raise
                if attempts.is_last:
                    for place in places:
                        self._answer(place, error)
                    return
                again = Again.of(error)
            else:
                return
            await attempts.pause(again)

    def _answer(self, place: int, outcome: Outcome) -> None:
        answer, (request, context) = self.answers[place], self._asked[place]
        if answer.done():
            return
        response: ProduceResponse | None
        try:
            if isinstance(outcome, RegnumError):
                code = told(PRODUCE, outcome.code)
                response, reason = self._data.no_produce(request, context, code), reason_of(outcome.code)
            else:
                response, reason = self._data.produced(self._to_produce.pop(place), outcome, context), "NONE"
        except RegnumError as unheard:
            self._render(context, None, reason_of(unheard.code))
            # (Its code alone: the error has this frame, which has its future.)
            answer.set_result(unheard.code)
        else:
            answer.set_result(self._render(context, response, reason))

    def close(self) -> None:
        """Give up what is not answered yet. What was appended stays."""
        for request in self._under_way.values():
            request.give_up()
        for answer in self.answers:
            answer.cancel()
        self.leaving.close()
