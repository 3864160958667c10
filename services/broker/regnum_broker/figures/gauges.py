"""What a broker shows of itself: numbers that are there, read by the thread that somebody asks."""

from collections.abc import Callable, Iterable

from regnum_service.limits.held_bytes import Purpose
from regnum_telemetry.instruments import broker as instruments
from regnum_telemetry.metrics import Labels, Metrics

from regnum_broker.cluster.fence import Fence
from regnum_broker.cluster.readiness import Readiness
from regnum_broker.cluster.strays.logs import StrayLogs
from regnum_broker.disk_room import DiskRooms
from regnum_broker.limits.limits import ClientLimits
from regnum_broker.replication.leader import Leadership
from regnum_broker.replication.replicas import Replicas
from regnum_broker.serving.metadata_cache import MetadataCache
from regnum_broker.storage import Storage


def is_under_replicated(led: Leadership) -> bool:
    """Whether an assigned replica is not in sync, those apart that a reassignment is only now filling (as in Kafka)."""
    return any(id not in led.state.isr and id not in led.adding for id in led.replicas)


def show_broker(metrics: Metrics, replicas: Replicas, storage: Storage) -> None:
    """Let the metrics read these two. What is in trouble is counted when it is asked for; what is well, never."""

    def roles() -> Iterable[tuple[Labels, float]]:
        leading, following = replicas.leading_count, replicas.following_count
        yield ("leader",), leading
        yield ("follower",), following
        yield ("idle",), max(len(replicas) - leading - following, 0)

    def under_replicated() -> float:
        return sum(map(is_under_replicated, replicas.incomplete()))

    def under_min_isr() -> float:
        return sum(len(one.state.isr) < one.min_insync for one in replicas.incomplete())

    metrics.observe_all(instruments.REPLICAS, roles)
    metrics.observe(instruments.UNDER_REPLICATED, under_replicated)
    metrics.observe(instruments.UNDER_MIN_ISR, under_min_isr)
    metrics.observe(instruments.REPLICAS_OFFLINE, lambda: len(storage.directory.offline))
    metrics.observe(instruments.WRITER_JOBS, lambda: storage.jobs_pending)
    metrics.observe(instruments.WRITER_BYTES, lambda: storage.bytes_pending)
    metrics.observe(instruments.FLUSH_BYTES, lambda: storage.flush_bytes_pending)
    metrics.observe(instruments.INDEX_BYTES, lambda: storage.directory.read_cache.bytes_held)


def show_limits(metrics: Metrics, limits: ClientLimits) -> None:
    """What clients hold of this broker's memory."""
    held, intake = limits.held, limits.intake

    def by_purpose() -> Iterable[tuple[Labels, float]]:
        for purpose in Purpose:
            yield (purpose.value,), limits.budget.account_of(purpose).held_for(purpose)

    def refused() -> Iterable[tuple[Labels, float]]:
        for purpose in Purpose:
            if purpose is not Purpose.REPLICATION:
                yield (purpose.value,), limits.budget.account_of(purpose).refused[purpose]

    quotas = limits.quotas

    def throttled() -> Iterable[tuple[Labels, float]]:
        for rate, count in quotas.throttled.items():
            yield (rate,), count

    def accounts() -> Iterable[tuple[Labels, float]]:
        for rate in quotas.throttled:
            yield (rate,), quotas.accounts(rate)

    metrics.observe_all(instruments.QUOTA_THROTTLED, throttled)
    metrics.observe_all(instruments.QUOTA_ACCOUNTS, accounts)
    metrics.observe(instruments.CALLS_HELD, lambda: limits.throttling.held)
    metrics.observe_all(instruments.CLIENT_BYTES_HELD, by_purpose)
    metrics.observe_all(instruments.CLIENT_THROTTLED, refused)
    metrics.observe(instruments.CLIENT_BYTES_HELD_PEAK, lambda: held.total_peak)
    metrics.observe(instruments.CLIENT_CUT_OFF, lambda: limits.silent.cut_off)
    metrics.observe(instruments.CLIENT_BYTES_MAX, lambda: held.total_max)
    metrics.observe(instruments.CALLS_UNREAD, lambda: intake.calls)


def show_standing(metrics: Metrics, fence: Fence, cache: MetadataCache, lifeline_open: Callable[[], bool]) -> None:
    """Let the metrics read how a broker stands with the controller: registered, heard, and told what."""
    metrics.observe(instruments.REGISTERED, lambda: 0 if fence.identity is None else 1)
    metrics.observe(instruments.LIFELINE_OPEN, lambda: 1 if lifeline_open() else 0)
    metrics.observe(instruments.METADATA_EPOCH, lambda: cache.position.epoch or None)
    metrics.observe(instruments.METADATA_APPLIED, lambda: cache.position.number or None)
    metrics.observe(instruments.WATCHERS_OPEN, lambda: len(cache.feed.watchers))
    metrics.observe(instruments.WATCHERS_SENT, lambda: cache.feed.sent_bytes)
    metrics.observe(instruments.WATCHERS_DROPPED, lambda: cache.feed.watchers.dropped)


def show_writability(metrics: Metrics, disk: DiskRooms) -> None:
    """Let the metrics read what a broker needs to write records: its disk."""
    metrics.observe(instruments.DISK_FREE, lambda: disk.now.free_bytes)
    metrics.observe(instruments.DISK_SIZE, lambda: disk.now.size_bytes)
    metrics.observe(instruments.DISK_REFUSES, lambda: 1 if disk.now.refuses_because else 0)


def show_readiness(metrics: Metrics, readiness: Readiness) -> None:
    """Let the metrics read whether it is ready, and how far it is from that."""
    metrics.observe(instruments.READY, lambda: 0 if readiness.why_not else 1)
    metrics.observe(instruments.REPLICAS_AWAITED, lambda: readiness.awaited)


def show_strays(metrics: Metrics, strays: StrayLogs) -> None:
    """Let the metrics read how many logs nobody knows; nothing as long as nobody has looked."""
    metrics.observe(instruments.REPLICAS_STRAY, lambda: None if strays.found is None else len(strays.found.keys))
