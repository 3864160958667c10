"""What an election process shows of its reign: numbers that are there, read by the thread that somebody asks."""

from collections.abc import Callable, Iterable
from typing import Protocol

from regnum_service.clock import Clock
from regnum_service.muting import Muting
from regnum_telemetry.instruments import election as instruments
from regnum_telemetry.metrics import Labels, Metrics

from regnum_election.decisions.cluster import Cluster
from regnum_election.dispatch.broker_dispatch import BrokerOrders
from regnum_election.health.troubles import WORST_FIRST
from regnum_election.health.watch import HealthWatch
from regnum_election.reign.events import EventQueue
from regnum_election.reign.reign import Reign


class Reigning(Protocol):
    """A controller, as far as it is shown."""

    @property
    def reign(self) -> Reign:
        """Whose reign it is."""

    @property
    def picture(self) -> Cluster:
        """The cluster as of now."""

    @property
    def queue(self) -> EventQueue:
        """What waits."""

    @property
    def published_version(self) -> int:
        """Version of the last publication."""

    @property
    def health(self) -> HealthWatch:
        """What is wrong."""


def show_controller(metrics: Metrics, reigning: Callable[[], Reigning | None], clock: Clock) -> None:
    """Let the metrics read whatever controller there is; nothing is shown of a reign that is over.

    Args:
        metrics: of this process.
        reigning: the controller, None while this process does not reign.
        clock: of that controller.
    """

    def one(read: Callable[[Reigning], float]) -> Callable[[], float | None]:
        def value() -> float | None:
            controller = reigning()
            return None if controller is None else read(controller)

        return value

    def some(
        read: Callable[[Reigning], Iterable[tuple[Labels, float]]],
    ) -> Callable[[], Iterable[tuple[Labels, float]]]:
        def values() -> Iterable[tuple[Labels, float]]:
            controller = reigning()
            return () if controller is None else read(controller)

        return values

    metrics.observe(instruments.CONTROLLER_ACTIVE, lambda: 0 if reigning() is None else 1)
    metrics.observe(instruments.CONTROLLER_EPOCH, one(lambda it: it.reign.epoch))
    metrics.observe(instruments.STORE_WENT_BACK, one(lambda it: bool(it.reign.went_back)))
    metrics.observe(instruments.STORE_WRITES_REFUSED, one(lambda it: bool(it.health.store and it.health.store.refusal)))
    metrics.observe(instruments.STORE_WRITE_TIME, one(lambda it: it.health.store.took_s if it.health.store else 0.0))
    metrics.observe(instruments.PUBLISHED_VERSION, one(lambda it: it.published_version))
    metrics.observe(instruments.METADATA_PROCESSES, one(lambda it: it.health.metadata_processes))
    metrics.observe(instruments.METADATA_PROCESSES_FAILING, one(lambda it: len(it.health.metadata_failing)))
    metrics.observe(instruments.CLUSTER_BROKERS, one(lambda it: len(it.picture.brokers)))
    metrics.observe(instruments.BROKERS_REFUSED, one(lambda it: it.health.refused))
    metrics.observe(instruments.NODES_DAMAGED, one(lambda it: it.health.damaged))
    metrics.observe(instruments.CLUSTER_TOPICS, one(lambda it: len(it.picture.topics)))
    metrics.observe(instruments.CLUSTER_PARTITIONS, one(lambda it: len(it.picture.partitions)))
    metrics.observe(instruments.ORDERS_OVERDUE, one(lambda it: sum(broker.count for broker in it.health.overdue)))
    metrics.observe_all(
        instruments.EVENT_QUEUE_DEPTH, some(lambda it: [((kind,), depth) for kind, depth in it.queue.depths])
    )
    metrics.observe_all(
        instruments.ORDERS_OUTSTANDING,
        some(lambda it: [((str(orders.broker),), orders.count) for orders in _oldest_first(it.health)]),
    )
    metrics.observe_all(
        instruments.ORDERS_OLDEST_AGE,
        some(
            lambda it: [
                ((str(orders.broker),), max(clock.monotonic() - orders.oldest_s, 0.0))
                for orders in _oldest_first(it.health)
            ]
        ),
    )
    metrics.observe_all(
        instruments.PARTITIONS_TROUBLED,
        some(lambda it: [((trouble.value,), it.health.book.count(trouble)) for trouble in WORST_FIRST]),
    )
    metrics.observe_all(
        instruments.PARTITIONS_TROUBLED_LONG,
        some(lambda it: [((trouble.value,), it.health.book.count_long(trouble)) for trouble in WORST_FIRST]),
    )


def _oldest_first(health: HealthWatch) -> list[BrokerOrders]:
    """Where there are more than are shown, the oldest are."""
    return sorted(health.orders, key=lambda orders: orders.oldest_s)


def show_muting(metrics: Metrics, muting: Muting, held: Callable[[], int]) -> None:
    """Let the metrics read which connections have to wait, and how many calls wait with them (``held``)."""
    metrics.observe(instruments.MUTED_CONNECTIONS, lambda: muting.connections)
    metrics.observe(instruments.HELD_CALLS, held)
    metrics.observe(instruments.HELD_CALLS_REFUSED, lambda: muting.refused)
