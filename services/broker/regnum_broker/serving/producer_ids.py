"""Ids for idempotent producers, out of blocks that the controller hands to this broker alone."""

import asyncio
from typing import Final

from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.ids import BrokerId
from regnum_service.errors import RegnumError

from regnum_broker.cluster.controller import CALL_TIMEOUT_S, ControllerCalls
from regnum_broker.cluster.fence import Fence

ALLOCATION_TIMEOUT_S: Final = 10.0
"""How long a caller waits for a new block."""


class ProducerIds:
    """The present block. Belongs to the event loop."""

    def __init__(self, *, broker: BrokerId, fence: Fence, calls: ControllerCalls) -> None:
        self._broker: Final = broker
        self._fence: Final = fence
        self._calls: Final = calls
        self._allocating: Final = asyncio.Lock()
        self._next = 0
        self._end = 0

    async def next_id(self) -> int:
        """An id that nobody else has.

        Raises:
            RegnumError: there is none left and no controller to ask.
        """
        async with self._allocating:
            if self._next >= self._end:
                await self._allocate()
            id = self._next
            self._next += 1
            return id

    async def _allocate(self) -> None:
        identity = self._fence.identity
        if identity is None:
            raise _not_registered()
        request = controller_pb2.AllocateProducerIdsRequest(broker_id=self._broker, broker_epoch=identity.broker_epoch)
        answer = await self._calls.call(
            lambda stub: stub.AllocateProducerIds(request, timeout=CALL_TIMEOUT_S), timeout_s=ALLOCATION_TIMEOUT_S
        )
        if answer.error_code == errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH:
            # That of this broker, which does not know yet that its registration is over: no fault of who asked.
            raise _not_registered()
        if answer.error_code != errors_pb2.ERROR_CODE_NONE or answer.count < 1:
            raise RegnumError(
                answer.error_code or errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR,
                "the controller gave no producer ids; try again, or ask another broker",
            )
        self._next, self._end = answer.first_producer_id, answer.first_producer_id + answer.count


def _not_registered() -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "this broker is not registered; ask another one")
