"""All that a broker shows of itself: to Prometheus as metrics, to whoever asks as figures."""

from collections.abc import Callable
from typing import Final

from regnum.broker.v1 import figures_pb2_grpc
from regnum_model.ids import BrokerId
from regnum_service.clock import Clock
from regnum_service.loop_lag import LoopLag
from regnum_service.server import ServiceRegistration
from regnum_service.store_contact import StoreContact
from regnum_service.supervisor import Supervisor
from regnum_telemetry.metrics import Metrics

from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.readiness import Readiness
from regnum_broker.cluster.strays.logs import StrayLogs
from regnum_broker.disk_room import DiskRooms
from regnum_broker.figures.consumer_lag import show_log_ends
from regnum_broker.figures.gauges import show_broker, show_readiness, show_standing, show_strays, show_writability
from regnum_broker.figures.log_sizes import LogSizing
from regnum_broker.figures.recent_rates import RecentRates
from regnum_broker.limits.client_quotas import ClientQuotas
from regnum_broker.replication.replicas import Replicas
from regnum_broker.servicers.figures import FiguresServicer
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.topic_traffic import TopicTraffic
from regnum_broker.storage import Storage

LOOP_LAG_PERIOD_S: Final = 0.050
"""Time between two measurements of the loop's lag: nothing here is decided by it, and each wakes a process at rest."""


class Showing:
    """Belongs to the event loop; what it shows is read from other threads."""

    def __init__(
        self, broker: BrokerId, *, metrics: Metrics, clock: Clock, topics_max: int, partitions_max: int
    ) -> None:
        """Only assigns.

        Args:
            broker: this one.
            metrics: of the process.
            clock: source of time.
            topics_max: topics that are shown by name.
            partitions_max: partitions whose log ends are shown.
        """
        self._partitions_max: Final = partitions_max
        self._broker: Final = broker
        self._metrics: Final = metrics
        self._clock: Final = clock
        self.traffic: Final = TopicTraffic(topics_max=topics_max, clock=clock, metrics=metrics)
        """Where traffic is counted by topic."""
        self._loop_lag: Final = LoopLag(clock, period_s=LOOP_LAG_PERIOD_S, metrics=metrics)
        self._rates: Final = RecentRates(metrics, clock)

    def start(self, supervisor: Supervisor) -> None:
        """Measure from now on."""
        supervisor.start("loop lag", self._loop_lag.run())
        supervisor.start("recent rates", self._rates.run())

    def figures(
        self,
        *,
        replicas: Replicas,
        storage: Storage,
        cache: MetadataCache,
        fence: Fence,
        readiness: Readiness,
        strays: StrayLogs,
        disk: DiskRooms,
        contact: StoreContact,
        lifeline_open: Callable[[], bool],
        client_port: Callable[[], int],
        quotas: ClientQuotas | None = None,
    ) -> ServiceRegistration:
        """Let the metrics read all this; returns the service that is asked for figures.

        Args:
            replicas: who leads and follows here.
            storage: the logs.
            cache: which metadata it has.
            fence: whether it is registered.
            readiness: whether it has been in sync.
            strays: logs that nobody knows.
            disk: whether it takes records.
            contact: whether the store answers.
            lifeline_open: whether the controller hears it.
            client_port: where clients connect.
            quotas: what clients do against quotas; None: there are none.
        """
        show_broker(self._metrics, replicas, storage)
        show_log_ends(self._metrics, replicas.leading, most=self._partitions_max)
        show_standing(self._metrics, fence, cache, lifeline_open)
        show_readiness(self._metrics, readiness)
        show_writability(self._metrics, disk)
        show_strays(self._metrics, strays)
        sizing = LogSizing(storage, self.traffic, self._clock)
        sizing.show(self._metrics)
        return ServiceRegistration(
            name="regnum.broker.v1.FiguresService",
            servicer=FiguresServicer(
                self._broker,
                rates=self._rates,
                sizing=sizing,
                replicas=replicas,
                storage=storage,
                cache=cache,
                loop_lag=self._loop_lag,
                readiness=readiness,
                strays=strays,
                disk=disk,
                contact=contact,
                lifeline_open=lifeline_open,
                client_port=client_port,
                clock=self._clock,
                quotas=quotas,
            ),
            add_to_server=figures_pb2_grpc.add_FiguresServiceServicer_to_server,
        )
