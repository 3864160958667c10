"""Calls to the coordinator of a group, wherever it is."""

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from regnum.broker.v1 import group_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.cluster.connections import Connections, Method, call
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.pace import may_pass, retry_delay_ms

if TYPE_CHECKING:
    from regnum.broker.v1.group_pb2_grpc import GroupServiceAsyncStub

Q = TypeVar("Q")
A = TypeVar("A")

_LOG: Final = logging.getLogger("regnum_client")

TOLD_AFTER_S: Final = 10.0
"""A coordinator that cannot be reached for so long is not kept from people."""

_RENEWING: Final = (group_pb2.JoinGroupRequest, group_pb2.SyncGroupRequest, group_pb2.HeartbeatRequest)
"""Whoever sends these is alive."""


class CoordinatorCalls:
    """Of one group. A coordinator that moves, loads, stops or does not answer is looked up and asked again."""

    def __init__(
        self,
        group_id: str,
        connections: Connections,
        metadata: Metadata,
        *,
        clock: Clock,
        chance: random.Random,
        client_id: str,
        call_timeout_s: float,
    ) -> None:
        """Only assigns; ``call_timeout_s``: deadline of one call."""
        self.group_id: Final = group_id
        self.header: Final = RequestHeader(client_id=client_id)
        self._connections: Final = connections
        self._metadata: Final = metadata
        self._clock: Final = clock
        self._chance: Final = chance
        self._call_timeout_s: Final = call_timeout_s
        self._address: Address | None = None
        self._tries = 0
        self.heard_s = clock.monotonic()
        """When the coordinator let the session begin anew, at the earliest."""

    async def ask(
        self, method: "Callable[[GroupServiceAsyncStub], Method[Q, A]]", request: Q, *, timeout_s: float | None
    ) -> A:
        """Ask until there is an answer; ``timeout_s`` None: for ever. Repeats what may have been done.

        Raises RegnumError: what a coordinator says that no repeat can change, or the last failure when the time is up.
        """
        began_s = self._clock.monotonic()
        told = False
        while True:
            lasted_s = self._clock.monotonic() - began_s
            left_s = self._call_timeout_s if timeout_s is None else min(self._call_timeout_s, timeout_s - lasted_s)
            try:
                address = self._address or await self._find(max(0.001, left_s))
                return await self._ask(address, method, request, max(0.001, left_s))
            except RegnumError as error:
                if not may_pass(error):
                    raise
                lasted_s = self._clock.monotonic() - began_s
                if timeout_s is not None and lasted_s >= timeout_s:
                    raise
                if lasted_s > TOLD_AFTER_S and not told:
                    told = True
                    _LOG.warning(
                        "group %s: no answer from a coordinator for %.0f s, asked again: %s",
                        self.group_id,
                        lasted_s,
                        error.message,
                    )
                await self._clock.sleep(retry_delay_ms(lasted_s * 1000, self._chance.random()) / 1000)

    async def _ask(
        self,
        address: Address,
        method: "Callable[[GroupServiceAsyncStub], Method[Q, A]]",
        request: Q,
        timeout_s: float,
    ) -> A:
        asked_s = self._clock.monotonic()
        try:
            answer = await call(method(self._connections.groups(address)), request, timeout_s=timeout_s)
        except RegnumError as error:
            loads = error.code == errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS
            if isinstance(request, _RENEWING) and (loads or not may_pass(error)):
                # One that loads throws nobody out: sessions begin anew when it has read everything.
                self.heard_s = max(self.heard_s, asked_s)
            if may_pass(error) and not loads:
                # Another call may have found the next one meanwhile.
                self._address = None if self._address == address else self._address
            raise
        self._address = address
        if isinstance(request, _RENEWING):
            # What was held kept the member alive until its answer.
            held = not isinstance(request, group_pb2.HeartbeatRequest)
            self.heard_s = max(self.heard_s, self._clock.monotonic() if held else asked_s)
        return answer

    async def _find(self, timeout_s: float) -> Address:
        """Where the coordinator is, as one broker says: another one each time, since that one may be behind."""
        candidates = self._metadata.candidates()
        address = candidates[self._tries % len(candidates)]
        self._tries += 1
        request = group_pb2.FindCoordinatorRequest(header=self.header, group_ids=[self.group_id])
        try:
            answer = await call(self._connections.groups(address).FindCoordinator, request, timeout_s=timeout_s)
        except RegnumError:
            self._metadata.suspect(address)
            raise
        (place,) = answer.coordinators
        if place.error_code != errors_pb2.ERROR_CODE_NONE:
            raise RegnumError(place.error_code, place.error_message)
        return Address(host=place.client.host, port=place.client.port)
