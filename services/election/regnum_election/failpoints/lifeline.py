"""Lifelines, and attempts to connect, that a failpoint may be about."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, Protocol

from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum_model.contact import Contact
from regnum_model.nodes import Address
from regnum_service.detection import Probe
from regnum_service.failpoints.trigger import FailpointTrigger

_Requests = AsyncIterator[controller_pb2.BrokerLifelineRequest]
_Answers = AsyncGenerator[controller_pb2.BrokerLifelineResponse, None]


class TakesLifelines(Protocol):
    """Where lifelines end, but for what gRPC does."""

    def BrokerLifeline(self, request_iterator: _Requests, context: object) -> _Answers:  # noqa: N802 - gRPC's name
        """One broker's lifeline."""


class FailpointLifelines(controller_pb2_grpc.LifelineServiceServicer):
    """Between gRPC and the lifelines: a message, or the end of the stream, is taken up when the failpoint lets it."""

    def __init__(self, lifelines: TakesLifelines, trigger: FailpointTrigger) -> None:
        """Only assigns."""
        self._lifelines: Final = lifelines
        self._trigger: Final = trigger

    async def BrokerLifeline(  # noqa: N802 - the name in the proto
        self, request_iterator: _Requests, context: object
    ) -> _Answers:
        """See Lifelines."""
        heard: _Heard = asyncio.Queue()
        answers = self._lifelines.BrokerLifeline(_all_of(heard), context)
        hearing = asyncio.create_task(self._hear(request_iterator, heard), name="failpoint: lifeline")
        answering: asyncio.Task[controller_pb2.BrokerLifelineResponse | None] | None = None
        try:
            while True:
                # A task of its own: when the connection breaks, gRPC cancels this one, and the lifelines hear it later.
                answering = asyncio.create_task(anext(answers, None), name="failpoint: lifeline's answer")
                answer = await asyncio.shield(answering)
                if answer is None:
                    return
                yield answer
        finally:
            hearing.cancel()
            await self._trigger.reach("lifeline")
            if answering is not None:
                answering.cancel()
            await asyncio.gather(hearing, *(() if answering is None else (answering,)), return_exceptions=True)
            await answers.aclose()

    async def _hear(self, requests: _Requests, heard: "_Heard") -> None:
        async for request in requests:
            self._take_in(request, heard)
        self._take_in(None, heard)

    def _take_in(self, request: controller_pb2.BrokerLifelineRequest | None, heard: "_Heard") -> None:
        # Each is late by as much, however many are on their way.
        heard.put_nowait((asyncio.create_task(self._trigger.reach("lifeline")), request))


_Heard = asyncio.Queue[tuple[asyncio.Task[None], controller_pb2.BrokerLifelineRequest | None]]
"""What came, and what it waits for; None: the end."""


async def _all_of(heard: _Heard) -> _Requests:
    while True:
        due, request = await heard.get()
        await due
        if request is None:
            return
        yield request


def failpoint_probe(probe: Probe, trigger: FailpointTrigger) -> Probe:
    """Attempts to connect like those, made when the failpoint lets them."""

    async def knock(address: Address) -> Contact:
        await trigger.reach("knock")
        return await probe(address)

    return knock
