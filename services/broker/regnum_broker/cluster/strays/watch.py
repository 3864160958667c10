"""Looks after replicas that do nothing: those that were reassigned, and whose broker did not hear of it (S13).

Goals: their files go by themselves, whichever controller reigns; a replica whose order is only late, or whose
controller is away, is never touched.

Algorithm: a replica that had no role whenever it was looked at during the grace time, or followed a leader that did not
serve it, while this broker was registered all that time under one broker epoch, is a candidate. It is no more than
that: a leader that died leaves many. So the store is asked first, while orders are carried out; what others have, the
one task that gives roles looks at again and decides about by what the store says then. What is not deleted is a
candidate again after another grace time.

Logs of topics and partitions that nobody knows are found by the same look, and only counted (``logs``).
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

import structlog
from regnum_coordination.port import Store
from regnum_model.ids import BrokerEpoch, PartitionKey
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError
from regnum_service.slices import slices

from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.cluster.strays.assignments import Assignment, assignments_of
from regnum_broker.cluster.strays.logs import Names, StrayLogs
from regnum_broker.identity import Identity
from regnum_broker.replication.partition import Partition
from regnum_broker.replication.replicas import Replicas

GRACE_S: Final = 60.0
"""How long a replica has to do nothing, unless the settings say otherwise."""

LOOKS_PER_GRACE: Final = 6
"""How often it is looked at in that time."""

REPLICAS_PER_CHECK: Final = 200
"""Candidates that the store is asked about together; orders wait for one such check at most, and for strays alone."""

REPLICAS_PER_TURN: Final = 1_000
"""Replicas looked at between two turns of the event loop (safety rule S22)."""


class StrayWatch:
    """One for the life of the broker. Belongs to the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        orders: Orders,
        is_idle: Callable[[Partition], bool],
        identity: Callable[[], Identity | None],
        store: Callable[[], Store | None],
        names: Callable[[], Names | None],
        logs: StrayLogs,
        clock: Clock,
        grace_s: float = GRACE_S,
    ) -> None:
        """Only assigns.

        Args:
            replicas: what there is here.
            orders: the one task that gives roles.
            is_idle: whether a replica does nothing.
            identity: the registration; None: there is none.
            store: the store; None while there is no session.
            names: the newest metadata, which does not change any more; None before the first.
            logs: told of logs that nobody knows.
            clock: source of time.
            grace_s: how long a replica has to do nothing.
        """
        self._replicas: Final = replicas
        self._orders: Final = orders
        self._is_idle: Final = is_idle
        self._identity: Final = identity
        self._store: Final = store
        self._names: Final = names
        self._logs: Final = logs
        self._clock: Final = clock
        self._grace_s: Final = grace_s
        self._epoch: BrokerEpoch | None = None
        self._idle_since_s: dict[PartitionKey, float] = {}
        self._log: Final = structlog.get_logger("strays")

    async def run(self) -> None:
        """Look for ever; a task of the supervisor."""
        while True:
            await self._clock.sleep(self._grace_s / LOOKS_PER_GRACE)
            await self.look()

    async def look(self) -> int:
        """Look once; returns how many replicas were deleted."""
        identity = self._identity()
        epoch = None if identity is None else identity.broker_epoch
        if epoch is None or epoch != self._epoch:
            # Whoever registers anew is told of everything anew.
            self._epoch, self._idle_since_s = epoch, {}
            self._logs.forget()
        if epoch is None:
            return 0
        now_s = self._clock.monotonic()
        idle = self._idle_since_s = await self._look_at_all(now_s)
        due = (key for key, since_s in idle.items() if now_s - since_s >= self._grace_s)
        candidates = tuple(islice(due, REPLICAS_PER_CHECK))
        if not candidates:
            return 0
        for key in candidates:
            self._idle_since_s[key] = now_s
        said = await assignments_of(self._store(), candidates, broker=self._replicas.broker)
        strays = [key for key in candidates if said[key] is Assignment.ELSEWHERE]
        if not strays:
            return 0
        try:
            return await self._orders.remove_strays(strays, broker_epoch=epoch)
        except RegnumError as error:
            self._log.info("strays not looked at", reason=error.message)
            return 0

    async def _look_at_all(self, now_s: float) -> dict[PartitionKey, float]:
        """Since when each replica that does nothing does so; those that nobody knows are counted."""
        idle: dict[PartitionKey, float] = {}
        look = self._logs.begin(self._names(), now_s)
        async for some in slices(tuple(self._replicas), REPLICAS_PER_TURN):
            for partition in some:
                if self._is_idle(partition):
                    idle[partition.key] = self._idle_since_s.get(partition.key, now_s)
                    if look is not None:
                        look.add(partition)
        if look is not None:
            self._logs.end(look, now_s=now_s)
        return idle
