"""What was seen of a cluster, as values. Pure. Times are seconds since 1970 by the clock of the load's Pod."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class Kind(enum.Enum):
    """What was done to the cluster."""

    ROLLING = "rolling restart"
    DRAIN = "drain"
    FORCE = "force"
    STOPPED = "stopped process"
    ALL_PODS = "all pods"
    STORE_AWAY = "store away"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """One thing that was done."""

    kind: Kind
    what: str
    """To whom, in words."""
    begin: float
    """When it began."""
    end: float
    """When every Pod was Ready and every partition complete again, or that was given up."""
    settled: bool
    """Whether that came to be."""
    notes: Mapping[str, float | str] = field(default_factory=dict)
    """Figures of its own: seconds until the Pod was back, refused evictions, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A partition without an acknowledgement."""

    partition: int
    begin: float
    end: float

    @property
    def length_s(self) -> float:
        """Seconds."""
        return self.end - self.begin


@dataclass(frozen=True, slots=True, kw_only=True)
class BelowMinimum:
    """A partition with fewer replicas in sync than it needs."""

    topic: str
    partition: int
    begin: float
    end: float
    in_sync: int
    """The fewest; 0: it had no leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Second:
    """What the load says once a second."""

    at: float
    acked: int
    """Acknowledged records so far."""
    failed: int
    """Records given up so far."""
    worst_ms: int
    """Longest wait for an acknowledgement that ended in this second."""
    silent_ms: int
    """For how long the slowest partition has been without one, now."""
    late_ms: int
    """How late the load's own event loop was at worst: what it measures is no better than that."""
    under_replicated: int
    """Partitions that want a replica; -1: nobody answers."""
    controller: int
    """Election id of the controller; -1: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBack:
    """What became of the records."""

    acknowledged: int
    failed: int
    found: int
    lost: int
    doubled: int
    moved: int
    out_of_order: int
    invented: int
    read_again: int
    """Records that the reader who read along was given twice or backwards."""
    states: int
    """States of partitions that came from the event log: how many are in sync is known of no other moment."""

    @property
    def wrong(self) -> int:
        """Records that are not as was said."""
        return self.lost + self.doubled + self.moved + self.out_of_order + self.invented + self.read_again


@dataclass(frozen=True, slots=True, kw_only=True)
class PodChange:
    """A Pod came, went, restarted, became Ready or ceased to be."""

    at: float
    pod: str
    uid: str
    ready: bool
    restarts: int
    gone: bool


class Gate(enum.Enum):
    """What stops somebody who is to be refused."""

    NETWORK = "a network policy"
    HANDSHAKE = "the TLS handshake"
    RULES = "access rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Somebody who is to be refused has tried."""

    what: str
    """In words."""
    gate: Gate
    """What was to stop it."""
    connected: bool
    """Whether the network let it through."""
    done: bool
    """Whether it did what it wanted."""
    reason: str
    """Of the error; empty: none."""
    message: str
    """Its words."""
    counted: Mapping[str, float]
    """What counters of brokers and election processes gained meanwhile, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything."""

    overlay: str
    ready_s: float | None
    """From ``kubectl apply`` until every Pod was Ready; None: it stood there already, or never was."""
    disturbances: Sequence[Disturbance]
    stalls: Sequence[Stall]
    below: Sequence[BelowMinimum]
    seconds: Sequence[Second]
    pods: Sequence[PodChange]
    read_back: ReadBack | None
    """None: the load did not come to its end."""
    attempts: Sequence[Attempt] = ()
    """Of those who are to be refused."""
    broken_off: str = ""
    """Why not everything that was wanted was done; empty: it was."""
    machine: Mapping[str, float | str] = field(default_factory=dict)
    """What else was going on: load averages, processors."""

    def stalls_in(self, disturbance: Disturbance) -> list[Stall]:
        """Those that overlap it."""
        return [one for one in self.stalls if one.end > disturbance.begin and one.begin < disturbance.end]

    def restarts_in(self, disturbance: Disturbance) -> int:
        """Containers that restarted in their Pod: nobody asked for that, other than the one whose process hung."""
        before: dict[str, int] = {}
        count = 0
        for change in self.pods:
            if disturbance.begin <= change.at <= disturbance.end:
                count += max(0, change.restarts - before.get(change.uid, 0))
            before[change.uid] = max(change.restarts, before.get(change.uid, 0))
        return count
