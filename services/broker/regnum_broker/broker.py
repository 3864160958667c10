"""All parts of a broker, put together and started in order."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import structlog
from regnum.broker.v1 import group_pb2_grpc, log_pb2_grpc, producer_pb2_grpc
from regnum.metadata.v1 import image_pb2_grpc, metadata_pb2_grpc
from regnum.replication.v1 import control_pb2_grpc, replication_pb2_grpc
from regnum_coordination.port import Store
from regnum_coordination.recipes.believed_epochs import BelievedEpochs
from regnum_model.ids import BrokerId, PartitionKey, encode_id
from regnum_model.nodes import Address
from regnum_service.channel import Channels
from regnum_service.clock import Clock
from regnum_service.cluster_image.describing import ImageServicer
from regnum_service.connections import cut_off
from regnum_service.errors import StartRefusedError
from regnum_service.poller import quiet_poller
from regnum_service.server import GrpcServer, ServiceRegistration
from regnum_service.settings import advertised
from regnum_service.supervisor import Supervisor
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Metrics

from regnum_broker.cluster.contacts import ContactWatch
from regnum_broker.cluster.controller import ControllerCalls, ControllerFinder, ControllerLocation
from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.isolation_watch import IsolationWatch
from regnum_broker.cluster.lifeline import Lifeline
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.cluster.registration import Registrar
from regnum_broker.cluster.sessions import Sessions
from regnum_broker.cluster.shutdown import HAND_OVER_TIMEOUT_S, ControlledShutdown
from regnum_broker.cluster.strays.watch import StrayWatch
from regnum_broker.compaction.cleaner import LogCleaner
from regnum_broker.compaction.offset_map import BYTES_FOR_KEY
from regnum_broker.disk_watch import DiskWatch
from regnum_broker.figures.gauges import show_limits
from regnum_broker.flushing import LogFlusher
from regnum_broker.groups.calls import GroupCalls
from regnum_broker.groups.coordinator import GroupCoordinator
from regnum_broker.groups.decisions.offsets import OffsetLimits
from regnum_broker.groups.decisions.state import GroupLimits
from regnum_broker.groups.offsets_topic import OffsetsTopic
from regnum_broker.groups.seats import CoordinatorLimits
from regnum_broker.groups.topic_lives import TopicLives
from regnum_broker.limits.limits import ClientLimits
from regnum_broker.limits.quota_watch import follow_quotas
from regnum_broker.log.contents import Recovery
from regnum_broker.log.directory import LogDirectory
from regnum_broker.log.errors import DirectoryUnusableError
from regnum_broker.log.opening import open_directory
from regnum_broker.maintenance import Checkpointing, IsrWatch, ProducerExpiry, ReserveKeeping
from regnum_broker.replication.follower import Fetchers, LeaderStream
from regnum_broker.replication.isr_writer import IsrWriter
from regnum_broker.replication.moving import MovingReplicas
from regnum_broker.replication.offline import OfflineReplicas
from regnum_broker.replication.replicas import Replicas
from regnum_broker.replication.sessions.fetch_session import FetchSession
from regnum_broker.replication.sessions.follower_streams import FollowerStreams
from regnum_broker.replication.sessions.fresh_appends import FreshAppends
from regnum_broker.replication.throttle import ReplicationThrottle
from regnum_broker.retention.mover import StartMover
from regnum_broker.retention.watch import RetentionWatch
from regnum_broker.servicers.control import ReplicaControlServicer
from regnum_broker.servicers.group import GroupServicer
from regnum_broker.servicers.log import LogServicer
from regnum_broker.servicers.metadata import MetadataServicer
from regnum_broker.servicers.producer import ProducerServicer
from regnum_broker.servicers.replica_logs import ReplicaLogs
from regnum_broker.servicers.replication import ReplicationServicer
from regnum_broker.serving.current_leaders import CurrentLeaders
from regnum_broker.serving.delete_records import DeleteRecordsHandler
from regnum_broker.serving.fetching.handler import FetchHandler
from regnum_broker.serving.fetching.nearby import NearbyReplicas
from regnum_broker.serving.fetching.offsets import OffsetsHandler
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.serving.produce import ProduceHandler
from regnum_broker.serving.producer_ids import ProducerIds
from regnum_broker.serving.replica_descriptions import ReplicaDescriber
from regnum_broker.serving.topic_traffic import TopicTraffic
from regnum_broker.settings import BrokerSettings
from regnum_broker.showing import Showing
from regnum_broker.storage import Storage

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

RECOVERY_SAID_S: Final = 5.0
"""Time between two lines of the log on how far a start is."""

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
    ) -> None:
        """Only assigns; ``metrics`` is what the process shows."""
        self._metrics: Final = metrics or Metrics()
        self._settings: Final = settings
        self._supervisor: Final = supervisor
        self._clock: Final = clock
        self._id: Final = BrokerId(settings.broker_id)
        self._listeners: Final = {
            "client": Address.parse(settings.client_listen),
            "internal": Address.parse(settings.internal_listen),
        }
        self.registered: Final = asyncio.Event()
        """Set once the broker has registered for the first time."""
        self._storage: Storage | None = None
        self.replicas: Final = Replicas(self._id)
        self._throttle: Final = ReplicationThrottle(clock)
        self._fresh: Final = FreshAppends()
        self._limits: Final = _limits(settings, clock)
        self._showing: Final = Showing(
            self._id, metrics=self._metrics, clock=clock, topics_max=settings.metrics_topics_max
        )
        self._sessions: Final = Sessions(open_session, clock)
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
        channels = Channels()
        supervisor.defer("channels", channels.close)
        storage = self._storage = await self._open_storage()
        lifeline = Lifeline(self._id, offline=lambda: tuple(storage.directory.offline))
        checkpointing = Checkpointing(replicas=replicas, storage=storage, clock=clock, tell_busy=lifeline.report_busy)
        close_storage = partial(_close_storage, storage, checkpointing, supervisor)
        supervisor.defer("storage", close_storage, timeout_s=STORAGE_CLOSE_TIMEOUT_S)
        for key, log in storage.directory.replicas.items():
            replicas.add(key, log.topic, log)

        cache = MetadataCache(fence, replicas.learn_listeners)
        leaders = CurrentLeaders(replicas, cache)
        sessions = self._sessions
        streams = FollowerStreams()

        def controller_moved(location: ControllerLocation | None) -> None:
            lifeline.move(location)

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
        mover, fetchers = self._start_fetching(channels, storage)
        offline = OfflineReplicas(replicas=replicas, fetchers=fetchers, storage=storage, report=lifeline.report_offline)
        orders = self._make_orders(fetchers, storage, lifeline)

        internal = _internal_server(
            self._listeners["internal"],
            supervisor,
            self._metrics,
            ServiceRegistration(
                name="regnum.replication.v1.ReplicaControlService",
                servicer=ReplicaControlServicer(
                    fence=fence, orders=orders, replicas=replicas, logs=ReplicaLogs(replicas, storage), cache=cache
                ),
                add_to_server=control_pb2_grpc.add_ReplicaControlServiceServicer_to_server,
            ),
            ServiceRegistration(
                name="regnum.replication.v1.ReplicationService",
                servicer=ReplicationServicer(
                    make_session=lambda: FetchSession(
                        find=replicas.get,
                        arrivals=replicas.arrivals,
                        streams=streams,
                        caught_up=writer.wake,
                        storage=storage,
                        clock=clock,
                        throttle=self._throttle.sending,
                        fresh=self._fresh,
                        sent_bytes=self._metrics.counter(instruments.REPLICATION_BYTES_OUT),
                    ),
                    replicas=replicas,
                    held=self._limits.held,
                ),
                add_to_server=replication_pb2_grpc.add_ReplicationServiceServicer_to_server,
            ),
        )
        producing = ProduceHandler(
            replicas=replicas,
            leaders=leaders,
            storage=storage,
            clock=clock,
            batch_bytes_max=self._settings.message_bytes_max,
            supervisor=supervisor,
            fresh=self._fresh,
            metrics=self._metrics,
            traffic=self._showing.traffic,
        )
        fetching = _fetching(
            self._settings, replicas, leaders, storage, fetchers, clock, self._metrics, self._showing.traffic
        )
        client = _client_server(
            self._listeners["client"],
            self._settings,
            self._limits,
            supervisor,
            self._metrics,
            ServiceRegistration(
                name="regnum.broker.v1.LogService",
                servicer=LogServicer(
                    producing=producing,
                    fetching=fetching,
                    offsets=OffsetsHandler(replicas=replicas, leaders=leaders, storage=storage),
                    describing=ReplicaDescriber(replicas=replicas, storage=storage),
                    deleting=DeleteRecordsHandler(replicas=replicas, leaders=leaders, mover=mover),
                    held=self._limits.held,
                    throttling=self._limits.throttling,
                    unread=self._limits.unread,
                ),
                add_to_server=log_pb2_grpc.add_LogServiceServicer_to_server,
            ),
            ServiceRegistration(
                name="regnum.broker.v1.ProducerService",
                servicer=ProducerServicer(ProducerIds(broker=self._id, fence=fence, calls=calls)),
                add_to_server=producer_pb2_grpc.add_ProducerServiceServicer_to_server,
            ),
            ServiceRegistration(
                name="regnum.broker.v1.GroupService",
                servicer=self._make_groups(cache, calls, leaders, storage, producing),
                add_to_server=group_pb2_grpc.add_GroupServiceServicer_to_server,
            ),
            *_metadata_services(cache, leaders, clock),
            self._showing.figures(
                replicas=replicas,
                storage=storage,
                cache=cache,
                fence=fence,
                lifeline_open=lambda: lifeline.is_open,
                client_port=lambda: self._listeners["client"].port,
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
        supervisor.start("client quotas", follow_quotas(sessions.wait_store, self._limits.quotas.take_up, clock))
        supervisor.start("silent readers", self._limits.silent.run(partial(cut_off, self._listeners["client"].port)))
        supervisor.start("controller finder", finder.run())
        supervisor.start("lifeline", lifeline.run())
        self._showing.start(supervisor)
        self._start_watches(sessions=sessions, lifeline=lifeline, fetchers=fetchers, writer=writer)
        self._start_upkeep(checkpointing, offline, storage)
        registering = Registrar(
            broker=self._id,
            incarnation=encode_id(uuid.uuid4()),
            rack=self._settings.rack,
            listeners={
                "client": advertised(self._settings.client_advertised, self._listeners["client"]),
                "internal": advertised(self._settings.internal_advertised, self._listeners["internal"]),
            },
            storage=storage,
            sessions=sessions,
            fence=fence,
            orders=orders,
            lifeline=lifeline,
            clock=clock,
            session_timeout_s=self._settings.session_timeout_s,
            registered=self.registered.set,
        )
        supervisor.start("registration", registering.run())
        self._start_stray_watch(orders, fetchers, sessions)
        supervisor.start("health", _serve_when(self.registered, internal, client))
        shutdown = ControlledShutdown(broker=self._id, fence=fence, calls=calls, fetchers=fetchers, clock=clock)
        hand_over = partial(_hand_over, supervisor, shutdown, internal, client)
        supervisor.defer("leadership", hand_over, timeout_s=2 * HAND_OVER_TIMEOUT_S)

    def _make_groups(
        self,
        cache: MetadataCache,
        controller: ControllerCalls,
        leaders: CurrentLeaders,
        storage: Storage,
        producing: ProduceHandler,
    ) -> GroupServicer:
        """What coordinates consumer groups, and serves calls about them."""
        settings, clock = self._settings, self._clock
        topic = OffsetsTopic(
            broker=self._id,
            partitions=settings.offsets_topic_partitions,
            cache=cache,
            fence=self.fence,
            calls=controller,
            clock=clock,
        )
        coordinator = GroupCoordinator(
            replicas=self.replicas,
            leaders=leaders,
            topic=topic,
            lives=TopicLives(cache, clock),
            store=lambda: self._sessions.store,
            storage=storage,
            append=producing.append,
            clock=clock,
            spawn=self._supervisor.start,
            retention_ms=settings.offsets_retention_minutes * 60_000,
            session_s_min=settings.group_min_session_timeout_ms / 1000,
            limits=CoordinatorLimits(),
            metrics=self._metrics,
        )
        limits = GroupLimits(
            session_timeout_s_min=settings.group_min_session_timeout_ms / 1000,
            members_max=settings.group_max_size,
            initial_rebalance_delay_s=settings.group_initial_rebalance_delay_ms / 1000,
        )
        self._supervisor.start("groups", coordinator.run())
        calls = GroupCalls(coordinator, clock=clock, limits=limits, offset_limits=OffsetLimits(), metrics=self._metrics)
        return GroupServicer(coordinator=coordinator, calls=calls, clock=clock)

    def _start_upkeep(self, checkpointing: Checkpointing, offline: OfflineReplicas, storage: Storage) -> None:
        """What keeps the log directory in order."""
        self._supervisor.start("checkpoints", checkpointing.run())
        self._supervisor.start("reserve", ReserveKeeping(storage=storage, clock=self._clock).run())
        self._supervisor.start("offline replicas", offline.run())
        timeout_s = self._settings.disk_timeout_s
        watch = DiskWatch(directory=storage.directory, timeout_s=timeout_s, clock=self._clock)
        self._supervisor.start("disk watch", watch.run())
        expiration_ms = self._settings.producer_id_expiration_ms
        expiry = ProducerExpiry(storage=storage, expiration_ms=expiration_ms, clock=self._clock)
        self._supervisor.start("producer expiry", expiry.run())

    def _start_fetching(self, channels: Channels, storage: Storage) -> tuple[StartMover, Fetchers]:
        """What copies logs from their leaders, and what has logs begin later, here and then at their followers."""
        replicas, clock, supervisor = self.replicas, self._clock, self._supervisor

        def start_moved(key: PartitionKey) -> None:
            fetchers.start_moved(key)
            partition = replicas.get(key)
            if partition is not None:
                # Followers hear of it as they hear of a high watermark.
                partition.committed.fire()

        mover = StartMover(storage=storage, moved=start_moved, clock=clock)
        fetchers = Fetchers(lambda leader: self._leader_stream(leader, channels, storage, mover), supervisor)
        watch = RetentionWatch(replicas=replicas, storage=storage, mover=mover, clock=clock)
        supervisor.start("log starts", mover.run())
        supervisor.start("retention", watch.run())
        cleaner = _cleaner(self._settings, replicas, storage, clock, self._metrics)
        supervisor.start("log cleaner", cleaner.run())
        supervisor.start("log flusher", LogFlusher(storage=storage, clock=clock).run())
        return mover, fetchers

    def _make_orders(self, fetchers: Fetchers, storage: Storage, lifeline: Lifeline) -> Orders:
        """What carries orders out, and tells of partitions that move as these say."""
        moving = MovingReplicas(replicas=self.replicas, tell=lifeline.report_moving, clock=self._clock)
        self._supervisor.start("moving replicas", moving.run())
        sessions = self._sessions
        return Orders(
            replicas=self.replicas,
            fetchers=fetchers,
            storage=storage,
            store=lambda: sessions.store,
            lag_s=self._settings.replica_lag_s,
            clock=self._clock,
            throttle=self._throttle,
            note_moving=moving.note,
        )

    def _start_stray_watch(self, orders: Orders, fetchers: Fetchers, sessions: Sessions) -> None:
        """What deletes replicas that were reassigned without this broker hearing of it (safety rule S13)."""
        fence = self.fence
        strays = StrayWatch(
            replicas=self.replicas,
            orders=orders,
            is_idle=fetchers.is_idle,
            identity=lambda: fence.identity,
            store=lambda: sessions.store,
            clock=self._clock,
            grace_s=self._settings.stray_grace_s,
        )
        self._supervisor.start("strays", strays.run())

    def _start_watches(self, *, sessions: Sessions, lifeline: Lifeline, fetchers: Fetchers, writer: IsrWriter) -> None:
        """What looks by the clock at who is heard, and who is not."""
        replicas, clock, lag_s = self.replicas, self._clock, self._settings.replica_lag_s
        isolation = IsolationWatch(
            replicas=replicas,
            session_lost=lambda: sessions.store is None,
            lifeline_open=lambda: lifeline.is_open,
            clock=clock,
        )
        contacts = ContactWatch(replicas=replicas, fetchers=fetchers, tell=lifeline.report_contacts, clock=clock)
        isr_watch = IsrWatch(replicas=replicas, writer=writer, lag_s=lag_s, clock=clock)
        self._supervisor.start("isr watch", isr_watch.run())
        self._supervisor.start("isolation watch", isolation.run())
        self._supervisor.start("contact watch", contacts.run())

    def _leader_stream(self, leader: BrokerId, channels: Channels, storage: Storage, mover: StartMover) -> LeaderStream:
        return LeaderStream(
            leader,
            broker=self._id,
            address=lambda: self.replicas.address_of(leader),
            identity=lambda: self.fence.identity,
            channels=channels,
            storage=storage,
            clock=self._clock,
            move_start=mover.ask,
            throttle=self._throttle.taking,
            received_bytes=self._metrics.counter(instruments.REPLICATION_BYTES_IN),
        )

    async def _open_storage(self) -> Storage:
        try:
            directory = await asyncio.to_thread(_opened, self._settings, self._clock)
        except DirectoryUnusableError as error:
            raise StartRefusedError(str(error)) from error
        _log_damage(directory)
        storage = Storage(directory, clock=self._clock, metrics=self._metrics)
        storage.start()
        show_limits(self._metrics, self._limits)
        return storage


def _telling(clock: Clock) -> Callable[[int, int], None]:
    """Tells an operator how far a start is: that of a large broker, or from a slow disk, takes its time."""
    began_s = said_s = clock.monotonic()
    log = structlog.get_logger("storage")

    def told(done: int, count: int) -> None:
        nonlocal said_s
        now_s = clock.monotonic()
        if done == count or now_s - said_s >= RECOVERY_SAID_S:
            said_s = now_s
            log.info("logs recovered", replicas=done, of=count, seconds=round(now_s - began_s, 1))

    return told


def _opened(settings: BrokerSettings, clock: Clock) -> LogDirectory:
    """The broker's log directory; reads and writes files."""
    return open_directory(
        settings.data_dir,
        broker_id=BrokerId(settings.broker_id),
        mint_id=lambda: encode_id(uuid.uuid4()),
        boot_id=BOOT_ID.read_text().strip() if BOOT_ID.exists() else "",
        wall_ms=clock.wall_ms,
        segment_bytes=settings.segment_bytes,
        reserve_bytes=settings.reserve_bytes,
        index_cache_bytes=settings.index_cache_bytes,
        recovery=Recovery(threads=settings.num_recovery_threads_per_data_dir, told=_telling(clock)),
    )


def _limits(settings: BrokerSettings, clock: Clock) -> ClientLimits:
    return ClientLimits(
        held_max=settings.queued_max_request_bytes,
        connection_held_max=settings.connection_queued_max_bytes,
        clock=clock,
    )


async def _close_storage(storage: Storage, checkpointing: Checkpointing, supervisor: Supervisor) -> None:
    if not storage.directory.failed:
        await checkpointing.save()
    await storage.close(clean=supervisor.failure is None)


async def _hand_over(supervisor: Supervisor, shutdown: ControlledShutdown, *servers: GrpcServer) -> None:
    for server in servers:
        await server.set_serving(serving=False)
    if supervisor.failure is None:
        await shutdown.run()


async def _serve_when(registered: asyncio.Event, *servers: GrpcServer) -> None:
    await registered.wait()
    for server in servers:
        await server.set_serving(serving=True)


def _log_damage(directory: LogDirectory) -> None:
    """Say what was found when it was opened."""
    for key, reason in directory.offline.items():
        structlog.get_logger("storage").error(
            "replica offline", topic_id=key.topic_id, partition=key.partition, reason=str(reason)
        )
    for note in directory.notes:
        structlog.get_logger("storage").error("log directory was not as it was left", note=note)


def _internal_server(
    address: Address, supervisor: Supervisor, metrics: Metrics, *services: ServiceRegistration
) -> GrpcServer:
    return GrpcServer(address, services, supervisor=supervisor, listener="internal", metrics=metrics)


def _client_server(
    address: Address,
    settings: BrokerSettings,
    limits: ClientLimits,
    supervisor: Supervisor,
    metrics: Metrics,
    *services: ServiceRegistration,
) -> GrpcServer:
    """What clients take is bounded before it is read; the controller and other brokers come in by another listener."""
    return GrpcServer(
        address,
        services,
        supervisor=supervisor,
        listener="client",
        metrics=metrics,
        request_bytes_max=settings.socket_request_max_bytes,
        gates=limits.gates,
        meter=limits.throttling,
        unread_bytes_max=settings.socket_receive_buffer_bytes,
    )


def _metadata_services(cache: MetadataCache, leaders: CurrentLeaders, clock: Clock) -> tuple[ServiceRegistration, ...]:
    """What clients are told of the cluster."""
    return (
        ServiceRegistration(
            name="regnum.metadata.v1.MetadataService",
            servicer=MetadataServicer(cache, leaders),
            add_to_server=metadata_pb2_grpc.add_MetadataServiceServicer_to_server,
        ),
        ServiceRegistration(
            name="regnum.metadata.v1.ImageService",
            servicer=ImageServicer(lambda: cache.held, cache.digest, clock),
            add_to_server=image_pb2_grpc.add_ImageServiceServicer_to_server,
        ),
    )


def _cleaner(
    settings: BrokerSettings, replicas: Replicas, storage: Storage, clock: Clock, metrics: Metrics
) -> LogCleaner:
    """What compacts logs."""
    return LogCleaner(
        replicas=replicas,
        storage=storage,
        keys_max=settings.log_cleaner_dedupe_buffer_bytes // BYTES_FOR_KEY,
        clock=clock,
        chance=random.SystemRandom(),
        metrics=metrics,
    )


def _fetching(
    settings: BrokerSettings,
    replicas: Replicas,
    leaders: CurrentLeaders,
    storage: Storage,
    fetchers: Fetchers,
    clock: Clock,
    metrics: Metrics,
    traffic: TopicTraffic,
) -> FetchHandler:
    nearby = NearbyReplicas(
        replicas,
        by_rack=settings.replica_selector == "rack",
        rack=settings.rack or "",
        heard_s=fetchers.heard_s,
        clock=clock,
    )
    return FetchHandler(
        replicas=replicas,
        leaders=leaders,
        storage=storage,
        nearby=nearby,
        clock=clock,
        metrics=metrics,
        traffic=traffic,
    )
