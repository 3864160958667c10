"""ControlledShutdown and AllocateProducerIds as brokers meet them."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerEpoch, BrokerId
from regnum_service.errors import RegnumError
from regnum_telemetry import conventions, tracing

from regnum_election.brokers.draining import BrokerDraining
from regnum_election.brokers.in_sync import InSyncWatch, Tell, nobody_is_told
from regnum_election.brokers.producer_ids import next_block
from regnum_election.brokers.shutdown import Departure, controlled_shutdown
from regnum_election.decisions.in_sync import WholeStop
from regnum_election.reign.events import FirstAcknowledgements
from regnum_election.reign.request_queue import RequestQueue
from regnum_election.state.context import ControllerContext


class BrokerCalls:
    """What brokers ask of the controller of one reign: urgent, and refused when their registration is another."""

    def __init__(self, context: ControllerContext, requests: RequestQueue, tell_in_sync: Tell = nobody_is_told) -> None:
        """Only assigns; ``tell_in_sync`` takes what brokers are told of how far they are from being in sync."""
        self._context: Final = context
        self._requests: Final = requests
        self.draining: Final = BrokerDraining(context, requests)
        """Brokers that are given no new replicas."""
        self.in_sync: Final = InSyncWatch(context, tell_in_sync)
        """Brokers that have started and are not in sync yet."""
        self._whole_stop: Final = WholeStop()

    async def controlled_shutdown(
        self, broker: BrokerId, epoch: BrokerEpoch, *, can_wait: bool = False, wait_s: float
    ) -> Departure:
        """Move leadership away from a broker, unless it can wait and has to. Raises RegnumError."""
        if self._broker_error(broker, epoch) is None:
            self._whole_stop.heard(broker, epoch, self._context.clock.monotonic())
        result: asyncio.Future[Departure] = asyncio.get_running_loop().create_future()
        asked_unix_nano = tracing.now_unix_nano()
        begun = False

        def check() -> None:
            nonlocal begun
            if can_wait and not begun and result.done():
                # It asks again: what it asked before and nobody waits for is not to keep failovers waiting.
                raise RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "nobody waits for the answer any more")
            error = self._broker_error(broker, epoch)
            if error is not None:
                raise error
            begun = True

        def done(departure: Departure) -> None:
            if not result.done():
                result.set_result(departure)

        def may_wait() -> bool:
            """Asked when it is this call's turn, and known to be that broker's."""
            now_s = self._context.clock.monotonic()
            return can_wait and not self._whole_stop.asks(broker, self._context.picture, now_s)

        trace = self._context.changes.plan(
            conventions.KIND_CONTROLLED_SHUTDOWN, asked_unix_nano=asked_unix_nano, victim=broker, link=tracing.current()
        )
        steps = controlled_shutdown(self._context, broker, trace, can_wait=may_wait, check=check, done=done)
        self._requests.submit("controlled shutdown", steps, result, begun=lambda: begun, urgent=True)
        return await self._requests.answer(result, wait_s)

    async def allocate_producer_ids(self, broker: BrokerId, epoch: BrokerEpoch, *, wait_s: float) -> tuple[int, int]:
        """A block of producer ids: first and count. Raises RegnumError."""
        result: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()

        async def steps() -> AsyncGenerator[None, None]:
            error = self._broker_error(broker, epoch)
            if error is not None:
                raise error
            block = await next_block(self._context.store)
            if not result.done():
                result.set_result(block)
            return
            yield

        # Producers try on: without an id a record is not even sent.
        self._requests.check_store(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT)
        self._requests.submit("allocate producer ids", steps(), result, begun=lambda: False, urgent=True)
        return await self._requests.answer(result, wait_s)

    def first_acknowledged(self, said: FirstAcknowledgements) -> None:
        """New leaders say when they acknowledged their first records."""
        self._context.dispatch.first_acknowledged(said.acknowledged)

    def check(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        """Raise RegnumError unless that is the live broker of that id."""
        error = self._broker_error(broker, epoch)
        if error is not None:
            raise error

    def _broker_error(self, broker: BrokerId, epoch: BrokerEpoch) -> RegnumError | None:
        known = self._context.picture.brokers.get(broker)
        if known is not None and known.epoch == epoch:
            return None
        if known is None or epoch > known.epoch:
            return RegnumError(
                errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
                f"broker {broker} at epoch {epoch} is not known yet; try again",
            )
        return RegnumError(
            errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH, f"broker {broker} has registered again, at epoch {known.epoch}"
        )
