"""Producer ids: one for all partitions, and another for those whose sequence is broken."""

import asyncio
import random
from typing import Final

from regnum.broker.v1.producer_pb2 import InitProducerIdRequest
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.cluster.connections import Connections, call
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.pace import may_pass, retry_delay_ms
from regnum_client.producer.batches.lane import Identity
from regnum_client.producer.outcomes import Outcomes
from regnum_client.producer.route import Route
from regnum_client.tasks import Tasks


class Identities:
    """Of one producer. Wakes the sender when there is another one."""

    def __init__(
        self,
        connections: Connections,
        metadata: Metadata,
        outcomes: Outcomes,
        *,
        clock: Clock,
        chance: random.Random,
        header: RequestHeader,
        tasks: Tasks,
    ) -> None:
        self._tasks: Final = tasks
        self._connections: Final = connections
        self._metadata: Final = metadata
        self._outcomes: Final = outcomes
        self._clock: Final = clock
        self._chance: Final = chance
        self._header: Final = header
        self._identity: Identity | None = None
        self._task: asyncio.Task[None] | None = None
        self._refusal: RegnumError | None = None
        self.last_answer = ""
        """Why there is none yet, as the last broker said; empty: none has said so."""

    @property
    def under_way(self) -> bool:
        """Brokers are being asked for another one."""
        return self._task is not None and not self._task.done()

    def give(self, route: Route) -> bool:
        """Give a route an identity that it has not had. False: another one has to be had first; it is asked for."""
        if self._identity is not None and self._identity != route.identity_spent:
            route.identity_spent = self._identity
            route.lane.take_identity(self._identity)
            return True
        if not self.under_way:
            self._identity = None
            self._task = self._tasks.start("producer-identity", self._acquire())
        return False

    def has_another(self, identity: Identity) -> bool:
        """Whether routes that lack an identity are given another one than this; if not, another is asked for.

        Until it is there they are given this one all the same.
        """
        if identity == self._identity and not self.under_way:
            self._task = self._tasks.start("producer-identity", self._acquire())
        return identity != self._identity

    def take_refusal(self) -> RegnumError | None:
        """Why no broker gives one, once for each time that they were asked; None: they give one, or may yet.

        What waits for one fails with it. What comes later asks again: the right to write may have been granted.
        """
        refusal, self._refusal = self._refusal, None
        return refusal

    async def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            await self._tasks.end(self._task)

    async def _acquire(self) -> None:
        began_s = self._clock.monotonic()
        while True:
            for address in self._metadata.candidates():
                try:
                    answer = await call(
                        self._connections.producers(address).InitProducerId,
                        InitProducerIdRequest(header=self._header),
                        timeout_s=5.0,
                    )
                except RegnumError as error:
                    self.last_answer = f"no producer id: {error.message}"
                    if may_pass(error):
                        continue
                    self._refusal = error
                else:
                    self._identity = Identity(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)
                    self.last_answer = ""
                self._outcomes.wake()
                return
            self._metadata.request()
            trouble_ms = (self._clock.monotonic() - began_s) * 1000
            await self._clock.sleep(retry_delay_ms(trouble_ms, self._chance.random()) / 1000)
