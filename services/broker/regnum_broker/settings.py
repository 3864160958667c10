"""What a broker is told."""

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator
from pydantic_settings import CLI_SUPPRESS
from regnum_model.nodes import Address
from regnum_model.nodes.processes import is_loopback
from regnum_service.access.tokens.settings import TokenSettings
from regnum_service.settings import AddressText
from regnum_service.tls.settings import ListenerSettings

from regnum_broker.limits.incoming import INCOMING_BYTES_MAX, MESSAGE_BYTES_MAX, PART

MESSAGE_BESIDE_BYTES = 64 * 1024
"""What a message with one batch has beside it, at most."""


class BrokerSettings(ListenerSettings, TokenSettings):
    """Settings of a broker; flags, REGNUM_* variables, defaults."""

    broker_id: int = Field(ge=0, le=2**31 - 1, description="Id of this broker, unique in the cluster.")
    client_listen: AddressText = Field(description="Address for clients, for example 127.0.0.1:9092.")
    internal_listen: AddressText = Field(description="Address for the controller and other brokers.")
    client_advertised: AddressText | None = Field(
        default=None, description="Where others reach client-listen, if not at that address."
    )
    internal_advertised: AddressText | None = Field(
        default=None, description="Where others reach internal-listen, if not at that address."
    )
    kafka_listen: AddressText | None = Field(
        default=None,
        description="Address for clients that speak Kafka's protocol, for example 127.0.0.1:9192; without it there is "
        "no such listener. It has the TLS of client-listen, and without TLS it is an address of this machine only.",
    )
    kafka_advertised: AddressText | None = Field(
        default=None, description="Where others reach kafka-listen, if not at that address."
    )
    auto_create_topics: bool = Field(
        default=False,
        description="Whether a client at kafka-listen that asks for a topic has it made, with its own rights and quota "
        "(Kafka: auto.create.topics.enable, which is on there).",
    )
    num_partitions: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="Partitions of a topic whose maker at kafka-listen does not say (Kafka: num.partitions).",
    )
    data_dir: Path = Field(description="Log directory; formatted when it is empty.")
    lock_wait_s: float = Field(
        default=30.0,
        ge=0.0,
        le=3_600.0,
        description="Seconds for which a start waits for a log directory that another process still holds; a process"
        " that is being replaced may be on its way out.",
    )
    rack: str | None = Field(default=None, description="Failure domain of this broker.")
    replica_selector: Literal["leader", "rack"] = Field(
        default="leader",
        description="Where consumers that say their rack read: always from the leader, or from an in-sync replica in "
        "their rack (Kafka: replica.selector.class); the same for all brokers.",
    )
    message_bytes_max: int = Field(
        default=1_048_588, ge=1_024, le=32 * 1024 * 1024, description="Largest record batch accepted, in bytes."
    )
    queued_max_request_bytes: int = Field(
        default=256 * 1024 * 1024,
        ge=64 * 1024 * 1024,
        description="Bytes of requests that wait for their answers, of batches that are unpacked, and of answers that "
        "wait to be sent, of all clients together; what comes beyond is answered THROTTLING_QUOTA_EXCEEDED, and kept "
        "nowhere (Kafka: queued.max.request.bytes).",
    )
    connection_queued_max_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=1024 * 1024,
        description="The same for one connection; it gets less when little is left for others.",
    )
    socket_request_max_bytes: int = Field(
        default=MESSAGE_BYTES_MAX,
        ge=1024 * 1024,
        le=64 * 1024 * 1024,
        description="Largest message that the client listener takes (Kafka: socket.request.max.bytes); larger than "
        "the largest record batch.",
    )
    queued_max_incoming_bytes: int = Field(
        default=INCOMING_BYTES_MAX,
        ge=16 * 1024 * 1024,
        description="Bytes of messages that may be on their way in at once, if all were as large as one may be: half "
        "of it for produce streams, which says how many there may be; four of the largest messages at least.",
    )
    socket_receive_buffer_bytes: int = Field(
        default=65_535,
        ge=16_384,
        le=16 * 1024 * 1024,
        description="Bytes of each call that clients may send before it is read, in HTTP/2's window (Kafka: "
        "socket.receive.buffer.bytes). More for large batches over long lines.",
    )
    replica_lag_s: float = Field(
        default=10.0, gt=0.0, description="Seconds after which a follower that is behind leaves the ISR."
    )
    termination_grace_s: float = Field(
        default=30.0,
        ge=0.0,
        description="Seconds from the signal to stop until its sender kills the broker (Kubernetes: "
        "terminationGracePeriodSeconds, less what preStop takes; systemd: TimeoutStopSec). Until 20 s of it remain, "
        "the broker serves on while a partition would fall below min.insync.replicas by its going; with 20 or less it "
        "does not wait, and 0 is for clusters that are stopped as a whole. A second signal ends the wait.",
    )
    stray_grace_s: float = Field(
        default=60.0,
        ge=1.0,
        description="Seconds for which a replica has to be without orders before its broker asks the store whether it "
        "was reassigned to others, and deletes it then.",
    )
    segment_bytes: int = Field(
        default=256 * 1024 * 1024, ge=1024 * 1024, description="Size at which a log segment is closed, in bytes."
    )
    producer_id_expiration_ms: int = Field(
        default=86_400_000,
        ge=1,
        description="Milliseconds without an append after which an idempotent producer is forgotten in a partition.",
    )
    clock_difference_max_s: float = Field(
        default=300.0,
        ge=1.0,
        description="Seconds by which this machine's wall clock may differ from the controller's. While it differs by "
        "more, nothing is deleted or forgotten by time: records, idempotent producers, offsets of groups.",
    )
    log_cleaner_dedupe_buffer_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=32 * 1024 * 1024,
        description="Memory for the keys of the log that is being compacted; 32 bytes each (Kafka: "
        "log.cleaner.dedupe.buffer.size). A log with more new keys is gone through several times.",
    )
    disk_timeout_s: float = Field(
        default=20.0,
        ge=1.0,
        description="Seconds without an answer to one operation after which the disk hangs, and the broker ends.",
    )
    metrics_topics_max: int = Field(
        default=100,
        ge=0,
        le=1_000,
        description="Topics that metrics show by name: those that had traffic first; the rest is shown together. With "
        "0, metrics say no names.",
    )
    metrics_partitions_max: int = Field(
        default=500,
        ge=0,
        le=20_000,
        description="Partitions led here whose log ends metrics show, and offsets that groups coordinated here have "
        "committed: so many of each, by name. With 0, metrics say none.",
    )
    num_recovery_threads_per_data_dir: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Threads that look at replicas at a start, and wait for the disk (Kafka: "
        "num.recovery.threads.per.data.dir).",
    )
    index_cache_bytes: int = Field(
        default=128 * 1024 * 1024,
        ge=1024 * 1024,
        description="Memory for what is kept of the indexes of logs; the least recently used ones are read again when "
        "they are needed.",
    )
    reserve_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=0,
        description="Room held back in the log directory, so that a full disk can be started on and deleted from.",
    )
    offsets_topic_partitions: int = Field(
        default=8,
        ge=1,
        le=1_000,
        description="Partitions of __consumer_offsets (Kafka: offsets.topic.num.partitions); the same for all brokers, "
        "and never another once the topic exists.",
    )
    transaction_topic_partitions: int = Field(
        default=8,
        ge=1,
        le=1_000,
        description="Partitions of __transaction_state (Kafka: transaction.state.log.num.partitions); the same for all "
        "brokers, and never another once the topic exists.",
    )
    offsets_retention_minutes: int = Field(
        default=10_080,
        ge=1,
        description="Minutes for which the offsets of a consumer group without members are kept.",
    )
    group_initial_rebalance_delay_ms: int = Field(
        default=3_000,
        ge=0,
        le=300_000,
        description="Milliseconds for which the first rebalance of an empty consumer group waits for more members.",
    )
    group_min_session_timeout_ms: int = Field(
        default=6_000, ge=100, description="Shortest session time-out that a member of a consumer group may have."
    )
    group_max_size: int = Field(default=1_000, ge=1, le=1_000, description="Members that a consumer group may have.")

    failpoint_file: Path | None = Field(default=None, description=CLI_SUPPRESS)
    """For tests: where a failpoint may stand (see ``failpoints``). Nobody comes across it in ``--help``."""

    @model_validator(mode="after")
    def _check_kafka(self) -> "BrokerSettings":
        told = self.kafka_listen
        if told is None or self.client_tls_certificate is not None or is_loopback(Address.parse(told).host):
            return self
        raise ValueError(
            f"kafka-listen is {told}, which other machines may reach, and without TLS anybody there may read and change"
            " everything; give --client-tls-certificate and --client-tls-key, or listen on 127.0.0.1"
        )

    @model_validator(mode="after")
    def _check_messages(self) -> "BrokerSettings":
        if self.socket_request_max_bytes < self.message_bytes_max + MESSAGE_BESIDE_BYTES:
            raise ValueError(
                f"socket-request-max-bytes is {self.socket_request_max_bytes}: a message with one record batch of "
                f"message-bytes-max ({self.message_bytes_max}) is larger; give "
                f"{self.message_bytes_max + MESSAGE_BESIDE_BYTES} or more"
            )
        if self.queued_max_incoming_bytes < PART * self.socket_request_max_bytes:
            raise ValueError(
                f"queued-max-incoming-bytes is {self.queued_max_incoming_bytes}: {PART} messages of "
                f"socket-request-max-bytes ({self.socket_request_max_bytes}) at least must be able to come in; give "
                f"{PART * self.socket_request_max_bytes} or more"
            )
        return self
