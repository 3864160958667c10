"""What a broker shows of its replicas, its log and its clients. Pure."""

from typing import Final

from regnum_telemetry.instruments.definition import BROKER, Definitions

DEFINED: Final = Definitions(BROKER)
"""In the order of this file."""

REPLICAS: Final = DEFINED.gauge(
    "regnum.broker.replicas",
    "{partitions}",
    "Replicas of this broker by role: leader, follower, idle (not told, or told to stop)",
    labels=("role",),
    kafka="kafka.server:type=ReplicaManager,name=PartitionCount and LeaderCount",
)

UNDER_REPLICATED: Final = DEFINED.gauge(
    "regnum.broker.partitions.under_replicated",
    "{partitions}",
    "Partitions led here whose in-sync set lacks an assigned replica, but for those that a reassignment brings in",
    kafka="kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
)

UNDER_MIN_ISR: Final = DEFINED.gauge(
    "regnum.broker.partitions.under_min_isr",
    "{partitions}",
    "Partitions led here whose in-sync set is smaller than min.insync.replicas: acks=all is refused",
    kafka="kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
)

REPLICAS_OFFLINE: Final = DEFINED.gauge(
    "regnum.broker.replicas.offline",
    "{partitions}",
    "Replicas that this broker cannot use: damaged files, or a failed disk",
    kafka="kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
)

DISK_FREE: Final = DEFINED.gauge(
    "regnum.broker.disk.free",
    "By",
    "Bytes that are free for the broker on the disk of its log directory",
)

DISK_SIZE: Final = DEFINED.gauge(
    "regnum.broker.disk.size",
    "By",
    "Bytes of that disk",
)

DISK_REFUSES: Final = DEFINED.gauge(
    "regnum.broker.disk.writes_refused",
    "{disks}",
    "1 while the broker appends no records because its disk is full, or has not answered for seconds",
)

CONNECTIONS_REFUSED: Final = DEFINED.gauge(
    "regnum.broker.connections.refused",
    "{brokers}",
    "1 while the broker turns connections away: a certificate has expired, or too many clients are connected",
)

REPLICAS_STRAY: Final = DEFINED.gauge(
    "regnum.broker.replicas.stray",
    "{partitions}",
    "Logs of topics or partitions that do not exist (strays): kept, and listed by `regnum brokers strays`",
)

ISR_SHRINKS: Final = DEFINED.counter(
    "regnum.broker.isr.shrinks",
    "{partitions}",
    "In-sync sets that this leader made smaller",
    kafka="kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
)

ISR_EXPANDS: Final = DEFINED.counter(
    "regnum.broker.isr.expands",
    "{partitions}",
    "In-sync sets that this leader made larger",
    kafka="kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
)

BYTES_IN: Final = DEFINED.counter(
    "regnum.broker.produced",
    "By",
    "Bytes of record batches appended",
    kafka="kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
)

RECORDS_IN: Final = DEFINED.counter(
    "regnum.broker.produced.records",
    "{records}",
    "Records of producers appended",
    kafka="kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
)

BATCHES_REFUSED: Final = DEFINED.counter(
    "regnum.broker.produce.refused",
    "{batches}",
    "Batches that were not acknowledged, for whatever reason",
    kafka="kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec",
)

CLIENT_BYTES_HELD: Final = DEFINED.gauge(
    "regnum.broker.client.held",
    "By",
    "Bytes held by purpose: produce (requests until they are answered), fetch, replication and control (answers until"
    " they are sent: with records, to followers, others), unpacked (batches that are looked into)",
    labels=("purpose",),
)

CLIENT_BYTES_HELD_PEAK: Final = DEFINED.gauge(
    "regnum.broker.client.held.peak", "By", "The most bytes held at any time since the start, of all purposes"
)

CLIENT_BYTES_MAX: Final = DEFINED.gauge(
    "regnum.broker.client.held.max", "By", "Bytes that may be held: --queued-max-request-bytes"
)

WATCHERS_OPEN: Final = DEFINED.gauge(
    "regnum.broker.watchers.open",
    "{streams}",
    "Streams of WatchMetadata that are open",
)

WATCHERS_SENT: Final = DEFINED.counter(
    "regnum.broker.watchers.sent",
    "By",
    "Bytes that these streams were told",
)

WATCHERS_DROPPED: Final = DEFINED.counter(
    "regnum.broker.watchers.dropped",
    "{streams}",
    "Streams of WatchMetadata that were refused, or ended for what they asked: too many, or too many topics",
)

CLIENT_CUT_OFF: Final = DEFINED.counter(
    "regnum.broker.client.cut.off",
    "{connections}",
    "Connections that were cut off: they did not take their answers for 30 s while others waited for memory or were"
    " refused",
)

CLIENT_THROTTLED: Final = DEFINED.counter(
    "regnum.broker.client.throttled",
    "{requests}",
    "Requests answered THROTTLING_QUOTA_EXCEEDED because their client, or all, held as much as they may; by purpose",
    labels=("purpose",),
)

QUOTA_THROTTLED: Final = DEFINED.counter(
    "regnum.broker.quota.throttled",
    "{answers}",
    "Answers that asked a client to wait for a quota, by quota: producer_byte_rate, consumer_byte_rate,"
    " request_percentage",
    labels=("quota",),
)

QUOTA_ACCOUNTS: Final = DEFINED.gauge(
    "regnum.broker.quota.accounts",
    "{clients}",
    "Users, client ids and pairs of both that are measured because they have a quota; at most 20,000 of each quota",
    labels=("quota",),
)

CALLS_HELD: Final = DEFINED.gauge(
    "regnum.broker.client.calls.held",
    "{calls}",
    "Calls that are held because their connection was asked to wait, and did not",
)

CALLS_UNREAD: Final = DEFINED.gauge(
    "regnum.broker.client.unread", "{calls}", "Calls of clients whose messages are being read, or wait to be read"
)

BYTES_OUT: Final = DEFINED.counter(
    "regnum.broker.fetched",
    "By",
    "Bytes of records sent to consumers",
    kafka="kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec",
)

RECORDS_OUT: Final = DEFINED.counter(
    "regnum.broker.fetched.records",
    "{records}",
    "Records of batches sent to consumers",
)

PRODUCE_DURATION: Final = DEFINED.histogram(
    "regnum.broker.produce.duration",
    "s",
    "Produce calls from their arrival to their answer; with acks=all the followers are in it",
    kafka="kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce",
)

FETCH_DURATION: Final = DEFINED.histogram(
    "regnum.broker.fetch.duration",
    "s",
    "Fetch calls of consumers from their arrival to their answer; the wait for records that they ask for is in it",
    kafka="kafka.network:type=RequestMetrics,name=TotalTimeMs,request=FetchConsumer",
)

KAFKA_REQUESTS: Final = DEFINED.histogram(
    "regnum.broker.kafka.request.duration",
    "s",
    "Requests of Kafka's protocol, from when they have come to when their answer is made; NONE is no error",
    labels=("api", "version", "error"),
    kafka="kafka.network:type=RequestMetrics,name=TotalTimeMs and RequestsPerSec",
)

CLEANER_WAITING: Final = DEFINED.gauge(
    "regnum.broker.log_cleaner.waiting",
    "{partitions}",
    "Logs that wait for compaction, or are being compacted",
)

CLEANER_DIRTIEST: Final = DEFINED.gauge(
    "regnum.broker.log_cleaner.max_dirty",
    "1",
    "Largest part that is not compacted yet of a log that waits for compaction, by bytes: 0 to 1",
    kafka="kafka.log:type=LogCleanerManager,name=max-dirty-percent",
)

CLEANER_UNCLEANABLE: Final = DEFINED.gauge(
    "regnum.broker.log_cleaner.uncleanable",
    "{partitions}",
    "Logs that are not compacted any more, because their files are damaged: they grow",
    kafka="kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count",
)

CLEANER_LAST_RUN: Final = DEFINED.gauge(
    "regnum.broker.log_cleaner.last_run",
    "s",
    "Time since the log cleaner began with a segment, or found nothing to do: at rest it looks every 60 s",
    kafka="kafka.log:type=LogCleanerManager,name=time-since-last-run-ms",
)

CLEANER_READ: Final = DEFINED.counter(
    "regnum.broker.log_cleaner.read",
    "By",
    "Bytes of segments that compaction has gone through; those that are not compacted yet are gone through twice",
)

CLEANER_WRITTEN: Final = DEFINED.counter(
    "regnum.broker.log_cleaner.written",
    "By",
    "Bytes of segments that compaction has written in place of others",
    kafka="kafka.log:type=LogCleaner,name=cleaner-recopy-percent: this by what was read",
)

WRITER_JOBS: Final = DEFINED.gauge(
    "regnum.broker.log.writer.jobs",
    "{jobs}",
    "Jobs that the log writer has not finished",
)

WRITER_BYTES: Final = DEFINED.gauge(
    "regnum.broker.log.writer.pending",
    "By",
    "Bytes of records in these jobs",
)

FLUSH_BYTES: Final = DEFINED.gauge(
    "regnum.broker.log.flush.pending",
    "By",
    "Bytes of records that are written, and count once they are on the disk (flush.messages)",
)

INDEX_BYTES: Final = DEFINED.gauge(
    "regnum.broker.log.index.memory",
    "By",
    "Memory that indexes of logs take; --index-cache-bytes is the limit",
)

WRITER_WAIT: Final = DEFINED.histogram(
    "regnum.broker.log.writer.wait",
    "s",
    "Time that a job waited for the log writer, and for room in its queue",
)

WRITER_RUN: Final = DEFINED.histogram(
    "regnum.broker.log.writer.run",
    "s",
    "Time that the log writer worked on a job; more than 0.1 s is a line in the log",
)

PRODUCE_ERRORS: Final = DEFINED.counter(
    "regnum.broker.produce.errors",
    "{batches}",
    "Batches that were answered with an error, by its code",
    labels=("error",),
    kafka="kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Produce",
)

FETCH_ERRORS: Final = DEFINED.counter(
    "regnum.broker.fetch.errors",
    "{partitions}",
    "Partitions in fetches of consumers that were answered with an error, by its code",
    labels=("error",),
    kafka="kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=Fetch",
)

REPLICATION_BYTES_OUT: Final = DEFINED.counter(
    "regnum.broker.replication.sent",
    "By",
    "Bytes of records sent to followers",
    kafka="kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec",
)

REPLICATION_BYTES_IN: Final = DEFINED.counter(
    "regnum.broker.replication.received",
    "By",
    "Bytes of records fetched from leaders",
    kafka="kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec",
)

LOG_SIZE: Final = DEFINED.gauge(
    "regnum.broker.log.size",
    "By",
    "Bytes of the segments of all replicas here",
    kafka="kafka.log:type=Log,name=Size",
)

LOG_SEGMENTS: Final = DEFINED.gauge(
    "regnum.broker.log.segments",
    "{segments}",
    "Segments of all replicas here",
    kafka="kafka.log:type=Log,name=NumLogSegments",
)

METADATA_EPOCH: Final = DEFINED.gauge(
    "regnum.broker.metadata.controller.epoch",
    "{epochs}",
    "Controller epoch of the newest metadata that this broker has applied",
)

METADATA_APPLIED: Final = DEFINED.gauge(
    "regnum.broker.metadata.version",
    "{versions}",
    "Version of that metadata within its controller epoch; the controller's own less this is how far it lags",
    kafka="kafka.server:type=broker-metadata-metrics,attribute last-applied-record-offset",
)

REGISTERED: Final = DEFINED.gauge(
    "regnum.broker.registered",
    "{brokers}",
    "1 while this broker has a registration that it knows not to be over",
    kafka="kafka.server:type=KafkaServer,name=BrokerState",
)

LIFELINE_OPEN: Final = DEFINED.gauge(
    "regnum.broker.lifeline.open",
    "{streams}",
    "1 while the lifeline to the controller is open",
)

CLOCK_DIFFERENCE: Final = DEFINED.gauge(
    "regnum.broker.clock.difference",
    "s",
    "This machine's wall clock less the controller's; negative: it is behind. Beyond --clock-difference-max-s, either "
    "way, nothing is deleted or forgotten by time. Not shown until a controller has told its clock",
)

READY: Final = DEFINED.gauge(
    "regnum.broker.ready",
    "{brokers}",
    "1 from the moment when this broker was in sync for the first time until it stops: what its readiness says",
)

REPLICAS_AWAITED: Final = DEFINED.gauge(
    "regnum.broker.replicas.awaited",
    "{partitions}",
    "Partitions whose in-sync set this broker has still to enter before it is ready for the first time",
)

FORWARDING_CALLS: Final = DEFINED.gauge(
    "regnum.broker.forwarding.calls",
    "{calls}",
    "Calls that are passed on to the controller for clients that know none: that wait, or are with it",
    kafka="kafka.server:type=BrokerToControllerChannelManager,name=QueueLength",
)

FORWARDING_BYTES: Final = DEFINED.gauge(
    "regnum.broker.forwarding.held",
    "By",
    "Bytes of their requests",
)

FORWARDING_QUEUE_TIME: Final = DEFINED.histogram(
    "regnum.broker.forwarding.queue.time",
    "s",
    "Time that a call waited for its turn to be passed on",
    kafka="kafka.server:type=BrokerToControllerChannelManager,name=QueueTimeMs",
)

FORWARDING_REMOTE_TIME: Final = DEFINED.histogram(
    "regnum.broker.forwarding.remote.time",
    "s",
    "Time from the sending of a call that was passed on to the controller's answer",
    kafka="kafka.server:type=BrokerToControllerChannelManager,name=RemoteTimeMs",
)

FORWARDING_REPEATS: Final = DEFINED.counter(
    "regnum.broker.forwarding.repeats",
    "{calls}",
    "Calls that had to be passed on again: there was another controller, or none",
)
