"""Delivery to one incarnation of one broker: one change in flight, repeated until acknowledged.

A lane that begins asks the broker for its version, since another process may have served it until now (safety rule
S17), and so does one whose broker did not answer: a broker that does not even read a few bytes is sent nothing large.
From then on it sends what joins on, as ``intervals`` says, and never holds up another broker.

What a broker says of itself is believed for itself only: a nonsense version costs it its own metadata, and a later
controller that it claims to know is looked for in the store.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.configs import MAX_BROKER_EPOCH
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch
from regnum_model.nodes import Address
from regnum_model.picture_line import NO_PICTURE, PictureVersion
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of

from regnum_metadata.delivery import BrokerStream, ByteBudget, Patience, TooManySlowError, deliver
from regnum_metadata.payload import About, Payload, for_one_broker

RETRY_INTERVAL_S: Final = 0.1
"""Pause after the first failure in a row; it doubles with each."""

RETRY_INTERVAL_S_MAX: Final = 1.0
"""Longest such pause."""

SLOW_RETRY_INTERVAL_S_MAX: Final = 5.0
"""Longest pause of a broker for which there was no place among the slow ones: each try costs the others its bytes."""

FULL_RETRY_INTERVAL_S_MAX: Final = 30.0
"""Longest pause after full pictures that changed nothing."""

HURRIED_RETRIES: Final = 3
"""Failures in a row after which news do not shorten a pause any more."""


class Source(Protocol):
    """Where a lane gets what it sends, and whom it tells."""

    @property
    def head(self) -> PictureVersion:
        """Version of what is sent now."""

    @property
    def inter_broker_protocol(self) -> int:
        """How processes of the cluster talk to one another."""

    def refused_as_stale(self) -> None:
        """A broker refused what was made for an earlier life of its own."""

    def question(self) -> Payload:
        """Changes nothing; the answer says the broker's version."""

    async def next_for(self, receiver: "Receiver", position: PictureVersion) -> Payload | None:
        """What a broker needs next that has this version; None when it has everything."""

    async def seen(self, epoch: ControllerEpoch) -> None:
        """A broker claims to know a later controller epoch."""

    async def progressed(self) -> None:
        """A broker acknowledged something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """One incarnation of one broker."""

    id: BrokerId
    epoch: BrokerEpoch
    internal: Address
    """Where it takes metadata."""


class BrokerLane:
    """One broker. Belongs to the event loop; ``run`` is its one task."""

    def __init__(
        self,
        receiver: Receiver,
        *,
        source: Source,
        open_stream: Callable[[Receiver], BrokerStream],
        budget: ByteBudget,
        patience: Patience,
        clock: Clock,
    ) -> None:
        self.receiver: Final = receiver
        self._source = source
        self._stream = open_stream(receiver)
        self._budget = budget
        self._patience = patience
        self._clock = clock
        self._wake = asyncio.Event()
        self._position: PictureVersion | None = None
        self._behind_since_s: float | None = None
        self._failures = 0
        self._tried_under = ControllerEpoch(0)
        self._log = structlog.get_logger("propagation").bind(broker=receiver.id, broker_epoch=receiver.epoch)

    @property
    def acknowledged(self) -> int:
        """Version that the broker acknowledged under the present controller epoch; 0 for none."""
        return self._said.number if self._said.epoch == self._source.head.epoch else 0

    @property
    def _said(self) -> PictureVersion:
        return NO_PICTURE if self._position is None else self._position

    @property
    def behind_ms(self) -> int:
        """For how long the broker has not had the present version; 0 when it has it."""
        if self._behind_since_s is None or self.acknowledged >= self._source.head.number:
            return 0
        return max(round((self._clock.monotonic() - self._behind_since_s) * 1000), 1)

    def wake(self) -> None:
        """There is a new version."""
        if self._behind_since_s is None:
            self._behind_since_s = self._clock.monotonic()
        self._wake.set()

    async def run(self) -> None:
        """Deliver for ever; ends by being cancelled."""
        try:
            while True:
                self._wake.clear()
                if not await self._send():
                    if self.acknowledged >= self._source.head.number:
                        self._behind_since_s = None
                    await self._wake.wait()
        finally:
            await self._stream.close()

    async def _send(self) -> bool:
        """What the broker needs next; whether there was something."""
        if self._position is None:
            payload: Payload | None = self._source.question()
        else:
            payload = await self._source.next_for(self.receiver, self._position)
        if payload is None:
            return False
        self._tried_under = payload.controller_epoch
        about, parts = payload.about, iter(self._worded(payload))
        # The bytes are kept until the last is sent, and not by whoever waits for an answer.
        del payload
        try:
            response = await deliver(self._stream, parts, self._budget, self._patience)
        except RegnumError as error:
            code, message = error.code, error.message
            longest_s = SLOW_RETRY_INTERVAL_S_MAX if isinstance(error, TooManySlowError) else RETRY_INTERVAL_S_MAX
        else:
            await self._heard(about, response)
            return True
        del parts
        # Whether it arrived is unknown, and whether anybody reads: that is asked first.
        self._unknown()
        await self._pause(reason_of(code), message, longest_s=longest_s)
        return True

    async def _heard(self, about: About, response: control_pb2.UpdateMetadataResponse) -> None:
        match response.error_code:
            case errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH:
                await self._source.seen(ControllerEpoch(response.controller_epoch))
                await self._pause("STALE_CONTROLLER_EPOCH", "the broker obeys a later controller")
            case errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH:
                self._source.refused_as_stale()
                await self._pause("STALE_BROKER_EPOCH", "the broker has registered anew; the controller will say so")
            case _:
                await self._answered(about, response)

    def _worded(self, payload: Payload) -> Sequence[bytes]:
        """Its messages, in the words of ``inter.broker.protocol.version`` as it is now."""
        if self._source.inter_broker_protocol >= MAX_BROKER_EPOCH:
            return payload.parts
        return for_one_broker(payload.parts, self.receiver.epoch)

    def _unknown(self) -> None:
        self._position = None

    async def _answered(self, about: About, response: control_pb2.UpdateMetadataResponse) -> None:
        before = self._position
        position = PictureVersion(ControllerEpoch(response.version_epoch), response.version)
        self._position = position
        arrived = position.epoch == about.to.epoch and position.number >= about.to.number
        if before is not None and not arrived and (position <= before or about.is_full):
            reason = f"at version {position.number} of epoch {position.epoch}, not {about.to.number}"
            await self._pause(reason_of(response.error_code), reason, longest_s=_longest_s(is_full=about.is_full))
            return
        if self._failures and (before is not None or arrived):
            # Who answers questions may still not read what is large.
            self._log.info("broker answers again", failures=self._failures, version=position.number)
            self._failures = 0
        await self._source.progressed()

    async def _pause(self, reason: str, message: str, *, longest_s: float = RETRY_INTERVAL_S_MAX) -> None:
        """Until there is news, or for a while; for a while in any case once it has failed often."""
        self._failures += 1
        if self._failures == 1:
            self._log.warning("metadata not taken, trying again", reason=reason, message=message)
        pause_s = min(RETRY_INTERVAL_S * 2 ** min(self._failures - 1, 9), longest_s)
        timer = asyncio.ensure_future(self._clock.sleep(pause_s))
        waker = asyncio.ensure_future(self._wake.wait())
        try:
            while True:
                await asyncio.wait([waker, timer], return_when=asyncio.FIRST_COMPLETED)
                if timer.done() or self._failures <= HURRIED_RETRIES:
                    return
                if self._source.head.epoch != self._tried_under:
                    return
                self._wake.clear()
                waker = asyncio.ensure_future(self._wake.wait())
        finally:
            timer.cancel()
            waker.cancel()


def _longest_s(*, is_full: bool) -> float:
    return FULL_RETRY_INTERVAL_S_MAX if is_full else RETRY_INTERVAL_S_MAX
