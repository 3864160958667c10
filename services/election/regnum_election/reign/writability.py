"""What brokers say of whether they can be written to: hints, which people look at and which decide nothing."""

from dataclasses import dataclass

from regnum_model.ids import BrokerEpoch, BrokerId, PartitionKey


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSaid:
    """How the disk of a broker's log directory is."""

    broker: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch."""
    free_bytes: int | None
    """Free for the broker; None: not known."""
    size_bytes: int | None
    """Of the whole disk; None: not known."""
    refuses_because: str
    """Why it appends no records; empty: it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitsWait:
    """Partitions that a broker leads in which records have waited for seconds, and nothing was committed."""

    broker: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch."""
    keys: frozenset[PartitionKey]
    """All of them that it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenersSaid:
    """Whether a broker's listeners take connections."""

    broker: BrokerId
    epoch: BrokerEpoch
    """Its broker epoch."""
    turn_away_because: str
    """Why they do not; empty: they do."""
