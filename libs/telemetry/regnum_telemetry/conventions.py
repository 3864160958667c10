"""Every name that spans and metrics carry. Written by services and the SDK, read by the analysis. Pure.

A change of leadership is one trace. The controller makes its root (LEADERSHIP_CHANGE; in release 0.1 FAILOVER,
SUCCESSION or RECOVERY), which holds the boundaries of the controller's steps as attributes. Later boundaries are ends
of other spans of the same trace, in other processes. ``regnum_insight.attribution`` derives the steps of an outage.
"""

from typing import Final, NamedTuple

# One change of leadership: one trace, one root.

LEADERSHIP_CHANGE: Final = "regnum.leadership_change"
"""Root of every change of leadership, whatever began it. Made by the controller.

Of a failure it begins at "failed": the first connection to the victim that any process saw break, or the last sign of
life where none broke. Of a planned change it begins when its request or decision arrived. It ends when the leaders have
reported the first acknowledgement of every partition that had producers, and clients have had time to get theirs; or
5 s after the last order was answered. Its id is the end of the trace id.
"""

CHANGE_KIND: Final = "regnum.leadership_change.kind"
"""On LEADERSHIP_CHANGE: one of the KIND_ values."""

KIND_BROKER_FAILURE: Final = "broker failure"
"""Value of CHANGE_KIND: a broker was killed, froze, or lost its registration; CAUSE says which."""
KIND_CONTROLLED_SHUTDOWN: Final = "controlled shutdown"
"""Value of CHANGE_KIND: a broker asked to be relieved of its leaderships before it ends."""
KIND_BALANCE: Final = "balance"
"""Value of CHANGE_KIND: preferred leaders got their partitions back."""
KIND_REASSIGNMENT: Final = "reassignment"
"""Value of CHANGE_KIND: a replica list without the leader was completed."""
KIND_ELECTION: Final = "election by request"
"""Value of CHANGE_KIND: ElectLeaders, preferred."""
KIND_UNCLEAN: Final = "unclean election"
"""Value of CHANGE_KIND: ElectLeaders, unclean, or a topic's unclean.leader.election.enable."""
KIND_RECOVERY: Final = "recovery"
"""Value of CHANGE_KIND: a person accepted what is lost."""
KIND_RETURN: Final = "broker returned"
"""Value of CHANGE_KIND: partitions without a leader got one because a broker that may lead them registered."""
KIND_SUCCESSION: Final = "succession"
"""Value of CHANGE_KIND: a controller is gone, or resigned, and a standby took its office."""

LEGACY_NAME: Final = "regnum.leadership_change.legacy_name"
"""On LEADERSHIP_CHANGE: name of the root before 0.2 (``regnum.failover``, ``regnum.succession``,
``regnum.partition.recovery``); absent on kinds that had no root. For one release."""

FAILED_UNIX_NANO: Final = "regnum.leadership_change.failed_unix_nano"
"""Boundary on the root of a failure: its beginning; int."""

FAILED_SEEN_BY: Final = "regnum.leadership_change.failed_seen_by"
"""What saw the failure first: ``lifeline``, ``follower fetch``, ``standby``, ``registration`` or ``last sign of
life``; with the id of the process behind a space."""

NOTICED_UNIX_NANO: Final = "regnum.leadership_change.noticed_unix_nano"
"""Boundary on a root: the acting controller knew; int."""

ACKNOWLEDGED_UNIX_NANO: Final = "regnum.leadership_change.acknowledged_unix_nano"
"""Boundary on a root: the last first acknowledgement that leaders reported; int, absent when none came."""

CHANGE_OPENED: Final = "regnum.leadership_change.opened"
"""Span without length below the root, written when the change is noticed: what is left of it when the controller dies.
Carries the root's attributes as far as they are known."""

UNDETECTED: Final = "regnum.leadership_change.undetected"
"""From "failed" to "noticed"."""

ORDER: Final = "regnum.leadership_change.order"
"""One broker's orders of one change, from the first that is put into its queue to the last answer. Parent of its
LeaderAndIsr calls. BROKER says which."""

LEADER_JOURNAL: Final = "regnum.broker.become_leader.journal"
"""Inside BECOME_LEADER: what is ordered is noted on disk."""
LEADER_EPOCHS: Final = "regnum.broker.become_leader.epochs"
"""Inside BECOME_LEADER: leader epochs begin in the logs."""
LEADER_ROLES: Final = "regnum.broker.become_leader.roles"
"""Inside BECOME_LEADER: replicas take their roles."""
LEADER_FETCHERS: Final = "regnum.broker.become_leader.fetchers"
"""Inside BECOME_LEADER: fetchers of what was followed before end."""

MIN_ISR_WAIT: Final = "regnum.broker.min_isr_wait"
"""A new leader's first batch is not yet allowed: from the first refusal to the ISR that allows it."""

HIGH_WATERMARK_WAIT: Final = "regnum.broker.high_watermark_wait"
"""From the end of a new leader's first append to the high watermark that covers it."""

FIRST_ANSWER: Final = "regnum.broker.first_answer"
"""A leader's part of the call with which a client came back (SERVER), below the client's SEND_TO_TOPIC or
CONSUMER_OUTAGE."""

PROBE_MISSED: Final = "regnum.lifeline.probe_missed"
"""A probe of the lifeline without an answer in time: from its sending to the moment it counted as missed."""

LEARN: Final = "regnum.producer.learn"
"""Inside OUTAGE: from the failed call to the first knowledge of the leadership that acknowledged."""

BACKOFF: Final = "regnum.producer.backoff"
"""Inside OUTAGE: a pause before a batch is sent again."""

SEND_TO_TOPIC: Final = "send {topic}"
"""Name of a CLIENT span inside OUTAGE, with the topic's name in it: the call that was acknowledged first. Linked to the
records' own spans."""

CONSUMER_OUTAGE: Final = "regnum.consumer.outage"
"""One partition as a consumer saw it: from the last answer of the old leader to the first of the new one."""

OUTAGE_BEFORE_ROOT: Final = "regnum.outage.before_root_nano"
"""On OUTAGE and CONSUMER_OUTAGE: how much of it lies before the root's beginning, where the leader named that; int."""

# Spans of a failover, in the order of cause and effect.

FAILOVER: Final = "regnum.failover"
"""Root of a broker's failure before 0.2, from the moment its end was noticed until every new leader had acknowledged;
now a value of LEGACY_NAME."""

SUCCESSION: Final = "regnum.succession"
"""Root of a succession before 0.2, until every broker had acknowledged its full set; now a value of LEGACY_NAME."""

DETECTION: Final = "regnum.failover.detection"
"""From the moment the lifeline broke (or the oldest unanswered probe was sent, or the registration went) to the
decision to fence."""

FENCE: Final = "regnum.failover.fence"
"""The registration of the dead broker, or /controller, is taken away."""

DECISION: Final = "regnum.failover.decision"
"""The next states of some partitions are worked out in memory."""

STORE_WRITE: Final = "regnum.store.write"
"""One batch of conditional writes, until every outcome is known."""

DISPATCH: Final = "regnum.failover.dispatch"
"""LeaderAndIsr from the last store write to the last acknowledgement of a new leader. Its calls are spans of their
own."""

BECOME_LEADER: Final = "regnum.broker.become_leader"
"""A broker takes leadership of the partitions of one message: journal, epochs, roles."""

BECOME_FOLLOWER: Final = "regnum.broker.become_follower"
"""A broker takes up the new leader of partitions it follows."""

TRUNCATION: Final = "regnum.broker.truncation"
"""A follower cuts off what the new leader does not have."""

FIRST_APPEND: Final = "regnum.broker.first_append"
"""From a broker's becoming leader of a partition to the first records appended in the new leader epoch, or sent again
and found there already."""

METADATA_APPLIED: Final = "regnum.broker.metadata_applied"
"""A broker takes a change of metadata up."""

RECOVERY: Final = "regnum.partition.recovery"
"""Root before 0.2: partitions that nobody could lead get leaders, because a person accepts what is lost; now a value of
LEGACY_NAME."""

ORDERS_OVERDUE: Final = "regnum.controller.orders_overdue"
"""A live broker has not acknowledged its orders in time: from the oldest order until that was found out. Lies in the
trace of what caused that order; without one it is a trace of its own. Made by the controller."""

TROUBLE_OVERDUE: Final = "regnum.controller.partitions_troubled"
"""Root: partitions have been without a leader, under min.insync.replicas or under-replicated for too long: from the
beginning of it, as this controller saw it, until that was found out."""

OUTAGE: Final = "regnum.producer.outage"
"""One partition as its producer saw it: from the last acknowledgement before to the first after a change of leader or
a failed send. Lies in the failover's trace when the leader named it; without one it is a trace of its own."""

SEND: Final = "regnum.producer.send"
"""Root: one produce call, for calls after failures or a change of leader and a few others. Its remote call is below."""

RETRIED_SEND: Final = "regnum.producer.retried_send"
"""A batch that was acknowledged only after failures: from its first record to its acknowledgement."""

# Which spans a ratio is about.

DATA_SPANS: Final = frozenset({SEND, RETRIED_SEND})
"""Spans of which there may be one for each call of a client. All other spans of our own are the control plane's, and
those of a producer's or a consumer's outage."""

DATA_SERVICES: Final = ("regnum.admin.v1.", "regnum.broker.v1.", "regnum.metadata.v1.")
"""How the names of remote calls begin that clients make: spans of those are a client's as well."""

# Spans of a succession besides those above.

CAMPAIGN: Final = "regnum.succession.campaign"
"""From the fence to the win of the office."""

LOAD: Final = "regnum.succession.load"
"""The store is read."""

VERIFY: Final = "regnum.succession.verify"
"""What was read is fitted to the live brokers."""

INIT_DISPATCH: Final = "regnum.succession.init_dispatch"
"""Every broker is sent its full set."""

# Attributes of roots.

CAUSE: Final = "regnum.failover.cause"
"""What began it: one of the CAUSE_ values."""

CAUSE_LIFELINE: Final = "lifeline broken"
"""Value of CAUSE: the lifeline stream ended and the port refused."""

CAUSE_SILENCE: Final = "silence"
"""Value of CAUSE: probes stayed unanswered."""

CAUSE_NODE: Final = "node gone"
"""Value of CAUSE: the registration, or /controller, went: the session ended, or the process left."""

CAUSE_REGISTERED: Final = "broker registered"
"""Value of CAUSE: a broker came back."""

CAUSE_CUT_OFF: Final = "cut off"
"""Value of CAUSE: a leader and its followers agree that no fetches go between them."""

CAUSE_REPLICAS_OFFLINE: Final = "replicas offline"
"""Value of CAUSE: a live broker cannot use its replicas."""

CAUSE_REQUEST: Final = "request"
"""Value of CAUSE: a call asked for it."""

CAUSE_DECISION: Final = "decision of the controller"
"""Value of CAUSE: the controller found by itself that it was due."""

EVIDENCE: Final = "regnum.failover.evidence"
"""What proved the death, in words."""

VICTIM_KIND: Final = "regnum.failover.victim.kind"
"""``broker`` or ``controller``."""

VICTIM: Final = "regnum.failover.victim.id"
"""Broker id or election id of who is gone; int."""

PARTITIONS: Final = "regnum.partitions"
"""Number of partitions that a span is about; on a root those that needed a leader; int."""

CONTROLLER_ID: Final = "regnum.controller.id"
"""Election id of the acting controller; int."""

CONTROLLER_EPOCH: Final = "regnum.controller.epoch"
"""Epoch of the acting controller; int."""

LAST_HEARD_UNIX_NANO: Final = "regnum.failover.last_heard_unix_nano"
"""When the victim last said anything on its lifeline; int, absent when that is not known."""

DETECTED_UNIX_NANO: Final = "regnum.failover.detected_unix_nano"
"""Boundary on a root: the decision to fence; int."""

FENCED_UNIX_NANO: Final = "regnum.failover.fenced_unix_nano"
"""Boundary on a root: the victim is fenced; int."""

DECIDED_UNIX_NANO: Final = "regnum.failover.decided_unix_nano"
"""Boundary on a root: the first leaders are decided and go to the store; int."""

WRITTEN_UNIX_NANO: Final = "regnum.failover.written_unix_nano"
"""Boundary on a root: the last of the new leaders is written; int."""

DISPATCHED_UNIX_NANO: Final = "regnum.failover.dispatched_unix_nano"
"""Boundary on a root: the last new leader (or, in a succession, broker) has acknowledged its order; int."""

WON_UNIX_NANO: Final = "regnum.succession.won_unix_nano"
"""Boundary on SUCCESSION: the office is won; int."""

LOADED_UNIX_NANO: Final = "regnum.succession.loaded_unix_nano"
"""Boundary on SUCCESSION: the store is read; int."""

VERIFIED_UNIX_NANO: Final = "regnum.succession.verified_unix_nano"
"""Boundary on SUCCESSION: what was read is settled and goes out to the brokers; int."""

COMPLETE: Final = "regnum.failover.complete"
"""On a root: whether every new leader acknowledged before the controller stopped waiting; bool."""

# Attributes of other spans.

BROKER: Final = "regnum.broker.id"
"""Broker id; int. On an outage the leader that acknowledged."""

TROUBLE: Final = "regnum.partition.trouble"
"""On TROUBLE_OVERDUE: ``offline``, ``under-min-isr`` or ``under-replicated``."""

FIRST: Final = "regnum.partitions.first"
"""On BECOME_LEADER, ORDERS_OVERDUE and TROUBLE_OVERDUE: the first of the partitions that it is about, as
``topic/partition``, separated by commas."""

TOPIC: Final = "messaging.destination.name"
"""Topic name."""

PARTITION: Final = "messaging.destination.partition.id"
"""Partition number, as text."""

CLIENT: Final = "regnum.client"
"""Who asked: user, client id and address."""

OFFSET: Final = "messaging.kafka.offset"
"""Base offset of the batch; int."""

LEADER_EPOCH: Final = "regnum.leader_epoch"
"""Leader epoch that a span is about; int."""

MESSAGING_SYSTEM: Final = "messaging.system"
"""Always MESSAGING_SYSTEM_NAME on spans of producers."""

MESSAGING_SYSTEM_NAME: Final = "regnum"
"""Value of MESSAGING_SYSTEM."""

MESSAGE_COUNT: Final = "messaging.batch.message_count"
"""Records of a batch; int."""

ATTEMPTS: Final = "regnum.producer.attempts"
"""How often a batch was sent, or how many attempts to connect were made; int."""

ERROR_TYPE: Final = "error.type"
"""Name of the last error; absent when there was none."""

LAST_ACK_UNIX_NANO: Final = "regnum.producer.last_ack_unix_nano"
"""On OUTAGE: the last acknowledgement before; int. The span's start."""

FIRST_ACK_UNIX_NANO: Final = "regnum.producer.first_ack_unix_nano"
"""On OUTAGE: the first acknowledgement after; int. The span's end."""

LAST_ACK_OFFSET: Final = "regnum.producer.last_ack_offset"
"""On OUTAGE: offset of the batch acknowledged last before; int."""

LAST_ACK_LEADER_EPOCH: Final = "regnum.producer.last_ack_leader_epoch"
"""On OUTAGE: leader epoch of the last acknowledgement before; int."""

LEARNED_UNIX_NANO: Final = "regnum.producer.learned_unix_nano"
"""On OUTAGE: when the producer, with records waiting, first knew of the leadership that acknowledged; int. What lies
before it is the cluster's and the question's share, what lies behind it the producer's and the answer's. On
CONSUMER_OUTAGE: when the leadership that answered was first asked."""

SENT_UNIX_NANO: Final = "regnum.producer.sent_unix_nano"
"""On OUTAGE: when the call that was acknowledged began, on CONSUMER_OUTAGE the fetch that was answered; int."""

WAITING_SINCE_UNIX_NANO: Final = "regnum.producer.waiting_since_unix_nano"
"""On OUTAGE: first record of the batch acknowledged first after; int. Long after LAST_ACK for a producer that was
idle."""

RETRIED: Final = "regnum.producer.retried"
"""On OUTAGE: whether a batch failed in between, on CONSUMER_OUTAGE whether a fetch did; bool. Without it the client had
nothing on its way, and the length is only its own silence: leave the span out of outages."""

FAILOVER_TRACE_ID: Final = "regnum.failover.trace_id"
"""On OUTAGE, CONSUMER_OUTAGE and RETRIED_SEND: trace id (hex) of the change that the new leader named as the cause of
its leadership; absent when it named none. There is a link to it as well."""

TRUNCATED_FROM: Final = "regnum.broker.truncated_from"
"""On TRUNCATION: log end before; int."""

TRUNCATED_TO: Final = "regnum.broker.truncated_to"
"""On TRUNCATION: log end after; int."""

METADATA_VERSION: Final = "regnum.metadata.version"
"""Version of the change of metadata; int."""

WRITES: Final = "regnum.store.writes"
"""On STORE_WRITE: number of groups; int."""

WRITES_REFUSED: Final = "regnum.store.writes_refused"
"""On STORE_WRITE: how many were refused by a condition; int."""

# Remote calls: a span for each side, named ``package.Service/Method``.

RPC_SYSTEM: Final = "rpc.system.name"
"""Always RPC_SYSTEM_NAME."""

RPC_SYSTEM_NAME: Final = "grpc"
"""Value of RPC_SYSTEM."""

RPC_METHOD: Final = "rpc.method"
"""Full name: ``regnum.replication.v1.ReplicaControlService/LeaderAndIsr``."""

RPC_STATUS: Final = "rpc.response.status_code"
"""Name of the gRPC status: ``OK``, ``UNAVAILABLE``."""

SERVER_ADDRESS: Final = "server.address"
"""Host that was called."""

SERVER_PORT: Final = "server.port"
"""Port that was called; int."""

LEADER_AND_ISR: Final = "regnum.replication.v1.ReplicaControlService/LeaderAndIsr"
"""Name of the spans of LeaderAndIsr, both sides."""

PUBLISH_CHANGES: Final = "regnum.propagation.v1.PropagationService/PublishChanges"
"""Name of the spans of PublishChanges, both sides."""

# Resource attributes.

SERVICE_NAME: Final = "service.name"
"""``regnum-election``, ``regnum-broker``, ``regnum-quota``, ``regnum-metadata``, or what a client calls itself."""

SERVICE_INSTANCE: Final = "service.instance.id"
"""Id of the process among those of its service: ``1``."""

SERVICE_NAMESPACE: Final = "service.namespace"
"""Always ``regnum`` in services."""

CLUSTER_ID: Final = "regnum.cluster.id"
"""Id of the cluster, once the process knows it."""

SERVICE_VERSION: Final = "service.version"
"""Version of the product."""

HOST_NAME: Final = "host.name"
"""Host of the process."""

PROCESS_PID: Final = "process.pid"
"""Process id; int."""

START_ID: Final = "regnum.process.start_id"
"""Random id of one run of a process: two runs of the same instance differ in it."""

# Stages.

DETECTION_STAGE: Final = "detection"
"""Until the decision to fence."""

FENCE_STAGE: Final = "fence"
"""Until the victim is fenced."""

DECISION_STAGE: Final = "decision"
"""Until the first new leaders are decided."""

STORE_WRITE_STAGE: Final = "store_write"
"""Until the last new leader is written."""

BECOME_LEADER_STAGE: Final = "become_leader"
"""Until the last broker has taken its leadership up."""

DISPATCH_STAGE: Final = "dispatch"
"""Until the last acknowledgement of it is back at the controller."""

METADATA_STAGE: Final = "metadata"
"""Until the last broker has the new metadata."""

FIRST_APPEND_STAGE: Final = "first_append"
"""Until the last partition whose producer waited has its first records in the new leader epoch."""

FIRST_ACKNOWLEDGED_STAGE: Final = "first_acknowledged"
"""Until the last producer that waited has its acknowledgement."""

CAMPAIGN_STAGE: Final = "campaign"
"""Succession: until the office is won."""

LOAD_STAGE: Final = "load"
"""Succession: until the store is read."""

VERIFY_STAGE: Final = "verify"
"""Succession: until what was read is settled."""


class Stage(NamedTuple):
    """One stage, and where its end is recorded."""

    name: str
    """Name in tables."""
    root_attribute: str | None
    """Attribute of the root that holds the end; None: it is the latest end among spans."""
    span: str | None
    """Name of the spans of the same trace whose latest end it is; None: it is an attribute of the root."""


FAILOVER_STAGES: Final = (
    Stage(DETECTION_STAGE, DETECTED_UNIX_NANO, None),
    Stage(FENCE_STAGE, FENCED_UNIX_NANO, None),
    Stage(DECISION_STAGE, DECIDED_UNIX_NANO, None),
    Stage(STORE_WRITE_STAGE, WRITTEN_UNIX_NANO, None),
    Stage(BECOME_LEADER_STAGE, None, BECOME_LEADER),
    Stage(DISPATCH_STAGE, DISPATCHED_UNIX_NANO, None),
    Stage(METADATA_STAGE, None, METADATA_APPLIED),
    # Counts only as far as some producer waited: see the two constants.
    Stage(FIRST_APPEND_STAGE, None, FIRST_APPEND),
    Stage(FIRST_ACKNOWLEDGED_STAGE, None, OUTAGE),
)
"""Stages of a FAILOVER in order.

Of OUTAGE only spans with RETRIED true count: idle producers come when they come. Of FIRST_APPEND only spans that end
no later than the last such outage; without any outage both stages are 0.
"""

SUCCESSION_STAGES: Final = (
    Stage(DETECTION_STAGE, DETECTED_UNIX_NANO, None),
    Stage(FENCE_STAGE, FENCED_UNIX_NANO, None),
    Stage(CAMPAIGN_STAGE, WON_UNIX_NANO, None),
    Stage(LOAD_STAGE, LOADED_UNIX_NANO, None),
    Stage(VERIFY_STAGE, VERIFIED_UNIX_NANO, None),
    Stage(DISPATCH_STAGE, DISPATCHED_UNIX_NANO, None),
    Stage(METADATA_STAGE, None, METADATA_APPLIED),
)
"""Stages of a SUCCESSION in order."""

# Metrics of the telemetry itself.

SPANS_DROPPED: Final = "regnum.telemetry.spans_dropped"
"""Spans that found the queue full, or whose export failed."""
