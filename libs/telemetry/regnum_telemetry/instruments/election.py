"""What an election process shows: of its reign, if it has one, and of its event log. Pure."""

from typing import Final

from regnum_telemetry.instruments.definition import ELECTION, Definitions

DEFINED: Final = Definitions(ELECTION)
"""In the order of this file."""

CONTROLLER_ACTIVE: Final = DEFINED.gauge(
    "regnum.controller.active",
    "{controllers}",
    "1 in the process that is the controller, 0 in its standbys; the sum over a cluster is 1",
    kafka="kafka.controller:type=KafkaController,name=ActiveControllerCount",
)

CONTROLLER_EPOCH: Final = DEFINED.gauge(
    "regnum.controller.epoch",
    "{epochs}",
    "Controller epoch of the reign",
)

STORE_WENT_BACK: Final = DEFINED.gauge(
    "regnum.controller.store.went.back",
    "{stores}",
    "1 while it is proved that the coordination store was put back to an earlier state: nothing is elected or deleted",
)

METADATA_PROCESSES: Final = DEFINED.gauge(
    "regnum.controller.metadata_processes",
    "{processes}",
    "Metadata processes that are registered; at 0 brokers and clients hear of no change of a leader",
)

METADATA_PROCESSES_FAILING: Final = DEFINED.gauge(
    "regnum.controller.metadata_processes.failing",
    "{processes}",
    "Metadata processes that have taken no changes for --order-overdue-s, though there were some: the brokers that "
    "they serve hear of none",
)

STORE_WRITES_REFUSED: Final = DEFINED.gauge(
    "regnum.controller.store.writes_refused",
    "{stores}",
    "1 while the coordination store takes no writes: no leader is elected and nothing is changed",
)

STORE_WRITE_TIME: Final = DEFINED.gauge(
    "regnum.controller.store.write_time",
    "s",
    "Time that the coordination store took for the last write that it was asked for to see whether it takes writes",
)

EVENT_QUEUE_DEPTH: Final = DEFINED.gauge(
    "regnum.controller.event.queue.depth",
    "{events}",
    "What waits for the controller: events of the cluster, reported partitions and topics, mutations",
    labels=("kind",),
)

EVENT_QUEUE_WAIT: Final = DEFINED.histogram(
    "regnum.controller.event.queue.wait",
    "s",
    "Time from putting an event or a mutation into the queue until the controller begins with it; of reports, "
    "which merge while they wait, that of the oldest",
    labels=("kind",),
    kafka="kafka.controller:type=ControllerEventManager,name=EventQueueTimeMs",
)

EVENT_DURATION: Final = DEFINED.histogram(
    "regnum.controller.event.duration",
    "s",
    "Time from taking an event, or a step of a mutation, until it is done, by kind; the store's answers are in it",
    labels=("event",),
    kafka="kafka.controller:type=ControllerEventManager,name=EventQueueProcessingTimeMs",
)

ELECTIONS: Final = DEFINED.counter(
    "regnum.controller.leader.elections",
    "{partitions}",
    "Leader epochs begun: from (isr, elr, first; unclean: records may be lost), or none without an eligible leader",
    labels=("from",),
    kafka="kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs and UncleanLeaderElectionsPerSec",
)

FAILOVER_DURATION: Final = DEFINED.histogram(
    "regnum.controller.failover.duration",
    "s",
    "From the first sign of a broker's or controller's end until all new leaders, or brokers, have acknowledged",
    labels=("victim",),
    bounds=(0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0),
)

CHANGES: Final = DEFINED.counter(
    "regnum.changes",
    "{changes}",
    "Changes of leadership that began, by kind: broker failure, controlled shutdown, balance, reassignment, election by"
    " request, unclean election, recovery, succession",
    labels=("kind",),
)

CHANGES_ENDED: Final = DEFINED.counter(
    "regnum.changes.ended",
    "{changes}",
    "Those of them that are over; complete: whether every new leader acknowledged while it was waited for. Up to 36 s"
    " behind the others; a change whose controller ends is never among them, and its trace has no root",
    labels=("kind", "complete"),
)

CHANGE_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.0, 5.0, 15.0)
"""Bounds for what changes of leadership take, in seconds."""

CHANGE_STAGE: Final = DEFINED.histogram(
    "regnum.change.stage",
    "s",
    "Stages of changes of leadership, each named by what it ends with, as `regnum failovers report` names them: noticed"
    " (from the first sign of a failure in any process), detected, fenced, won, loaded, decided, written, verified,"
    " dispatched (all new leaders have answered), acknowledged (to the producers of all partitions). The stages of a"
    " change add up to its length; OpenMetrics has the ids of traces",
    labels=("kind", "stage"),
    bounds=CHANGE_S,
)

CLIENT_OUTAGE: Final = DEFINED.histogram(
    "regnum.client.outage",
    "s",
    "From the beginning of a change of leadership to the first acknowledgement of each partition that producers were"
    " using, as its new leader reports it; OpenMetrics has the ids of traces",
    labels=("kind",),
    bounds=CHANGE_S,
)

CLIENT_OUTAGES_UNHEARD: Final = DEFINED.counter(
    "regnum.client.outages.unheard",
    "{partitions}",
    "Partitions that producers had been using and whose new leader acknowledged nothing within 5 s: the producers are"
    " gone, or wait for longer; they are not among the outages",
    labels=("kind",),
)

ORDERS_OUTSTANDING: Final = DEFINED.gauge(
    "regnum.controller.orders.outstanding",
    "{orders}",
    "LeaderAndIsr and StopReplica orders that a live broker has not acknowledged; brokers without any are left out",
    labels=("broker",),
)

ORDERS_OLDEST_AGE: Final = DEFINED.gauge(
    "regnum.controller.orders.oldest.age",
    "s",
    "Age of the oldest of these orders of a broker",
    labels=("broker",),
)

ORDERS_OVERDUE: Final = DEFINED.gauge(
    "regnum.controller.orders.overdue",
    "{orders}",
    "Orders that live brokers have not acknowledged for longer than --order-overdue-s, of all brokers",
)

CLUSTER_BROKERS: Final = DEFINED.gauge(
    "regnum.controller.brokers",
    "{brokers}",
    "Registered brokers, as the controller sees them",
    kafka="kafka.controller:type=KafkaController,name=ActiveBrokerCount",
)

BROKERS_REFUSED: Final = DEFINED.gauge(
    "regnum.controller.brokers.refused",
    "{brokers}",
    "Brokers that are registered and take no part: another release, or an address that stands for another process",
)

NODES_DAMAGED: Final = DEFINED.gauge(
    "regnum.controller.nodes.damaged",
    "{nodes}",
    "Nodes in the store that are damaged or were edited, and wait for a person",
)

CLUSTER_TOPICS: Final = DEFINED.gauge(
    "regnum.controller.topics",
    "{topics}",
    "Topics",
    kafka="kafka.controller:type=KafkaController,name=GlobalTopicCount",
)

CLUSTER_PARTITIONS: Final = DEFINED.gauge(
    "regnum.controller.partitions",
    "{partitions}",
    "Partitions",
    kafka="kafka.controller:type=KafkaController,name=GlobalPartitionCount",
)

PARTITIONS_TROUBLED: Final = DEFINED.gauge(
    "regnum.controller.partitions.troubled",
    "{partitions}",
    "Partitions without a leader, with fewer members in sync than min.insync.replicas, or than replicas",
    labels=("trouble",),
    kafka="kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
)

PARTITIONS_TROUBLED_LONG: Final = DEFINED.gauge(
    "regnum.controller.partitions.troubled.long",
    "{partitions}",
    "Those of them that have been so for longer than --trouble-overdue-s",
    labels=("trouble",),
)

PUBLISHED_VERSION: Final = DEFINED.gauge(
    "regnum.controller.metadata.version",
    "{versions}",
    "Version of the last metadata that the controller published",
)

ADMISSIONS: Final = DEFINED.counter(
    "regnum.controller.admissions",
    "{topics}",
    "Mutations that a quota admitted or throttled, and what decided: the quota process, or the controller in its place",
    labels=("decision", "by"),
)

MUTED_CONNECTIONS: Final = DEFINED.gauge(
    "regnum.controller.muted.connections",
    "{connections}",
    "Connections of clients that are over their quota of mutations: their further calls are held",
    kafka="kafka.server:type=ControllerMutation,attribute queue-size",
)

HELD_CALLS: Final = DEFINED.gauge(
    "regnum.controller.held.calls",
    "{calls}",
    "Calls of muted connections that wait",
)

HELD_CALLS_REFUSED: Final = DEFINED.counter(
    "regnum.controller.held.calls.refused",
    "{calls}",
    "Calls of muted connections that were refused: 100 of that connection waited, or the deadline had passed",
)

EVENTS_WRITTEN: Final = DEFINED.counter(
    "regnum.event.log.written",
    "{events}",
    "Events that the event log took: of this process's own reigns, and of those that it followed",
)

EVENTS_DROPPED: Final = DEFINED.counter(
    "regnum.event.log.dropped",
    "{events}",
    "Events that are not in the event log: its queue was full, or its directory could not be written for too long",
)

EVENT_LOG_ON_DISK: Final = DEFINED.gauge(
    "regnum.event.log.on.disk",
    "",
    "1 while the event log is written to disk, 0 while its directory cannot be written and memory has the newest",
)

LIFELINES: Final = DEFINED.gauge(
    "regnum.controller.lifelines",
    "{streams}",
    "Lifelines of brokers that are open to this process",
)

LIFELINE_ANSWER: Final = DEFINED.histogram(
    "regnum.controller.lifeline.answer.duration",
    "s",
    "Time from the oldest unanswered probe of a broker's lifeline until its answer: there and back, and "
    "how late both lifeline threads are",
    bounds=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0),
)

LIFELINE_LAG: Final = DEFINED.gauge(
    "regnum.controller.lifeline.lag",
    "s",
    "For how long a broker has not answered the probes of its lifeline; brokers that have answered all are left out; "
    "after 2 s it is fenced (safety rule S9)",
    labels=("broker",),
)
