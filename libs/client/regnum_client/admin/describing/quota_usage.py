"""Use of quotas of mutations, as callers get it, and as the wire has it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from regnum.admin.v1 import admin_pb2
from regnum.broker.v1 import figures_pb2
from regnum_model.wire_times import seconds_of


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUsage:
    """One bucket of mutations. With neither user nor client id it is the whole cluster's.

    >>> [usage.user for usage in admin.describe_quota_usage().usages if usage.tokens < 0]
    []
    """

    user: str | None
    """User; None: the bucket is for no particular one."""
    client_id: str | None
    """Client id; None: the bucket is for no particular one; empty: clients that do not name themselves."""
    mutation_rate: float
    """Partitions a second that were created and deleted, over the windows of quotas."""
    refused_rate: float
    """Partitions a second that were refused, over the windows of quotas."""
    tokens: float
    """Tokens now; negative means debt."""
    limit_rate: float
    """Partitions a second that the quota allows."""
    limit_burst: float
    """Most tokens that the bucket holds."""
    throttle_s: float
    """How long its callers have to wait now, in seconds; 0: not at all."""
    idle_s: float | None
    """Time since it was last used, in seconds; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientUsage:
    """What one entity with a quota of bytes or of time does at one broker.

    >>> usages = admin.describe_client_usage()
    >>> [one.client_id for some in usages.values() if isinstance(some, tuple) for one in some if one.wait_s > 60]
    []
    """

    broker: int
    """Which measures it; each does so by itself."""
    quota: str
    """``producer_byte_rate``, ``consumer_byte_rate`` or ``request_percentage``."""
    user: str | None
    """User; None: for no particular one."""
    client_id: str | None
    """Client id; None: for no particular one; empty: clients that do not name themselves."""
    rate: float
    """Bytes a second, or percent, over the windows of quotas."""
    limit: float
    """What the quota allows at this broker."""
    wait_s: float
    """For how long it has to wait now, in seconds; 0: not at all."""
    idle_s: float
    """Time since it did something, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWait:
    """How long what waited for the controller waited."""

    bounds_s: tuple[float, ...]
    """Upper bounds of the buckets but the last, in seconds, ascending."""
    counts: tuple[int, ...]
    """How many waited so long; one more than there are bounds."""

    def since(self, before: "QueueWait | None") -> "QueueWait":
        """What came after an earlier look at the same process; all of it where that does not fit."""
        if (
            before is None
            or before.bounds_s != self.bounds_s
            or any(now < then for now, then in zip(self.counts, before.counts, strict=True))
        ):
            return self
        counts = tuple(now - then for now, then in zip(self.counts, before.counts, strict=True))
        return QueueWait(bounds_s=self.bounds_s, counts=counts)

    def quantile_s(self, share: float) -> float | None:
        """A time within which that share waited, as exact as the bounds are; None without any, inf above the last."""
        total, seen = sum(self.counts), 0
        for bound_s, count in zip((*self.bounds_s, float("inf")), self.counts, strict=True):
            seen += count
            if total and seen >= share * total:
                return bound_s
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaUsages:
    """Use of quotas by client, as of now.

    >>> admin.describe_quota_usage().held_calls
    0
    """

    quota_id: int | None
    """Quota process that decides; None: none answers, and the controller decides in its place."""
    usages: tuple[QuotaUsage, ...]
    """Buckets, those used last first."""
    buckets: int
    """Buckets that were used within the last hour, also those that are not named."""
    muted_connections: int
    """Connections of clients to the controller that have to wait before their next call."""
    held_calls: int
    """Calls of such connections that are held."""
    queue_waits: Mapping[str, QueueWait] = field(default_factory=dict)
    """How long what waited for the controller waited, since its process began, by kind."""


def client_usages_from_wire(message: figures_pb2.DescribeClientUsageResponse) -> tuple[ClientUsage, ...]:
    """Read what a broker says."""
    return tuple(
        ClientUsage(
            broker=message.broker_id,
            quota=one.quota,
            user=one.user if one.HasField("user") else None,
            client_id=one.client_id if one.HasField("client_id") else None,
            rate=one.rate,
            limit=one.limit,
            wait_s=seconds_of(one.wait),
            idle_s=seconds_of(one.idle),
        )
        for one in message.usages
    )


def usages_from_wire(message: admin_pb2.DescribeQuotaUsageResponse) -> QuotaUsages:
    """Read an answer."""
    return QuotaUsages(
        quota_id=None if message.quota_id < 0 else message.quota_id,
        usages=tuple(map(_usage, message.usages)),
        buckets=message.buckets,
        muted_connections=message.muted_connections,
        held_calls=message.held_calls,
        queue_waits={
            one.kind: QueueWait(bounds_s=tuple(one.bounds_s), counts=tuple(one.counts)) for one in message.queue_waits
        },
    )


def _usage(message: admin_pb2.QuotaUsage) -> QuotaUsage:
    return QuotaUsage(
        user=message.user if message.HasField("user") else None,
        client_id=message.client_id if message.HasField("client_id") else None,
        mutation_rate=message.mutation_rate,
        refused_rate=message.refused_rate,
        tokens=message.tokens,
        limit_rate=message.limit_rate,
        limit_burst=message.limit_burst,
        throttle_s=message.throttle_time_ms / 1000,
        idle_s=None if message.idle_ms < 0 else message.idle_ms / 1000,
    )
