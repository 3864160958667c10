"""Codes of errors, as applications compare them: the names and numbers of Kafka, and of the wire."""

import enum


class ErrorCode(enum.IntEnum):
    """Why something failed: ``RegnumError.code``.

    A code of a later release, which is not here, compares by its number.

    >>> try:
    ...     admin.describe_topic("nowhere")
    ... except regnum_client.RegnumError as error:
    ...     print(error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error.retriable)
    True True
    """

    NONE = 0
    """Success."""
    OFFSET_OUT_OF_RANGE = 1
    """The offset lies before the log start or after the log end."""
    CORRUPT_MESSAGE = 2
    """A record batch failed its checks (length, magic, CRC32C, counts, codec)."""
    UNKNOWN_TOPIC_OR_PARTITION = 3
    """The topic or partition does not exist, or this broker has not heard of it yet."""
    LEADER_NOT_AVAILABLE = 5
    """The partition has no leader at the moment."""
    NOT_LEADER_OR_FOLLOWER = 6
    """This broker is not the leader (or not a replica) of the partition; refresh metadata and go to the leader. Of
    a produce request nothing was appended here."""
    REQUEST_TIMED_OUT = 7
    """The request did not finish in the time it gave; its outcome may be unknown."""
    BROKER_NOT_AVAILABLE = 8
    """The broker is not available (fenced, shutting down, or gone)."""
    MESSAGE_TOO_LARGE = 10
    """The batch is larger than the broker accepts."""
    STALE_CONTROLLER_EPOCH = 11
    """The request comes from a controller that has been replaced."""
    OFFSET_METADATA_TOO_LARGE = 12
    """The note on a committed offset is too long."""
    COORDINATOR_LOAD_IN_PROGRESS = 14
    """The group's coordinator still reads what its predecessor left; ask again."""
    COORDINATOR_NOT_AVAILABLE = 15
    """The group has no coordinator that can act at the moment; look it up again."""
    NOT_COORDINATOR = 16
    """This broker does not coordinate the group: look its coordinator up with FindCoordinator. Of a quota process:
    it is not the active one; ask the one that the store's node /quota/active names."""
    INVALID_TOPIC_EXCEPTION = 17
    """The topic name breaks the naming rule."""
    NOT_ENOUGH_REPLICAS = 19
    """Fewer replicas in sync than min.insync.replicas: nothing was appended."""
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    """The records were appended, and then the ISR fell below min.insync.replicas or another leader took over: the
    outcome is unknown. Repeat with the same producer id and numbers, never under others."""
    INVALID_REQUIRED_ACKS = 21
    """acks is no value of Acks."""
    ILLEGAL_GENERATION = 22
    """The generation is over, or the group is gone: join again. Nothing was committed."""
    INCONSISTENT_GROUP_PROTOCOL = 23
    """The member offers no assignor that all the other members know, or is of another kind than they."""
    INVALID_GROUP_ID = 24
    """The group's name is empty or too long."""
    UNKNOWN_MEMBER_ID = 25
    """The member is not, or no more, in the group: join again without a member id."""
    INVALID_SESSION_TIMEOUT = 26
    """The session time-out is outside of what the coordinator allows."""
    REBALANCE_IN_PROGRESS = 27
    """The group rebalances: join again with the same member id."""
    INVALID_COMMIT_OFFSET_SIZE = 28
    """More offsets than a commit, or a group, may have."""
    TOPIC_AUTHORIZATION_FAILED = 29
    """The caller may not do that with the topic, or may not know whether it exists."""
    GROUP_AUTHORIZATION_FAILED = 30
    """The caller may not do that with the group."""
    CLUSTER_AUTHORIZATION_FAILED = 31
    """The caller may not do that with the cluster."""
    UNSUPPORTED_VERSION = 35
    """The receiver does not know this version of the request."""
    TOPIC_ALREADY_EXISTS = 36
    """A topic of that name exists; perhaps one that nothing can be done with, because its nodes in the store are
    damaged."""
    INVALID_PARTITIONS = 37
    """The number of partitions is not positive, or above the limit."""
    INVALID_REPLICATION_FACTOR = 38
    """The replication factor is not positive, or above the number of live brokers."""
    INVALID_REPLICA_ASSIGNMENT = 39
    """A manual replica assignment names unknown or repeated brokers, or its partitions do not number 0, 1, 2, ..."""
    INVALID_CONFIG = 40
    """No such setting, or not a value that it may have."""
    NOT_CONTROLLER = 41
    """This process is not the active controller."""
    INVALID_REQUEST = 42
    """The request contradicts itself or names a field value that is not allowed."""
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    """An idempotent producer skipped a sequence number."""
    DUPLICATE_SEQUENCE_NUMBER = 46
    """The batch repeats one that was appended longer ago than the five remembered; it is already in the log."""
    INVALID_PRODUCER_EPOCH = 47
    """The producer epoch is older than the newest one seen for this producer id."""
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    """The caller may not do that with the transactional id."""
    SECURITY_DISABLED = 54
    """The cluster has no access control: there are no ACLs to ask for or to change."""
    KAFKA_STORAGE_ERROR = 56
    """The log directory of the replica failed (write or fsync error)."""
    SASL_AUTHENTICATION_FAILED = 58
    """The caller is not authenticated: the token is unknown, wrong or expired."""
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    """The cluster has no secret for delegation tokens."""
    DELEGATION_TOKEN_NOT_FOUND = 62
    """No delegation token is known by that."""
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    """Only the owner and the renewers of a delegation token may do that."""
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    """Delegation tokens are not dealt with over this connection: it is plaintext, without an identity, or opened with a
    token."""
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    """The caller may not do that with the delegation token, or with tokens of that user."""
    DELEGATION_TOKEN_EXPIRED = 66
    """The delegation token has expired."""
    INVALID_PRINCIPAL_TYPE = 67
    """The principal is not of a type that may own or renew a token."""
    NON_EMPTY_GROUP = 68
    """The group has members: stop them first."""
    GROUP_ID_NOT_FOUND = 69
    """No group has that name."""
    FETCH_SESSION_ID_NOT_FOUND = 70
    """The fetch session is unknown to the leader; open a new one."""
    INVALID_FETCH_SESSION_EPOCH = 71
    """The fetch session epoch is not the expected one; open a new session."""
    FENCED_LEADER_EPOCH = 74
    """The leader epoch in the request is older than the receiver's."""
    UNKNOWN_LEADER_EPOCH = 75
    """The leader epoch in the request is newer than the receiver's; it will catch up."""
    STALE_BROKER_EPOCH = 77
    """The broker epoch in the request is older than the receiver's registration, or unknown."""
    OFFSET_NOT_AVAILABLE = 78
    """A new leader does not know yet how far its partition is committed (KIP-207); ask again."""
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    """The preferred replica is not live and in sync, so it cannot be given the leadership."""
    GROUP_MAX_SIZE_REACHED = 81
    """The group has as many members, or bytes of subscriptions, as one may have."""
    FENCED_INSTANCE_ID = 82
    """Another process has taken this static member's name: give each process a name of its own."""
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    """No replica can be elected: none that is assigned answers, or what is known of them contradicts itself."""
    ELECTION_NOT_NEEDED = 84
    """The partition has a leader, or gets one without loss: there is nothing to elect."""
    NO_REASSIGNMENT_IN_PROGRESS = 85
    """The partition is not being reassigned: there is nothing to cancel."""
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    """The group reads the topic: its offsets are not forgotten."""
    INVALID_RECORD = 87
    """A record of a batch cannot be read by every reader (lengths, offsets, headers; the message says which
    record, and why), or may not be in this topic: a topic that is compacted takes none without a key."""
    THROTTLING_QUOTA_EXCEEDED = 89
    """The request was refused by a quota; wait throttle_time_ms and send it again."""
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    """The principal of a forwarded request cannot be read."""
    UNKNOWN_TOPIC_ID = 100
    """No topic has that id."""
    BROKER_ID_NOT_REGISTERED = 102
    """No broker with that id is registered, and no partition is assigned to it."""
    INCONSISTENT_TOPIC_ID = 103
    """The topic name is known under another topic id (the topic was deleted and created again)."""
    REBOOTSTRAP_REQUIRED = 129
    """The call is for another process than the one that stands at its address now (KIP-1242); nothing was done."""
    UNKNOWN_SERVER_ERROR = -1
    """Anything the server did not expect; details are in its log only."""
