"""Delivery to one incarnation of one broker: one change in flight, repeated until acknowledged.

A lane that begins asks the broker for its version, since another process may have served it until now (safety rule
S17). From then on it sends what joins on, as ``intervals`` says, and never holds up another broker.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import structlog
from regnum.broker.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of

from regnum_metadata.payload import Payload

RETRY_INTERVAL_S: Final = 0.1
"""Pause after the first failure in a row; it doubles with each."""

RETRY_INTERVAL_S_MAX: Final = 1.0
"""Longest such pause."""


class BrokerStream(Protocol):
    """How one broker is reached. Bounded in time."""

    async def update_metadata(self, parts: Sequence[bytes]) -> control_pb2.UpdateMetadataResponse:
        """All parts of one change; the broker's answer to the last. Raises RegnumError."""

    async def close(self) -> None:
        """Hang up."""


class Source(Protocol):
    """Where a lane gets what it sends, and whom it tells."""

    @property
    def epoch(self) -> ControllerEpoch:
        """Controller epoch of what is sent now."""

    @property
    def version(self) -> int:
        """Version under that epoch."""

    def question(self) -> Payload:
        """Changes nothing; the answer says the broker's version."""

    async def next_for(self, receiver: "Receiver", epoch: ControllerEpoch, version: int) -> Payload | None:
        """What a broker needs next that has this version under that epoch; None when it has everything."""

    def seen(self, epoch: ControllerEpoch) -> None:
        """A broker knows a later controller epoch."""

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
        self, receiver: Receiver, *, source: Source, stream: BrokerStream, slots: asyncio.Semaphore, clock: Clock
    ) -> None:
        self.receiver: Final = receiver
        self._source = source
        self._stream = stream
        self._slots = slots
        self._clock = clock
        self._wake = asyncio.Event()
        self._asked = False
        self._epoch = ControllerEpoch(0)
        self._version = 0
        self._behind_since_s: float | None = None
        self._failures = 0
        self._log = structlog.get_logger("propagation").bind(broker=receiver.id, broker_epoch=receiver.epoch)

    @property
    def acknowledged(self) -> int:
        """Version that the broker acknowledged under the present controller epoch; 0 for none."""
        return self._version if self._epoch == self._source.epoch else 0

    @property
    def behind_ms(self) -> int:
        """For how long the broker has not had the present version; 0 when it has it."""
        if self._behind_since_s is None or self.acknowledged >= self._source.version:
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
                if not self._asked:
                    payload: Payload | None = self._source.question()
                else:
                    payload = await self._source.next_for(self.receiver, self._epoch, self._version)
                if payload is None:
                    self._behind_since_s = None
                    await self._wake.wait()
                else:
                    await self._send(payload)
        finally:
            await self._stream.close()

    async def _send(self, payload: Payload) -> None:
        try:
            async with self._slots:
                response = await self._stream.update_metadata(payload.parts)
        except RegnumError as error:
            # Whether it arrived is unknown; sent twice, a change is answered with the version the broker has.
            await self._pause(reason_of(error.code), error.message)
            return
        match response.error_code:
            case errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH:
                self._source.seen(ControllerEpoch(response.controller_epoch))
                await self._pause("STALE_CONTROLLER_EPOCH", "the broker obeys a later controller")
            case errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH:
                await self._pause("STALE_BROKER_EPOCH", "the broker has registered anew; the controller will say so")
            case _:
                await self._acknowledged(payload, response)

    async def _acknowledged(self, payload: Payload, response: control_pb2.UpdateMetadataResponse) -> None:
        epoch = ControllerEpoch(response.controller_epoch)
        version = response.version if epoch == payload.controller_epoch else 0
        stuck = self._asked and version < payload.to_version and (epoch, version) == (self._epoch, self._version)
        self._asked = True
        self._epoch, self._version = epoch, version
        if stuck:
            await self._pause(reason_of(response.error_code), f"at version {version}, not {payload.to_version}")
            return
        if self._failures:
            self._log.info("broker answers again", failures=self._failures, version=version)
            self._failures = 0
        await self._source.progressed()

    async def _pause(self, reason: str, message: str) -> None:
        """Until there is news, or for a while."""
        self._failures += 1
        if self._failures == 1:
            self._log.warning("metadata not taken, trying again", reason=reason, message=message)
        pause_s = min(RETRY_INTERVAL_S * 2 ** min(self._failures - 1, 5), RETRY_INTERVAL_S_MAX)
        waker = asyncio.ensure_future(self._wake.wait())
        timer = asyncio.ensure_future(self._clock.sleep(pause_s))
        try:
            await asyncio.wait([waker, timer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            waker.cancel()
            timer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(waker, timer, return_exceptions=True)
