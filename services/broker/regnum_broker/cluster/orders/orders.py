"""Carrying out the controller's orders: one task, one message after another, whole messages only.

A caller that gives up does not stop a message half-way: its roles would have been taken and never given.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Store
from regnum_model.ids import BrokerEpoch, PartitionKey
from regnum_service.clock import Clock
from regnum_service.errors import Code, RegnumError
from regnum_telemetry import tracing

from regnum_broker.cluster.orders.roles import Roles
from regnum_broker.cluster.orders.stops import Stops
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.replicas import Replicas
from regnum_broker.replication.throttle import ReplicationThrottle
from regnum_broker.storage import Storage

MESSAGES_MAX: Final = 64
"""Messages that may wait."""


def _nobody_is_told(_key: PartitionKey, _moves: bool) -> None:  # noqa: FBT001 - a callback
    """Where nobody wants to hear which partitions move."""


async def _nothing_goes_back(_store: Store | None) -> bool:
    """Where neither disk nor store goes back."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """A whole message."""

    run: Callable[[], Awaitable[list[Code]]]
    broker_epoch: BrokerEpoch
    """Life of the broker that it is meant for."""
    done: asyncio.Future[list[Code]]


class Orders:
    """The one task that changes roles. Belongs to the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        fetchers: Fetchers,
        storage: Storage,
        store: Callable[[], Store | None],
        lag_s: float,
        clock: Clock,
        throttle: ReplicationThrottle | None = None,
        note_moving: Callable[[PartitionKey, bool], None] = _nobody_is_told,
        fits_now: Callable[[Store | None], Awaitable[bool]] = _nothing_goes_back,
    ) -> None:
        self._replicas: Final = replicas
        self._roles: Final = Roles(
            replicas=replicas,
            fetchers=fetchers,
            storage=storage,
            store=store,
            lag_s=lag_s,
            clock=clock,
            throttle=throttle or ReplicationThrottle(clock),
            note_moving=note_moving,
        )
        self._stops: Final = Stops(
            replicas=replicas, fetchers=fetchers, storage=storage, store=store, fits_now=fits_now
        )
        self._jobs: Final[asyncio.Queue[_Job]] = asyncio.Queue(MESSAGES_MAX)
        self._oldest_epoch = BrokerEpoch(0)

    async def lead_and_follow(
        self, partitions: Sequence[control_pb2.LeaderAndIsrPartition], *, broker_epoch: BrokerEpoch
    ) -> list[Code]:
        """Carry a LeaderAndIsr out; one result for each partition. Raises RegnumError: STALE_BROKER_EPOCH."""
        cause = tracing.current()
        return await self._hand_in(lambda: self._roles.carry_out(partitions, cause), broker_epoch)

    async def stop(
        self, partitions: Sequence[control_pb2.StopReplicaPartition], *, broker_epoch: BrokerEpoch
    ) -> list[Code]:
        """Carry a StopReplica out; one result for each replica. Raises RegnumError: STALE_BROKER_EPOCH."""
        return await self._hand_in(lambda: self._stops.carry_out(partitions), broker_epoch)

    async def surrender(self, broker_epoch: BrokerEpoch) -> None:
        """Give all leadership up at once, and refuse what is meant for ``broker_epoch`` from then on.

        Called when the registration is over, before the broker registers anew (safety rules S8 and S11). Returns when
        an order that was under way, and may have handed leadership out once more, has been undone as well.
        """
        self._replicas.surrender()
        self._oldest_epoch = max(self._oldest_epoch, BrokerEpoch(broker_epoch + 1))

        async def give_up() -> list[Code]:
            self._replicas.surrender()
            return []

        await self._hand_in(give_up, self._oldest_epoch)

    async def remove_strays(self, keys: Sequence[PartitionKey], *, broker_epoch: BrokerEpoch) -> int:
        """Delete those of these replicas that do nothing and that the store assigns to other brokers (S13).

        The store is asked in the one task that gives roles, so no order comes between its answer and the deletion.
        Returns how many were deleted. Raises RegnumError: STALE_BROKER_EPOCH.
        """
        deleted = 0

        async def remove() -> list[Code]:
            nonlocal deleted
            deleted = await self._stops.remove_strays(keys)
            return []

        await self._hand_in(remove, broker_epoch)
        return deleted

    async def _hand_in(self, run: Callable[[], Awaitable[list[Code]]], epoch: BrokerEpoch) -> list[Code]:
        job = _Job(run=run, broker_epoch=epoch, done=asyncio.get_running_loop().create_future())
        await self._jobs.put(job)
        return await job.done

    async def run(self) -> None:
        """Carry messages out for ever; a task of the supervisor."""
        while True:
            job = await self._jobs.get()
            if job.broker_epoch < self._oldest_epoch:
                if not job.done.done():
                    job.done.set_exception(
                        RegnumError(
                            errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH,
                            f"the order is for broker epoch {job.broker_epoch}, which is over",
                        )
                    )
                continue
            results = await job.run()
            if not job.done.done():
                job.done.set_result(results)
