"""Stopping in order: hand leadership over, then close the logs so that the next start can trust them."""

from typing import Final

import structlog
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError, reason_of

from regnum_broker.cluster.controller import CALL_TIMEOUT_S, ControllerCalls
from regnum_broker.cluster.fence import Fence
from regnum_broker.replication.fetchers import Fetchers

HAND_OVER_TIMEOUT_S: Final = 6.0
"""How long to wait for a controller."""

REMAINING_PATIENCE_S: Final = 1.0
"""How long to wait for replicas that may lead what nobody else could."""

REMAINING_INTERVAL_S: Final = 0.2


class ControlledShutdown:
    """Moves leadership away from a broker that stops."""

    def __init__(
        self, *, broker: BrokerId, fence: Fence, calls: ControllerCalls, fetchers: Fetchers, clock: Clock
    ) -> None:
        self._broker: Final = broker
        self._fence: Final = fence
        self._calls: Final = calls
        self._fetchers: Final = fetchers
        self._clock: Final = clock
        self._log: Final = structlog.get_logger("shutdown")

    async def run(self) -> None:
        """Stop following, then ask the controller until nothing is led here, or nothing more can be moved."""
        await self._fetchers.stop()
        identity = self._fence.identity
        if identity is None:
            return
        request = controller_pb2.ControlledShutdownRequest(broker_id=self._broker, broker_epoch=identity.broker_epoch)
        deadline_s = self._clock.monotonic() + REMAINING_PATIENCE_S
        try:
            while True:
                answer = await self._calls.call(
                    lambda stub: stub.ControlledShutdown(request, timeout=CALL_TIMEOUT_S),
                    timeout_s=HAND_OVER_TIMEOUT_S,
                )
                if answer.error_code != errors_pb2.ERROR_CODE_NONE:
                    self._log.warning("controlled shutdown refused", reason=reason_of(answer.error_code))
                    return
                if not answer.remaining_partitions or self._clock.monotonic() >= deadline_s:
                    self._log.info("leadership handed over", remaining=answer.remaining_partitions)
                    return
                await self._clock.sleep(REMAINING_INTERVAL_S)
        except RegnumError as error:
            self._log.warning("stopping without handing leadership over", reason=str(error))
