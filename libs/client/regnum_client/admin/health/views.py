"""What the controller says is wrong, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.metadata.v1 import metadata_pb2
from regnum_model.topic_filter import Trouble
from regnum_model.wire_times import seconds_of

TROUBLES: Final[Mapping[int, Trouble]] = MappingProxyType(
    {
        metadata_pb2.PARTITION_TROUBLE_OFFLINE: Trouble.OFFLINE,
        metadata_pb2.PARTITION_TROUBLE_UNDER_MIN_ISR: Trouble.UNDER_MIN_ISR,
        metadata_pb2.PARTITION_TROUBLE_NOT_WRITABLE: Trouble.NOT_WRITABLE,
        metadata_pb2.PARTITION_TROUBLE_UNDER_REPLICATED: Trouble.UNDER_REPLICATED,
    }
)
"""Troubles by their number; one that a newer controller tells of is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHealth:
    """A broker as the controller sees it.

    >>> [broker.id for broker in admin.describe_health().brokers if broker.draining]
    []
    """

    id: int
    registered: bool
    """Whether it lives."""
    stopping: bool
    """Whether it asked for a controlled shutdown."""
    draining: bool
    """Whether it is given no new replicas."""
    replicas: int
    """Replicas that are assigned to it."""
    offline_replicas: int
    """Those of them that it cannot use."""
    orders_outstanding: int
    """Orders that it has not acknowledged."""
    oldest_order_age_s: float
    """Age of the oldest of them; 0 without any."""
    clock_ahead_s: float | None = None
    """Seconds by which its wall clock is ahead of the controller's; negative: behind; None: it does not say."""
    expiry_held_back: bool = False
    """Whether that is more than it allows: nothing expires there by time."""
    disk_free_bytes: int | None = None
    """Free on the disk of its log directory; None: it does not say."""
    disk_size_bytes: int | None = None
    """Of that disk; None: it does not say."""
    refuses_writes_because: str = ""
    """Why it appends no records; empty: it does, or does not say."""
    turns_away_because: str = ""
    """Why it turns connections away; empty: it does not, or does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleCount:
    """How many partitions have a trouble."""

    partitions: int
    """Now."""
    for_long: int
    """For longer than the controller's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubledPartition:
    """An unhealthy partition.

    >>> def line(one: TroubledPartition) -> str:
    ...     return f"{one.topic}/{one.partition} for {one.age_s:.0f} s: {one.reason}"
    """

    topic: str
    partition: int
    troubles: tuple[Trouble, ...]
    """What is wrong with it, the worst first."""
    age_s: float
    """For how long the controller has seen the worst of it."""
    leader: int
    """Broker id; -1: none."""
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    reason: str
    """Why it has no leader, or takes no writes, if that is known; empty otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueOrders:
    """Orders that a live broker has not acknowledged in time.

    >>> def line(one: OverdueOrders) -> str:
    ...     return f"broker {one.broker} owes {one.orders} answers, the oldest for {one.oldest_age_s:.0f} s"
    """

    broker: int
    orders: int
    """How many; of more than 1,000 that many."""
    oldest_age_s: float
    """Seconds since the first of them was given."""
    partitions: tuple[str, ...]
    """The first that they are about, as ``topic/partition``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedPartition:
    """Something in the store that only a person can mend."""

    topic: str
    partition: int | None
    """None: the whole topic."""
    reason: str
    """What is wrong."""
    advice: str
    """What to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRelease:
    """Which release a registered process is.

    >>> [one.id for one in admin.describe_health().releases if one.role == "broker" and one.refused]
    []
    """

    role: str
    """``broker``, ``election``, ``metadata`` or ``quota``."""
    id: int
    release: str
    """Version of the distribution; 0.1.0 where it does not say."""
    protocol_min: int
    """Lowest ``inter.broker.protocol.version`` that it speaks."""
    protocol_max: int
    """Highest that it speaks."""
    refused: str
    """Why it takes no part in the cluster; empty: it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthView:
    """What the controller says.

    >>> health = admin.describe_health()
    >>> health.partitions >= health.topics
    True
    """

    controller: int
    """Its election id."""
    controller_epoch: int
    metadata_version: int
    """Version of the metadata that it published last."""
    complete: bool
    """Whether it has looked at every partition since its reign began; until then the counts may be too small."""
    topics: int
    partitions: int
    brokers: tuple[BrokerHealth, ...]
    """All that are registered or have replicas, by id."""
    metadata_behind: Mapping[int, int | None]
    """Versions that each metadata process has not acknowledged; None: not known."""
    troubles: Mapping[Trouble, TroubleCount]
    """Partitions by trouble."""
    troubled_partitions: tuple[TroubledPartition, ...]
    """The worst of them."""
    overdue_orders: tuple[OverdueOrders, ...]
    damaged: tuple[DamagedPartition, ...]
    """What cannot be read in the store besides states of partitions that stand: the first of it."""
    damaged_count: int
    """How much of it there is."""
    order_overdue_s: float
    """Age from which on an order is overdue."""
    trouble_overdue_s: float
    """Time from which on trouble lasts for long."""
    releases: tuple[ProcessRelease, ...] = ()
    """Every registered process, by role and id; none where the store did not say, or the controller is of 0.1.0."""
    inter_broker_protocol: int | None = None
    """In force; None: not known."""
    inter_broker_protocol_max: int | None = None
    """The highest that all of these processes speak; None: not known."""
    controller_wall_clock_ms: int | None = None
    """The controller's wall clock when it answered, milliseconds since 1970; None: not known."""

    metadata_failing: Mapping[int, str] = field(default_factory=dict)
    """Metadata processes that have taken no changes for ``order_overdue_s``, and why, by id."""
    store_went_back: str = ""
    """What proves that the coordination store was put back to an earlier state; empty: nothing does."""
    store_trouble: str = ""
    """What is wrong with the coordination store, as the end of a sentence that begins with it; empty: nothing."""
    access_warnings: tuple[str, ...] = ()
    """Why callers are believed more than they should be, each a sentence; empty: nothing is known of the kind."""
    store_warnings: tuple[str, ...] = ()
    """Why access rules in the store are not to be relied on, each as such an end of a sentence."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What a person should look at, in words; empty: the cluster is healthy.

        A partition that lacks a replica is a problem only when it has for long: with every restart one comes and goes.
        """
        found = [
            *(
                f"the store went back to an earlier state ({proof}); {_ACCEPT}"
                for proof in (self.store_went_back,)
                if proof
            ),
            *(f"the coordination store {why}" for why in (self.store_trouble, *self.store_warnings) if why),
            *self.access_warnings,
            *(
                f"broker {one.id} appends no records: {one.refuses_writes_because}"
                for one in self.brokers
                if one.refuses_writes_because
            ),
            *(
                f"broker {one.id} turns connections away: {one.turns_away_because}"
                for one in self.brokers
                if one.turns_away_because
            ),
            *(f"{count} partitions are {_WORDS[trouble]}" for trouble, count in self._counted() if count),
            *(
                f"broker {one.broker} has not acknowledged {one.orders} orders for {one.oldest_age_s:.0f} s"
                for one in self.overdue_orders
            ),
        ]
        away = [broker.id for broker in self.brokers if not broker.registered and broker.replicas]
        if away:
            found.append(f"brokers that have replicas are away: {_list(away)}")
        found.extend(
            f"broker {broker.id} cannot use {broker.offline_replicas} of its replicas"
            for broker in self.brokers
            if broker.offline_replicas
        )
        if self.complete and not self.metadata_behind:
            found.append("no metadata process is registered: brokers and clients hear of no change of a leader")
        found.extend(
            f"metadata process {id} takes no changes, and the brokers that it serves hear of none: {because}"
            for id, because in self.metadata_failing.items()
        )
        found.extend(self._clocks())
        found.extend(f"{one.role} {one.id} is refused: {one.refused}" for one in self.releases if one.refused)
        if self.damaged_count:
            found.append(f"{self.damaged_count} nodes in the store are damaged or were edited, and wait for a person")
        return tuple(found)

    def _clocks(self) -> list[str]:
        differing = [one for one in self.brokers if one.expiry_held_back]
        comparing = sum(one.clock_ahead_s is not None for one in self.brokers)
        controllers = f"controller {self.controller}'s, which shows {_moment(self.controller_wall_clock_ms)}"
        if len(differing) == comparing > 1:
            shown = "; ".join(map(self._clock_of, differing[:3]))
            advice = "most likely the controller's is wrong: set the clock of its machine right (NTP)"
            differ = f"the clocks of all {comparing} brokers differ from {controllers} ({shown})"
            return [f"{differ}: nothing expires by time; {advice}"]
        return [
            f"the clock of {self._clock_of(one)} of {controllers}: nothing expires by time on that broker; set the "
            "wrong one right on its machine (NTP)"
            for one in differing
        ]

    def _clock_of(self, broker: BrokerHealth) -> str:
        ahead_s, told_ms = broker.clock_ahead_s or 0.0, self.controller_wall_clock_ms
        shown = _moment(None if told_ms is None else told_ms + round(ahead_s * 1000))
        return f"broker {broker.id} shows {shown}, {abs(ahead_s):.0f} s {'behind' if ahead_s < 0 else 'ahead'}"

    def _counted(self) -> tuple[tuple[Trouble, int], ...]:
        none = TroubleCount(partitions=0, for_long=0)
        return (
            (Trouble.OFFLINE, self.troubles.get(Trouble.OFFLINE, none).partitions),
            (Trouble.UNDER_MIN_ISR, self.troubles.get(Trouble.UNDER_MIN_ISR, none).partitions),
            (Trouble.NOT_WRITABLE, self.troubles.get(Trouble.NOT_WRITABLE, none).partitions),
            (Trouble.UNDER_REPLICATED, self.troubles.get(Trouble.UNDER_REPLICATED, none).for_long),
        )


_ACCEPT: Final = (
    "no partition gets another leader and no log is deleted until it is treated as restored: stop every process, then "
    "see `regnum restore --in-place`"
)

_WORDS: Final[Mapping[Trouble, str]] = MappingProxyType(
    {
        Trouble.OFFLINE: "without a leader",
        Trouble.UNDER_MIN_ISR: "under min.insync.replicas",
        Trouble.NOT_WRITABLE: "not writable, though they are led",
        Trouble.UNDER_REPLICATED: "under-replicated for long",
    }
)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(unix_ms: int | None) -> str:
    if unix_ms is None:
        return "no time"
    try:
        return (_EPOCH + timedelta(milliseconds=unix_ms)).isoformat(timespec="seconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{unix_ms} ms since 1970"


def _list(ids: list[int], most: int = 10) -> str:
    shown = ", ".join(map(str, ids[:most]))
    return shown if len(ids) <= most else f"{shown} and {len(ids) - most} more"


def health_view(answer: admin_pb2.DescribeHealthResponse) -> HealthView:
    """The values of an answer."""
    return HealthView(
        controller=answer.controller_id,
        controller_epoch=answer.controller_epoch,
        metadata_version=answer.metadata_version,
        complete=answer.complete,
        topics=answer.topics,
        partitions=answer.partitions,
        brokers=tuple(map(_broker, answer.brokers)),
        metadata_behind={
            process.metadata_id: None if process.versions_behind < 0 else process.versions_behind
            for process in answer.metadata_processes
        },
        metadata_failing={
            process.metadata_id: process.takes_no_changes_because
            for process in answer.metadata_processes
            if process.takes_no_changes_because
        },
        troubles={
            TROUBLES[count.trouble]: TroubleCount(partitions=count.partitions, for_long=count.for_long)
            for count in answer.troubles
            if count.trouble in TROUBLES
        },
        troubled_partitions=tuple(map(_partition, answer.troubled_partitions)),
        overdue_orders=tuple(
            OverdueOrders(
                broker=one.broker_id,
                orders=one.orders,
                oldest_age_s=seconds_of(one.oldest_age),
                partitions=tuple(f"{item.topic}/{item.partition}" for item in one.partitions),
            )
            for one in answer.overdue_orders
        ),
        damaged=tuple(
            DamagedPartition(
                topic=one.topic,
                partition=None if one.partition < 0 else one.partition,
                reason=one.reason,
                advice=one.advice,
            )
            for one in answer.damaged
        ),
        damaged_count=answer.damaged_count,
        order_overdue_s=seconds_of(answer.order_overdue),
        trouble_overdue_s=seconds_of(answer.trouble_overdue),
        releases=tuple(
            ProcessRelease(
                role=one.role,
                id=one.id,
                release=one.release or "0.1.0",
                protocol_min=one.protocol_min,
                protocol_max=one.protocol_max,
                refused=one.refused,
            )
            for one in answer.releases
        ),
        inter_broker_protocol=answer.inter_broker_protocol or None,
        inter_broker_protocol_max=answer.inter_broker_protocol_max or None,
        controller_wall_clock_ms=answer.controller_wall_clock_ms or None,
        store_went_back=answer.store_went_back,
        store_trouble=answer.store_trouble,
        access_warnings=tuple(answer.access_warnings),
        store_warnings=tuple(answer.store_warnings),
    )


def _broker(message: admin_pb2.BrokerHealth) -> BrokerHealth:
    return BrokerHealth(
        id=message.broker_id,
        registered=message.registered,
        stopping=message.stopping,
        draining=message.draining,
        replicas=message.replicas,
        offline_replicas=message.offline_replicas,
        orders_outstanding=message.orders_outstanding,
        oldest_order_age_s=seconds_of(message.oldest_order_age),
        clock_ahead_s=message.clock_ahead_ms / 1000 if message.HasField("clock_ahead_ms") else None,
        expiry_held_back=message.expiry_held_back,
        disk_free_bytes=message.disk_free_bytes if message.HasField("disk_free_bytes") else None,
        disk_size_bytes=message.disk_size_bytes if message.HasField("disk_size_bytes") else None,
        refuses_writes_because=message.refuses_writes_because,
        turns_away_because=message.turns_away_because,
    )


def _partition(message: admin_pb2.TroubledPartition) -> TroubledPartition:
    return TroubledPartition(
        topic=message.topic,
        partition=message.state.partition,
        troubles=tuple(TROUBLES[trouble] for trouble in message.troubles if trouble in TROUBLES),
        age_s=seconds_of(message.age),
        leader=message.state.leader,
        isr=tuple(message.state.isr),
        replicas=tuple(message.state.replicas),
        reason=message.state.offline_reason or message.not_writable_because,
    )
