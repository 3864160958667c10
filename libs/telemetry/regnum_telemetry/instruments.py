"""Every metric that a process of ours has: name, unit, labels, meaning. The one funnel for their names. Pure.

Names are OpenTelemetry's (dots, no unit); what Prometheus makes of them is ``Instrument.prometheus``. A process of a
service shows the instruments that name it in ``services``; ``docs/operations.md`` lists them all, and a test compares.

Labels are of bounded size: kinds of things that the code knows, or ids of brokers, of which only those that have
something to show are shown, and at most ``regnum_telemetry.metrics.SERIES_MAX``. Topics, partitions, users and client
ids are never labels: whoever wants to know *which* partition asks `regnum status`.
"""

import enum
from dataclasses import dataclass
from typing import Final

from regnum_telemetry import conventions


class Kind(enum.Enum):
    """What an instrument counts."""

    COUNTER = "counter"
    """A sum that only grows."""
    GAUGE = "gauge"
    """A value as of now."""
    HISTOGRAM = "histogram"
    """How often which values came."""


ELECTION: Final = "election"
METADATA: Final = "metadata"
QUOTA: Final = "quota"
BROKER: Final = "broker"
ALL_SERVICES: Final = (ELECTION, METADATA, QUOTA, BROKER)

LATENCY_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds for what usually takes milliseconds, in seconds."""

SUFFIXES: Final = {"s": "_seconds", "By": "_bytes"}
"""Units that Prometheus has in a name."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Instrument:
    """One metric."""

    name: str
    """OpenTelemetry's name."""
    kind: Kind
    """What it counts."""
    unit: str
    """UCUM: ``s``, ``By``, or ``{things}``."""
    description: str
    """A sentence for people."""
    services: tuple[str, ...]
    """Services whose processes have it."""
    labels: tuple[str, ...] = ()
    """Names of its labels."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, ascending, in its unit."""

    @property
    def prometheus(self) -> str:
        """Its name in the text that Prometheus reads; a histogram's series add ``_bucket``, ``_sum`` and ``_count``."""
        name = self.name.replace(".", "_") + SUFFIXES.get(self.unit, "")
        return name + "_total" if self.kind is Kind.COUNTER else name


INSTRUMENTS: Final[list[Instrument]] = []
"""All of them, in the order of this file."""


def _made(
    kind: Kind,
    name: str,
    unit: str,
    description: str,
    *services: str,
    labels: tuple[str, ...] = (),
    bounds: tuple[float, ...] = (),
) -> Instrument:
    made = Instrument(
        name=name,
        kind=kind,
        unit=unit,
        description=description,
        services=services or ALL_SERVICES,
        labels=labels,
        bounds=bounds,
    )
    INSTRUMENTS.append(made)
    return made


# Every process.

LOOP_LAG: Final = _made(
    Kind.HISTOGRAM,
    "regnum.loop.lag",
    "s",
    "How late an event loop runs, measured 20 to 50 times a second; more than 50 ms is a defect (safety rule S22)",
    labels=("loop",),
    bounds=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0),
)

STORE_CALLS: Final = _made(
    Kind.HISTOGRAM,
    "regnum.store.call.duration",
    "s",
    "Calls of the coordination store; outcome is ok or the name of the error",
    labels=("operation", "outcome"),
    bounds=LATENCY_S,
)

SPANS_DROPPED: Final = _made(
    Kind.COUNTER,
    conventions.SPANS_DROPPED,
    "{spans}",
    "Spans that found the queue full, or whose export failed",
)

# The controller: an election process that does not reign has the first only, with the value 0.

CONTROLLER_ACTIVE: Final = _made(
    Kind.GAUGE,
    "regnum.controller.active",
    "{controllers}",
    "1 in the process that is the controller, 0 in its standbys; the sum over a cluster is 1",
    ELECTION,
)

CONTROLLER_EPOCH: Final = _made(
    Kind.GAUGE, "regnum.controller.epoch", "{epochs}", "Controller epoch of the reign", ELECTION
)

EVENT_QUEUE_DEPTH: Final = _made(
    Kind.GAUGE,
    "regnum.controller.event.queue.depth",
    "{events}",
    "What waits for the controller: events of the cluster, reported partitions and topics, mutations",
    ELECTION,
    labels=("kind",),
)

EVENT_DURATION: Final = _made(
    Kind.HISTOGRAM,
    "regnum.controller.event.duration",
    "s",
    "Time from taking an event, or a step of a mutation, until it is done, by kind; the store's answers are in it",
    ELECTION,
    labels=("event",),
    bounds=LATENCY_S,
)

ELECTIONS: Final = _made(
    Kind.COUNTER,
    "regnum.controller.leader.elections",
    "{partitions}",
    "Leader epochs begun: from (isr, elr, first; unclean: records may be lost), or none when nobody may lead",
    ELECTION,
    labels=("from",),
)

FAILOVER_DURATION: Final = _made(
    Kind.HISTOGRAM,
    "regnum.controller.failover.duration",
    "s",
    "From the first sign of a broker's or controller's end until all new leaders, or brokers, have acknowledged",
    ELECTION,
    labels=("victim",),
    bounds=(0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0),
)

ORDERS_OUTSTANDING: Final = _made(
    Kind.GAUGE,
    "regnum.controller.orders.outstanding",
    "{orders}",
    "LeaderAndIsr and StopReplica orders that a live broker has not acknowledged; brokers without any are left out",
    ELECTION,
    labels=("broker",),
)

ORDERS_OLDEST_AGE: Final = _made(
    Kind.GAUGE,
    "regnum.controller.orders.oldest.age",
    "s",
    "Age of the oldest of these orders of a broker",
    ELECTION,
    labels=("broker",),
)

ORDERS_OVERDUE: Final = _made(
    Kind.GAUGE,
    "regnum.controller.orders.overdue",
    "{orders}",
    "Orders that live brokers have not acknowledged for longer than --order-overdue-s, of all brokers",
    ELECTION,
)

CLUSTER_BROKERS: Final = _made(
    Kind.GAUGE, "regnum.controller.brokers", "{brokers}", "Registered brokers, as the controller sees them", ELECTION
)

CLUSTER_TOPICS: Final = _made(Kind.GAUGE, "regnum.controller.topics", "{topics}", "Topics", ELECTION)

CLUSTER_PARTITIONS: Final = _made(Kind.GAUGE, "regnum.controller.partitions", "{partitions}", "Partitions", ELECTION)

PARTITIONS_TROUBLED: Final = _made(
    Kind.GAUGE,
    "regnum.controller.partitions.troubled",
    "{partitions}",
    "Partitions without a leader, with fewer members in sync than min.insync.replicas, or than replicas",
    ELECTION,
    labels=("trouble",),
)

PARTITIONS_TROUBLED_LONG: Final = _made(
    Kind.GAUGE,
    "regnum.controller.partitions.troubled.long",
    "{partitions}",
    "Those of them that have been so for longer than --trouble-overdue-s",
    ELECTION,
    labels=("trouble",),
)

PUBLISHED_VERSION: Final = _made(
    Kind.GAUGE,
    "regnum.controller.metadata.version",
    "{versions}",
    "Version of the last metadata that the controller published",
    ELECTION,
)

ADMISSIONS: Final = _made(
    Kind.COUNTER,
    "regnum.controller.admissions",
    "{topics}",
    "Mutations that a quota admitted or throttled, and who decided: the quota process, or the controller in its place",
    ELECTION,
    labels=("decision", "by"),
)

EVENTS_WRITTEN: Final = _made(
    Kind.COUNTER,
    "regnum.event.log.written",
    "{events}",
    "Events that the event log took: of this process's own reigns, and of those that it followed",
    ELECTION,
)

EVENTS_DROPPED: Final = _made(
    Kind.COUNTER,
    "regnum.event.log.dropped",
    "{events}",
    "Events that are not in the event log: its queue was full, or its directory could not be written for too long",
    ELECTION,
)

EVENT_LOG_ON_DISK: Final = _made(
    Kind.GAUGE,
    "regnum.event.log.on.disk",
    "",
    "1 while the event log is written to disk, 0 while its directory cannot be written and memory has the newest",
    ELECTION,
)

# Metadata.

METADATA_VERSION: Final = _made(
    Kind.GAUGE, "regnum.metadata.version", "{versions}", "Version of the metadata that this process has", METADATA
)

BROKERS_SERVED: Final = _made(
    Kind.GAUGE, "regnum.metadata.brokers.served", "{brokers}", "Brokers that this process serves", METADATA
)

BROKERS_BEHIND: Final = _made(
    Kind.GAUGE,
    "regnum.metadata.brokers.behind",
    "{brokers}",
    "Brokers among them that have not acknowledged the newest version",
    METADATA,
)

BROKER_LAG: Final = _made(
    Kind.GAUGE,
    "regnum.metadata.broker.lag",
    "{versions}",
    "How many versions a broker is behind; brokers that are not are left out",
    METADATA,
    labels=("broker",),
)

# Quota.

QUOTA_ACTIVE: Final = _made(
    Kind.GAUGE, "regnum.quota.active", "{processes}", "1 in the process that decides, 0 in its standbys", QUOTA
)

QUOTA_ADMISSIONS: Final = _made(
    Kind.COUNTER,
    "regnum.quota.admissions",
    "{mutations}",
    "Mutations judged: admitted or throttled",
    QUOTA,
    labels=("decision",),
)

QUOTA_BUCKETS: Final = _made(Kind.GAUGE, "regnum.quota.buckets", "{buckets}", "Token buckets that are kept", QUOTA)

QUOTA_TOKENS_LEAST: Final = _made(
    Kind.GAUGE,
    "regnum.quota.tokens.least",
    "{tokens}",
    "Tokens of the bucket that had the fewest when it was drawn on last; below 0: it is in debt",
    QUOTA,
)

# Broker.

REPLICAS: Final = _made(
    Kind.GAUGE,
    "regnum.broker.replicas",
    "{partitions}",
    "Replicas of this broker by role: leader, follower, idle (not told, or told to stop)",
    BROKER,
    labels=("role",),
)

UNDER_REPLICATED: Final = _made(
    Kind.GAUGE,
    "regnum.broker.partitions.under_replicated",
    "{partitions}",
    "Partitions led here whose in-sync set lacks an assigned replica",
    BROKER,
)

UNDER_MIN_ISR: Final = _made(
    Kind.GAUGE,
    "regnum.broker.partitions.under_min_isr",
    "{partitions}",
    "Partitions led here whose in-sync set is smaller than min.insync.replicas: acks=all is refused",
    BROKER,
)

REPLICAS_OFFLINE: Final = _made(
    Kind.GAUGE,
    "regnum.broker.replicas.offline",
    "{partitions}",
    "Replicas that this broker cannot use: damaged files, or a failed disk",
    BROKER,
)

ISR_SHRINKS: Final = _made(
    Kind.COUNTER, "regnum.broker.isr.shrinks", "{partitions}", "In-sync sets that this leader made smaller", BROKER
)

ISR_EXPANDS: Final = _made(
    Kind.COUNTER, "regnum.broker.isr.expands", "{partitions}", "In-sync sets that this leader made larger", BROKER
)

BYTES_IN: Final = _made(Kind.COUNTER, "regnum.broker.produced", "By", "Bytes of record batches appended", BROKER)

RECORDS_IN: Final = _made(
    Kind.COUNTER, "regnum.broker.produced.records", "{records}", "Records of producers appended", BROKER
)

BATCHES_REFUSED: Final = _made(
    Kind.COUNTER,
    "regnum.broker.produce.refused",
    "{batches}",
    "Batches that were not acknowledged, for whatever reason",
    BROKER,
)

BYTES_OUT: Final = _made(Kind.COUNTER, "regnum.broker.fetched", "By", "Bytes of records sent to consumers", BROKER)

RECORDS_OUT: Final = _made(
    Kind.COUNTER, "regnum.broker.fetched.records", "{records}", "Records of batches sent to consumers", BROKER
)

PRODUCE_DURATION: Final = _made(
    Kind.HISTOGRAM,
    "regnum.broker.produce.duration",
    "s",
    "Produce calls from their arrival to their answer; with acks=all the followers are in it",
    BROKER,
    bounds=LATENCY_S,
)

FETCH_DURATION: Final = _made(
    Kind.HISTOGRAM,
    "regnum.broker.fetch.duration",
    "s",
    "Fetch calls of consumers from their arrival to their answer; the wait for records that they ask for is in it",
    BROKER,
    bounds=LATENCY_S,
)

WRITER_JOBS: Final = _made(
    Kind.GAUGE, "regnum.broker.log.writer.jobs", "{jobs}", "Jobs that the log writer has not finished", BROKER
)

WRITER_BYTES: Final = _made(
    Kind.GAUGE,
    "regnum.broker.log.writer.pending",
    "By",
    "Bytes of records in these jobs",
    BROKER,
)

WRITER_WAIT: Final = _made(
    Kind.HISTOGRAM,
    "regnum.broker.log.writer.wait",
    "s",
    "Time that a job waited for the log writer, and for room in its queue",
    BROKER,
    bounds=LATENCY_S,
)

WRITER_RUN: Final = _made(
    Kind.HISTOGRAM,
    "regnum.broker.log.writer.run",
    "s",
    "Time that the log writer worked on a job; more than 0.1 s is a line in the log",
    BROKER,
    bounds=LATENCY_S,
)

GROUPS: Final = _made(
    Kind.GAUGE, "regnum.broker.groups", "{groups}", "Consumer groups that this broker coordinates", BROKER
)

GROUP_MEMBERS: Final = _made(
    Kind.GAUGE, "regnum.broker.group.members", "{members}", "Members of these groups, all together", BROKER
)

GROUP_REBALANCES: Final = _made(
    Kind.COUNTER,
    "regnum.broker.group.rebalances",
    "{rebalances}",
    "Generations that consumer groups have begun; many, though no members come and go: some are too slow",
    BROKER,
)

OFFSETS_COMMITTED: Final = _made(
    Kind.COUNTER, "regnum.broker.group.offsets.committed", "{offsets}", "Offsets that groups have committed", BROKER
)

OFFSET_COMMIT_DURATION: Final = _made(
    Kind.HISTOGRAM,
    "regnum.broker.group.commit.duration",
    "s",
    "Commits of offsets from their arrival to their answer, refused ones included; the followers are in it",
    BROKER,
    bounds=LATENCY_S,
)

GROUP_LOAD_DURATION: Final = _made(
    Kind.HISTOGRAM,
    "regnum.broker.group.load.duration",
    "s",
    "Time from taking over a partition of __consumer_offsets until all its groups were read",
    BROKER,
    bounds=LATENCY_S,
)
