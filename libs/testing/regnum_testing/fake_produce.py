"""Requests of a produce stream, each answered by what answers a call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from regnum.broker.v1 import log_pb2
from regnum_broker.servicers.produce_stream import Told
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call

Produce = Callable[[log_pb2.ProduceRequest], Awaitable[log_pb2.ProduceResponse]]
"""Answers a request."""


class _UnderWay:
    """One of them."""

    def __init__(self, task: asyncio.Task[None]) -> None:
        self._task: Final = task

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._task.cancel()


class OneByOne:
    """A task for each request; they begin in the order of the requests."""

    def __init__(self, produce: Produce) -> None:
        """Only assigns."""
        self._produce: Final = produce

    async def take(
        self,
        requests: Sequence[log_pb2.ProduceRequest],
        told: Told,
        *,
        call: Call,  # noqa: ARG002 - nobody pays
    ) -> dict[int, _UnderWay]:
        """As the handler of a broker does."""
        return {
            place: _UnderWay(asyncio.create_task(self._answer(place, request, told)))
            for place, request in enumerate(requests)
        }

    async def _answer(self, place: int, request: log_pb2.ProduceRequest, told: Told) -> None:
        try:
            told(place, await self._produce(request))
        except RegnumError as error:
            told(place, error)
