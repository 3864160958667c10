"""All parts of a broker, put together and started in order."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from regnum_coordination.port import Store
from regnum_coordination.recipes.believed_epochs import BelievedEpochs
from regnum_model.ids import BrokerId
from regnum_service.access.acls.opening import AccessControl
from regnum_service.access.audit import AuditLog
from regnum_service.access.tokens.settings import tokens_of
from regnum_service.channel import Channels
from regnum_service.clock import Clock
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_service.machine import MACHINE, Machine
from regnum_service.poller import quiet_poller
from regnum_service.server import GrpcServer
from regnum_service.store_contact import StoreContact
from regnum_service.supervisor import Supervisor
from regnum_service.tls.settings import ProcessTls
from regnum_telemetry.metrics import Metrics

from regnum_broker.cluster.controller import ControllerCalls, ControllerFinder, ControllerLocation, nobody_elects
from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.lifeline import Lifeline
from regnum_broker.cluster.lifeline_stream import LifelineStream, OpenStream
from regnum_broker.cluster.lives.lives import Lives
from regnum_broker.cluster.lives.went_back import WentBack
from regnum_broker.cluster.readiness import Readiness
from regnum_broker.cluster.registration import Registrar
from regnum_broker.cluster.sessions import Sessions
from regnum_broker.cluster.shutdown import ControlledShutdown
from regnum_broker.cluster.strays.logs import StrayLogs
from regnum_broker.composition.access import start_access
from regnum_broker.composition.configuring import follow_store
from regnum_broker.composition.following import make_orders, start_fetching
from regnum_broker.composition.forwarding import make_forwarder
from regnum_broker.composition.group_coordination import start_groups
from regnum_broker.composition.kafka_listener import start_kafka
from regnum_broker.composition.listeners import (
    Listeners,
    client_server,
    client_services,
    fetch_handler,
    internal_server,
    produce_handler,
)
from regnum_broker.composition.opening_logs import close_storage, open_storage
from regnum_broker.composition.parts import BrokerParts
from regnum_broker.composition.registering import start_registering
from regnum_broker.composition.watches import (
    ListenerOfClients,
    start_contact_watches,
    start_stray_watch,
    start_upkeep,
)
from regnum_broker.configs.dynamic import DynamicConfigs
from regnum_broker.disk_room import DiskRooms
from regnum_broker.figures.gauges import show_limits
from regnum_broker.limits.incoming import incoming
from regnum_broker.limits.limits import ClientLimits
from regnum_broker.log.disk.system_calls import Disk
from regnum_broker.maintenance import Checkpointing
from regnum_broker.replication.isr_writer import IsrWriter
from regnum_broker.replication.offline import OfflineReplicas
from regnum_broker.replication.replicas import Replicas
from regnum_broker.replication.sessions.follower_streams import FollowerStreams
from regnum_broker.replication.sessions.fresh_appends import FreshAppends
from regnum_broker.replication.throttle import ReplicationThrottle
from regnum_broker.retention.expiry_clock import ExpiryClock
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.settings import BrokerSettings
from regnum_broker.showing import Showing
from regnum_broker.storage import Storage

LOG_SERVICE: Final = "regnum.broker.v1.LogService"
"""What the readiness probe asks for."""

STORAGE_CLOSE_TIMEOUT_S: Final = 60.0
"""Flushing what the operating system holds may take long; without it the next start cannot trust the log."""


class Broker:
    """One broker. ``start`` hands every part to the supervisor, which undoes it in reverse order."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        supervisor: Supervisor,
        open_session: Callable[[], Awaitable[Store]],
        clock: Clock,
        metrics: Metrics | None = None,
        audit: AuditLog | None = None,
        disk: Disk | None = None,
        store_refuses: Callable[[], str] = lambda: "",
        machine: Machine = MACHINE,
        open_lifeline: OpenStream = LifelineStream.open,
    ) -> None:
        """Only assigns.

        Args:
            settings: what it was told.
            supervisor: owns its tasks.
            open_session: opens a session with the store.
            clock: source of time.
            metrics: what the process shows.
            audit: where denials are written down.
            disk: system calls on files; tests inject faults here.
            store_refuses: why the store refuses what the process asks for; empty: it does not.
            machine: what it runs on.
            open_lifeline: opens a stream to a controller.
        """
        file = settings.failpoint_file
        self._failpoints: Final = None if file is None else FailpointTrigger(file)
        self._store_refuses: Final = store_refuses
        self._machine: Final = machine
        self._open_lifeline: Final = open_lifeline
        self._disk: Final = disk
        self._audit: Final = audit
        self._metrics: Final = metrics or Metrics()
        self._settings: Final = settings
        self._supervisor: Final = supervisor
        self._clock: Final = clock
        self._id: Final = BrokerId(settings.broker_id)
        self._listeners: Final = Listeners.told(settings)
        self.registered: Final = asyncio.Event()
        """Set once the broker has registered for the first time."""
        self.readiness: Final = Readiness()
        """Whether it has been in sync."""
        self._storage: Storage | None = None
        self.lives: Lives | None = None
        """Of the log directory; None before it is open."""
        self.replicas: Final = Replicas(self._id)
        self.throttle: Final = ReplicationThrottle(clock)
        self.expiry: Final = ExpiryClock(clock, difference_s_max=settings.clock_difference_max_s, metrics=self._metrics)
        """What time it is for whoever deletes or forgets by it."""
        self._limits: Final = ClientLimits(
            held_max=settings.queued_max_request_bytes,
            connection_held_max=settings.connection_queued_max_bytes,
            incoming=incoming(settings.queued_max_incoming_bytes, settings.socket_request_max_bytes),
            clock=clock,
        )
        self._showing: Final = Showing(
            self._id,
            metrics=self._metrics,
            clock=clock,
            topics_max=settings.metrics_topics_max,
            partitions_max=settings.metrics_partitions_max,
        )
        self._sessions: Final = Sessions(open_session, clock)
        self.went_back: Final = WentBack(self._id, sessions=self._sessions, clock=clock)
        """Whether the store did."""
        self.fence: Final = Fence(BelievedEpochs(lambda: self._sessions.store, clock).believes)

    @property
    def stuck(self) -> bool:
        """Whether a thread waits for the disk after everything was closed: the process must end without it."""
        return self._storage is not None and self._storage.stuck

    async def start(self) -> None:
        """Open the log directory, serve, register.

        Raises:
            StartRefusedError: a directory or a port cannot be used as told.
        """
        quiet_poller(asyncio.get_running_loop())
        supervisor, clock, replicas, fence = self._supervisor, self._clock, self.replicas, self.fence
        tls = ProcessTls.of(self._settings, metrics=self._metrics, opener_of=self._machine.opener)
        channels = Channels(tls.open_channel)
        supervisor.defer("channels", channels.close)
        storage = self._storage = await open_storage(
            self._settings,
            clock=clock,
            metrics=self._metrics,
            disk=self._disk,
            failpoints=self._failpoints,
            machine=self._machine,
        )
        show_limits(self._metrics, self._limits)
        lifeline = Lifeline(
            self._id,
            offline=lambda: tuple(storage.directory.offline),
            tls=tls.files,
            readiness=self.readiness,
            expiry=self.expiry,
            machine=self._machine,
            open_stream=self._open_lifeline,
        )
        checkpointing = Checkpointing(replicas=replicas, storage=storage, clock=clock, tell_busy=lifeline.report_busy)
        supervisor.defer(
            "storage", partial(close_storage, storage, checkpointing, supervisor), timeout_s=STORAGE_CLOSE_TIMEOUT_S
        )
        for key, log in storage.directory.replicas.items():
            replicas.add(key, log.topic, log)

        parts = self._parts(storage, tls, lifeline)
        sessions, cache = self._sessions, MetadataCache(fence, replicas.learn_listeners, replicas.learn_leaders)
        leaders = CurrentLeaders(replicas, cache)

        forwarder = make_forwarder(parts, lambda: finder.location)

        def controller_moved(location: ControllerLocation | None) -> None:
            lifeline.move(location)
            forwarder.moved()

        finder = ControllerFinder(sessions=sessions, clock=clock, moved=controller_moved, spawn=supervisor.start)
        calls = ControllerCalls(finder=finder, channels=channels, clock=clock)
        writer = IsrWriter(
            broker=self._id,
            identity=lambda: fence.identity,
            store=lambda: sessions.store,
            report=lifeline.report,
            step_down=replicas.step_down,
            clock=clock,
            metrics=self._metrics,
        )
        mover, fetchers = start_fetching(parts, channels, lifeline)
        offline = OfflineReplicas(replicas=replicas, fetchers=fetchers, storage=storage, report=lifeline.report_offline)
        orders = make_orders(parts, fetchers, lifeline)
        internal = internal_server(
            self._listeners, parts, orders=orders, cache=cache, streams=FollowerStreams(), writer=writer
        )
        producing = produce_handler(parts, leaders, self._showing.traffic)
        served = client_services(
            parts,
            producing=producing,
            fetching=fetch_handler(parts, leaders, fetchers, self._showing.traffic),
            groups=start_groups(parts, cache=cache, calls=calls, leaders=leaders, producing=producing),
            leaders=leaders,
            mover=mover,
            calls=calls,
            cache=cache,
            forwarder=forwarder,
        )
        client = client_server(
            self._listeners,
            parts,
            served,
            figures=self._showing.figures(
                replicas=replicas,
                storage=storage,
                cache=cache,
                fence=fence,
                readiness=self.readiness,
                strays=parts.strays,
                disk=parts.disk,
                contact=parts.contact,
                lifeline_open=lambda: lifeline.is_open,
                client_port=lambda: self._listeners.client.port,
                quotas=parts.limits.quotas,
            ),
        )
        supervisor.start("storage", storage.run_until_failed())
        supervisor.start("orders", orders.run())
        supervisor.start("isr writer", writer.run())
        for server in (internal, client):
            await server.start()
            supervisor.defer("server", server.stop)
        supervisor.start("metadata feed", cache.feed.run())
        supervisor.start("session", sessions.run())
        start_access(parts)
        follow_store(parts)
        of_clients: tuple[ListenerOfClients, ...] = (client, *await start_kafka(self._listeners.kafka, parts, served))
        supervisor.start("controller finder", finder.run())
        supervisor.start("lifeline", lifeline.run())
        self._showing.start(supervisor)
        start_contact_watches(parts, lifeline=lifeline, fetchers=fetchers, writer=writer, of_clients=of_clients)
        start_upkeep(parts, checkpointing=checkpointing, offline=offline)
        registering = Registrar(
            broker=self._id,
            incarnation=self._machine.new_id(),
            rack=self._settings.rack,
            listeners=self._listeners.advertised(self._settings),
            storage=storage,
            sessions=sessions,
            fence=fence,
            orders=orders,
            lifeline=lifeline,
            lives=parts.lives,
            leads=lambda: replicas.leading_count > 0,
            clock=clock,
            session_timeout_s=self._settings.session_timeout_s,
            registered=self.registered.set,
            surrendered=parts.access.surrendered,
        )
        start_registering(parts, registering)
        start_stray_watch(parts, orders=orders, fetchers=fetchers, cache=cache)
        supervisor.start("health", serve_when(self.registered, self.readiness, internal, client))
        shutdown = ControlledShutdown(
            broker=self._id,
            fence=fence,
            calls=calls,
            fetchers=fetchers,
            clock=clock,
            grace_s=self._settings.termination_grace_s,
            hurried=supervisor.hurried,
            is_deserted=partial(nobody_elects, sessions),
        )
        # Before all else: fetch streams, and others that were started since, go on while it asks.
        supervisor.defer_first(
            "leadership",
            partial(_hand_over, supervisor, shutdown, self.readiness, internal, client),
            timeout_s=shutdown.timeout_s,
        )

    def _parts(self, storage: Storage, tls: ProcessTls, lifeline: Lifeline) -> BrokerParts:
        """What the other parts are made of."""
        self.lives = Lives(
            self._id,
            storage=storage,
            sessions=self._sessions,
            identity=lambda: self.fence.identity,
            went_back=self.went_back,
            mint_id=self._machine.new_id,
            clock=self._clock,
        )
        return BrokerParts(
            id=self._id,
            settings=self._settings,
            supervisor=self._supervisor,
            clock=self._clock,
            machine=self._machine,
            expiry=self.expiry,
            metrics=self._metrics,
            sessions=self._sessions,
            contact=StoreContact(
                lambda: self._sessions.store,
                self._clock,
                self._metrics,
                why_none=lambda: self._sessions.why_none,
                refused=self._store_refuses,
            ),
            fence=self.fence,
            went_back=self.went_back,
            lives=self.lives,
            replicas=self.replicas,
            storage=storage,
            disk=DiskRooms(storage=storage, clock=self._clock, tell=lifeline.report_disk),
            strays=StrayLogs(self.replicas, grace_s=self._settings.stray_grace_s),
            limits=self._limits,
            tls=tls,
            access=AccessControl.of(self._settings, clock=self._clock, metrics=self._metrics, audit=self._audit),
            audit=self._audit,
            configs=DynamicConfigs(self._settings),
            tokens=tokens_of(self._settings, self._clock),
            throttle=self.throttle,
            failpoints=self._failpoints,
            fresh=FreshAppends(),
        )


async def _hand_over(
    supervisor: Supervisor, shutdown: ControlledShutdown, readiness: Readiness, *servers: GrpcServer
) -> None:
    readiness.stop()
    for server in servers:
        await server.set_serving(serving=False)
    if supervisor.failure is None:
        await shutdown.run()


async def serve_when(registered: asyncio.Event, readiness: Readiness, internal: GrpcServer, client: GrpcServer) -> None:
    """Health: registered is enough for those who know this broker, and in sync is what it takes to begin with it."""
    await registered.wait()
    readiness.registered()
    # One that stops serves on, and may register or come in sync meanwhile: nobody is to begin with it for that.
    if not readiness.is_stopping:
        await internal.set_serving(serving=True)
        await client.set_serving(serving=True, but=LOG_SERVICE)
    await readiness.wait()
    if not readiness.is_stopping:
        client.set_service(LOG_SERVICE, serving=True)
