"""What copies logs from their leaders, what has logs begin later, and what carries out orders about both."""

from regnum_model.broker_configs import CLEANER_PROCESSOR_PERCENTAGE
from regnum_model.ids import BrokerId, PartitionKey
from regnum_service.channel import Channels
from regnum_telemetry.instruments import broker as instruments

from regnum_broker.cluster.lifeline import Lifeline
from regnum_broker.cluster.orders.orders import Orders
from regnum_broker.compaction.cleaner import LogCleaner
from regnum_broker.compaction.offset_map import BYTES_FOR_KEY
from regnum_broker.composition.parts import BrokerParts
from regnum_broker.flushing import LogFlusher
from regnum_broker.replication.fetchers import Fetchers
from regnum_broker.replication.follower import LeaderStream
from regnum_broker.replication.moving import MovingReplicas
from regnum_broker.retention.mover import StartMover
from regnum_broker.retention.watch import RetentionWatch


def start_fetching(parts: BrokerParts, channels: Channels, lifeline: Lifeline) -> tuple[StartMover, Fetchers]:
    """Copy logs from their leaders, and have logs begin later, here and then at their followers."""
    replicas, storage, clock, supervisor = parts.replicas, parts.storage, parts.clock, parts.supervisor

    def start_moved(key: PartitionKey) -> None:
        fetchers.start_moved(key)
        partition = replicas.get(key)
        if partition is not None:
            # Followers hear of it as they hear of a high watermark.
            partition.committed.fire()

    mover = StartMover(storage=storage, moved=start_moved, clock=clock)
    fetchers = Fetchers(lambda leader: _leader_stream(leader, parts, channels, mover, lifeline), supervisor)
    cleaner = LogCleaner(
        replicas=replicas,
        storage=storage,
        keys_max=parts.settings.log_cleaner_dedupe_buffer_bytes // BYTES_FOR_KEY,
        clock=clock,
        expiry_now_ms=parts.expiry.now_ms,
        chance=parts.machine.chance,
        metrics=parts.metrics,
    )
    parts.configs.on(CLEANER_PROCESSOR_PERCENTAGE, cleaner.pace.set)
    watch = RetentionWatch(
        replicas=replicas, storage=storage, mover=mover, clock=clock, expiry_now_ms=parts.expiry.now_ms
    )
    supervisor.start("log starts", mover.run())
    supervisor.start("retention", watch.run())
    supervisor.start("log cleaner", cleaner.run())
    supervisor.start("log flusher", LogFlusher(storage=storage, clock=clock).run())
    return mover, fetchers


def make_orders(parts: BrokerParts, fetchers: Fetchers, lifeline: Lifeline) -> Orders:
    """What carries orders out, and tells of partitions that move as these say."""

    def is_busy(key: PartitionKey) -> bool:
        partition = parts.replicas.get(key)
        # What was committed since the last checkpoint counts: its producers may have come this second.
        return lifeline.is_busy(key) or (
            partition is not None and partition.high_watermark > parts.storage.directory.stored_high_watermark(key)
        )

    parts.replicas.first_acknowledgements.report(is_busy, lifeline.report_acknowledged)
    moving = MovingReplicas(replicas=parts.replicas, tell=lifeline.report_moving, clock=parts.clock)
    parts.supervisor.start("moving replicas", moving.run())
    return Orders(
        replicas=parts.replicas,
        fetchers=fetchers,
        storage=parts.storage,
        store=lambda: parts.sessions.store,
        lag_s=parts.settings.replica_lag_s,
        clock=parts.clock,
        throttle=parts.throttle,
        note_moving=moving.note,
        fits_now=parts.lives.fits_now,
    )


def _leader_stream(
    leader: BrokerId, parts: BrokerParts, channels: Channels, mover: StartMover, lifeline: Lifeline
) -> LeaderStream:
    return LeaderStream(
        leader,
        broker=parts.id,
        address=lambda: parts.replicas.address_of(leader),
        identity=lambda: parts.fence.identity,
        channels=channels,
        storage=parts.storage,
        clock=parts.clock,
        move_start=mover.ask,
        throttle=parts.throttle.taking,
        received_bytes=parts.metrics.counter(instruments.REPLICATION_BYTES_IN),
        tell_break=lifeline.report_broken,
    )
