"""What clients ask of the log, within their quotas and their memory: the same for every door.

A door makes plain values of what came, and what it sends of the answers; it is the only one that knows its protocol.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import closing
from typing import Final, Protocol

from regnum_service.deadlines import waitable_of
from regnum_service.errors import RegnumError
from regnum_service.limits.budget import Budget
from regnum_service.limits.call import OWN, Call
from regnum_service.limits.held_bytes import Purpose
from regnum_service.slices import slices

from regnum_broker.limits.throttling import Throttling
from regnum_broker.serving.fetching.admission import asked_once, check_count
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.offsets import OffsetLookup, OffsetsHandler
from regnum_broker.serving.fetching.requests import (
    Content,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetResult,
)
from regnum_broker.serving.produce import ProduceHandler, Told
from regnum_broker.serving.produce_requests import ProduceRequest, ProduceResponse

SLICE: Final = 500
"""Partitions answered between two turns of the event loop (safety rule S22)."""


class UnderWay(Protocol):
    """A request that is not answered yet."""

    def give_up(self) -> None:
        """The call is over: its answer is dropped."""


class LogCalls:
    """Of one broker. Belongs to its event loop."""

    def __init__(
        self,
        *,
        producing: ProduceHandler,
        fetching: FetchHandler,
        offsets: OffsetsHandler,
        budget: Budget,
        throttling: Throttling,
    ) -> None:
        """Only assigns.

        Args:
            producing: appends.
            fetching: reads.
            offsets: answers questions about offsets.
            budget: pays for what calls hold and unpack, and is told of answers that are on their way.
            throttling: what clients send and read is measured there.
        """
        self._producing: Final = producing
        self._fetching: Final = fetching
        self._offsets: Final = offsets
        self._budget: Final = budget
        self._throttling: Final = throttling

    @property
    def measures_writes(self) -> bool:
        """Whether the size of a produce request is to be known: to find it out may take as long as to copy it."""
        return self._throttling.writing(OWN).is_on

    def _waitable_s(self, call: Call) -> float:
        return waitable_of(call.left_s(self._throttling.clock.monotonic()))

    async def produce(self, request: ProduceRequest, call: Call) -> ProduceResponse:
        """Append.

        Raises:
            RegnumError: the request contradicts itself, or a quota keeps it out.
        """
        quota = self._throttling.writing(call)
        quota.check(request.client_id, request.size_bytes)
        # Before it is appended: who hangs up meanwhile has sent it all the same.
        until_s = quota.charge(request.client_id, request.size_bytes)
        response = await self._producing.produce(request, waitable_s=self._waitable_s(call), call=call)
        response.throttle_time_ms = quota.left_ms(until_s)
        return response

    async def take(self, requests: Sequence[ProduceRequest], told: Told, *, call: Call) -> Mapping[int, UnderWay]:
        """Append what came together, each request as if it were a call of its own: all, or none.

        Returns those that are not answered yet, by place, once all are on their way to the writer.

        Raises:
            RegnumError: a quota keeps them out; nothing was appended.
        """
        quota = self._throttling.writing(call)
        size_bytes = sum(request.size_bytes for request in requests)
        for client_id in {request.client_id for request in requests}:
            quota.check(client_id, size_bytes)
        until_s = [quota.charge(request.client_id, request.size_bytes) for request in requests]

        def told_how_long(place: int, outcome: ProduceResponse | RegnumError) -> None:
            if not isinstance(outcome, RegnumError):
                outcome.throttle_time_ms = quota.left_ms(until_s[place])
            told(place, outcome)

        return await self._producing.take(requests, told_how_long, call=call)

    async def fetch(self, request: FetchRequest, call: Call) -> FetchResponse:
        """Read.

        Raises:
            RegnumError: the request contradicts itself, or there is no memory for the answer.
        """
        holding = self._budget.holding(call, Purpose.FETCH)
        # Until the answer has left, and not only until it is there.
        call.at_end(holding.close)
        quota = self._throttling.reading(call)
        response = await self._fetching.fetch(request, waitable_s=self._waitable_s(call), holding=holding, quota=quota)
        response.throttle_time_ms = quota.answered(holding.sent)
        call.at_end(self._budget.unread.begin(call.peer, holding.size).close)
        return response

    async def consume(
        self, asked: FetchPartition, call: Call, *, form: int, make_content: Callable[[], Content]
    ) -> AsyncGenerator[FetchResult, None]:
        """The records of one partition from an offset on, as they are committed (``FetchHandler.consume``)."""
        quota, waitable_s = self._throttling.reading(call), self._waitable_s(call)
        with closing(self._budget.holding(call, Purpose.FETCH)) as holding:
            results = self._fetching.consume(
                asked, form=form, make_content=make_content, waitable_s=waitable_s, holding=holding, quota=quota
            )
            async for result in results:
                quota.charge(holding.sent)
                with self._budget.unread.sending(call.peer, holding.size):
                    yield result
                # A stream that waits for its quota keeps nothing meanwhile.
                del result

    async def list_offsets(self, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
        """Offsets of the beginning, the end, and of times.

        Raises:
            RegnumError: there are too many queries, or the same twice, or there is no memory for a batch.
        """
        check_count(len(request.queries))
        results: list[OffsetResult] = []
        lookups: dict[tuple[str, int, int], OffsetLookup] = {}
        async for queries in slices(request.queries, SLICE):
            for query, answer in zip(queries, map(self._offsets.list_offsets, queries), strict=True):
                if isinstance(answer, OffsetLookup):
                    lookups[asked_once(query, answer.wanted_ms, lookups)] = answer
                results.append(answer.result if isinstance(answer, OffsetLookup) else answer)
        with closing(self._budget.holding(call, Purpose.UNPACKED)) as holding:
            await self._offsets.look_up(tuple(lookups.values()), holding)
        return ListOffsetsResponse(results)

    async def ends_of_epochs(self, request: OffsetForLeaderEpochRequest, _call: Call) -> OffsetForLeaderEpochResponse:
        """Where leader epochs end. Raises RegnumError: there are too many queries."""
        check_count(len(request.queries))
        response = OffsetForLeaderEpochResponse([])
        async for queries in slices(request.queries, SLICE):
            response.results.extend(map(self._offsets.end_of_epoch, queries))
        return response
