"""Passes calls on to the controller, wherever it is, until one is answered or its time is over (KIP-590).

Goals: a client is answered as if it had asked the controller; a change is made once, however often its call had to be
sent; a controller that is gone, frozen, or not yet elected costs the time until the next one is there, and no more.

Algorithm: calls go under way as ``lines`` says. One that is under way is sent to where the controller was last seen.
When it could not be delivered, or was answered NOT_CONTROLLER, it is sent again every 100 ms, as in Kafka, and at once
when the controller is seen elsewhere. Each carries a mutation id of its own, the same in every repeat; what has no room
for one is sent only over a connection that stands, and a second time only where the first is known to have done nothing
(safety rule S20). An answer to another call is none.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Final, TypeVar

import grpc
import structlog
from regnum.election.v1 import controller_pb2, controller_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_model.principals import NOBODY
from regnum_service import addressee
from regnum_service.channel import Channels
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error, from_status
from regnum_telemetry import tracing
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.cluster.controller import ControllerLocation
from regnum_broker.forwarding.lines import LineFullError, LineLimits, Lines, Ticket
from regnum_broker.forwarding.verdicts import Verdict, of_call, of_envelope

T = TypeVar("T")

RETRY_S: Final = 0.1
"""Pause before a call is sent again."""

FULL_RETRY_MS: Final = 200
"""When whoever was refused for want of room tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOn:
    """A call to pass on."""

    method: str
    """Its path."""
    request: bytes
    """As the client sent it."""
    caller: controller_pb2.OriginalCaller
    """The client."""
    mutation_id: str
    """The same in every repeat; at most 48 characters."""
    repeatable: bool
    """Whether a second envelope would not be carried out again."""


class Forwarder:
    """Of one broker. Belongs to its event loop."""

    def __init__(
        self,
        *,
        locate: Callable[[], ControllerLocation | None],
        channels: Channels,
        clock: Clock,
        limits: LineLimits | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Only assigns.

        Args:
            locate: where the controller was last seen; None: nowhere yet.
            channels: to controllers, for nobody else.
            clock: source of time.
            limits: how much may wait.
            metrics: where it is counted.
        """
        self._locate: Final = locate
        self._channels: Final = channels
        self._clock: Final = clock
        self._lines: Final = Lines(limits or LineLimits())
        self._turns: Final[dict[Ticket, asyncio.Future[None]]] = {}
        self._moved = asyncio.Event()
        self._in_use: Final[Counter[ControllerLocation]] = Counter()
        self._correlation: Final = itertools.count(1)
        self._log: Final = structlog.get_logger("forwarding")
        counted = metrics or Metrics()
        counted.observe(instruments.FORWARDING_CALLS, lambda: self._lines.calls)
        counted.observe(instruments.FORWARDING_BYTES, lambda: self._lines.bytes)
        self._queue_time: Final = counted.histogram(instruments.FORWARDING_QUEUE_TIME)
        self._remote_time: Final = counted.histogram(instruments.FORWARDING_REMOTE_TIME)
        self._repeats: Final = counted.counter(instruments.FORWARDING_REPEATS)

    @property
    def calls(self) -> int:
        """Calls that wait or are under way. Any thread."""
        return self._lines.calls

    def moved(self) -> None:
        """The controller was seen elsewhere: what waits for the one before it need not."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def forward(self, call: PassedOn, *, connection: str, wait_s: float) -> controller_pb2.EnvelopeResponse:
        """The controller's answer.

        Args:
            call: what to pass on.
            connection: of the client: its principals take turns, and connections of each.
            wait_s: how long its client waits.

        Raises:
            RegnumError: what the client is to be told instead.
        """
        began_s = self._clock.monotonic()
        try:
            ticket = self._lines.enter(connection, len(call.request), principal=_principal_of(call.caller))
        except LineFullError as error:
            raise RegnumError(
                errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
                f"{error}; nothing was done: send it again, or ask the controller itself",
                retry_after_ms=FULL_RETRY_MS,
            ) from error
        turn = self._turns[ticket] = asyncio.get_running_loop().create_future()
        try:
            self._admit()
            async with asyncio.timeout(wait_s):
                await turn
                self._queue_time.record(self._clock.monotonic() - began_s)
                return await self._deliver(call, began_s + wait_s)
        except TimeoutError as error:
            raise RegnumError(
                errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                "no controller answered in time; whether it was done is unknown, so look before repeating it",
            ) from error
        finally:
            del self._turns[ticket]
            self._lines.leave(ticket)
            self._admit()

    def _admit(self) -> None:
        for ticket in self._lines.admit():
            turn = self._turns[ticket]
            if not turn.done():
                turn.set_result(None)

    async def _deliver(self, call: PassedOn, deadline_s: float) -> controller_pb2.EnvelopeResponse:
        while True:
            moved = self._moved
            location = self._locate()
            if location is not None:
                answer = await self._attempt(call, location, deadline_s, moved)
                if answer is not None:
                    return answer
                self._repeats.add()
            if moved.is_set():
                continue
            await _ended_first(asyncio.ensure_future(moved.wait()), self._clock.sleep(RETRY_S))

    async def _attempt(
        self, call: PassedOn, location: ControllerLocation, deadline_s: float, moved: asyncio.Event
    ) -> controller_pb2.EnvelopeResponse | None:
        """Send it once; None: it has to be sent again."""
        envelope = controller_pb2.EnvelopeRequest(
            method=call.method,
            request=call.request,
            caller=call.caller,
            correlation_id=next(self._correlation),
            mutation_id=call.mutation_id,
        )
        began_s = self._clock.monotonic()
        self._in_use[location] += 1
        try:
            channel = self._channels.get(location.internal, addressee.election(location.election_id))
            if not call.repeatable:
                standing = asyncio.ensure_future(channel.channel_ready())
                if not await _ended_first(standing, moved.wait()):
                    return None
            stub: controller_pb2_grpc.ControllerServiceAsyncStub = controller_pb2_grpc.ControllerServiceStub(channel)
            sending = asyncio.ensure_future(_answer(stub.Envelope(envelope, timeout=max(deadline_s - began_s, 0.0))))
            if call.repeatable and not await _ended_first(sending, moved.wait()):
                return None
            answer: controller_pb2.EnvelopeResponse = await sending
        except grpc.RpcError as error:
            self._judge(call, from_rpc_error(error))
            return None
        finally:
            await self._used(location)
        self._remote_time.record(self._clock.monotonic() - began_s)
        if answer.refused:
            tracing.refuse()
        return self._read(call, envelope.correlation_id, answer)

    async def _used(self, used: ControllerLocation) -> None:
        """Hang up where no controller is any more and nobody waits for one."""
        self._in_use[used] -= 1
        if self._in_use[used]:
            return
        del self._in_use[used]
        if self._locate() != used:
            await self._channels.drop(used.internal, addressee.election(used.election_id))

    def _judge(self, call: PassedOn, error: RegnumError) -> None:
        """Raise what the client is told, unless the call is to be sent again."""
        match of_envelope(error.code, repeatable=call.repeatable):
            case Verdict.AGAIN:
                return
            case Verdict.TELL:
                raise error
            case Verdict.HIDE:
                self._log.error(
                    "the controller refused what this broker passed on; its client was told UNKNOWN_SERVER_ERROR",
                    method=call.method,
                    reason=repr(error),
                    advice="give the broker's principal the right to CLUSTER_ACTION on the cluster, have"
                    " process-role-mapping-rules say broker of its certificate, and check that brokers and election"
                    " processes are of releases that go together",
                )
                raise _unexpected() from error

    def _read(
        self, call: PassedOn, correlation_id: int, answer: controller_pb2.EnvelopeResponse
    ) -> controller_pb2.EnvelopeResponse | None:
        if answer.correlation_id != correlation_id:
            self._log.error(
                "the controller answered another call than the one it was asked; its client was told"
                " UNKNOWN_SERVER_ERROR",
                method=call.method,
                sent=correlation_id,
                answered=answer.correlation_id,
            )
            raise _unexpected()
        if not answer.HasField("status"):
            return answer
        refused = from_status(answer.status)
        if refused is None:
            self._log.error("the controller's refusal cannot be read", method=call.method, status=str(answer.status))
            raise _unexpected()
        if of_call(refused.code) is Verdict.AGAIN:
            return None
        raise refused


def _principal_of(who: controller_pb2.OriginalCaller) -> str:
    """Whose turn it is; who says nothing of itself is somebody else at each address."""
    name = f"{who.principal_type}:{who.principal_name}"
    return f"{name} {who.client_host}" if name == str(NOBODY) else name


async def _ended_first(wanted: asyncio.Future[T], other: Coroutine[object, object, object]) -> bool:
    """Whether ``wanted`` has ended, however it did, when one of the two has; what has not is given up."""
    beside = asyncio.ensure_future(other)
    try:
        await asyncio.wait((wanted, beside), return_when=asyncio.FIRST_COMPLETED)
        return wanted.done()
    finally:
        beside.cancel()
        if not wanted.done():
            wanted.cancel()


async def _answer(sending: Awaitable[T]) -> T:
    return await sending


def _unexpected() -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR, "the call could not be passed on; see the broker's log"
    )
