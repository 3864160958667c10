"""What a client does about each error, in a sentence: for the table in docs/api.md.

Follows from the table of errors, but for codes that ask for something of their own. It decides nothing.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from regnum.types.v1 import errors_pb2

from regnum_service.errors import Code, ErrorTraits, ExitStatus, traits_of

_OWN: Final[Mapping[Code, str]] = MappingProxyType(
    {
        errors_pb2.ERROR_CODE_NONE: "nothing",
        errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR: "look at the server's log; it may have been done",
        errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE: "read on at the log's start or end:"
        " what lies between is skipped, or read again",
        errors_pb2.ERROR_CODE_CORRUPT_MESSAGE: "producing: build the batch anew; reading: skip it, from next_offset on",
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION: "ask another broker for metadata, and again for some seconds:"
        " it may be new; then give up",
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID: "ask for metadata again: the topic may be new, or gone",
        errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER: "go to the leader that current_leader names, or ask for metadata",
        errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH: "go to the leader that current_leader names, or ask for metadata",
        errors_pb2.ERROR_CODE_NOT_CONTROLLER: "go to controller_address of the metadata, or ask for metadata",
        errors_pb2.ERROR_CODE_REBOOTSTRAP_REQUIRED: "look up again where that process is; it is for processes of the"
        " cluster, clients do not meet it",
        errors_pb2.ERROR_CODE_INVALID_RECORD: "build the batch anew, as the message says; in a topic that is"
        " compacted, give every record a key",
        errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE: "send the records in smaller batches; a"
        " single one that is too large fails",
        errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND: "repeat with the same producer id and numbers, and"
        " never under others",
        errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER: "records before these are missing: take a new producer id,"
        " if the order across the gap may be lost",
        errors_pb2.ERROR_CODE_DUPLICATE_SEQUENCE_NUMBER: "take it as appended; its offset is not known any more",
        errors_pb2.ERROR_CODE_INVALID_PRODUCER_EPOCH: "stop: another producer has this id",
        errors_pb2.ERROR_CODE_FETCH_SESSION_ID_NOT_FOUND: "open a new session",
        errors_pb2.ERROR_CODE_INVALID_FETCH_SESSION_EPOCH: "open a new session",
        errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED: "wait throttle_time_ms (or RetryInfo) and send it again, with"
        " the same mutation id",
        errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE: "call FindCoordinator again, and repeat; a commit may"
        " have been taken, and may be repeated",
        errors_pb2.ERROR_CODE_NOT_COORDINATOR: "call FindCoordinator, and go there",
        errors_pb2.ERROR_CODE_ILLEGAL_GENERATION: "join again; what was processed since the last commit comes again",
        errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID: "join again without a member id; what was processed since the last"
        " commit comes again",
        errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS: "join again with the same member id",
        errors_pb2.ERROR_CODE_NON_EMPTY_GROUP: "stop the members first",
        errors_pb2.ERROR_CODE_GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read the topic first",
        errors_pb2.ERROR_CODE_GROUP_MAX_SIZE_REACHED: "stop: make the group smaller, or delete other groups",
        errors_pb2.ERROR_CODE_FENCED_INSTANCE_ID: "stop: another process has this name",
        errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS: "use the topic, or another name; where the message says that"
        " nodes are damaged, have them mended",
        errors_pb2.ERROR_CODE_PREFERRED_LEADER_NOT_AVAILABLE: "wait until the preferred replica is in sync",
        errors_pb2.ERROR_CODE_ELIGIBLE_LEADERS_NOT_AVAILABLE: "start the brokers that have a replica",
        errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED: "nothing: it is so already",
        errors_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS: "nothing: it has arrived, or there was none",
        errors_pb2.ERROR_CODE_BROKER_ID_NOT_REGISTERED: "see which brokers there are, and ask for one of them",
        errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID: "ask for metadata: the topic was"
        " made anew, and holds other records",
        errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED: "have the right granted: `regnum acls check` says which rule"
        " decides",
        errors_pb2.ERROR_CODE_GROUP_AUTHORIZATION_FAILED: "have the right granted: `regnum acls check` says which rule"
        " decides",
        errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED: "have the right granted: `regnum acls check` says which"
        " rule decides",
        errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION: "ask which versions there are, and send one of them",
        errors_pb2.ERROR_CODE_SECURITY_DISABLED: "set authorizer=acl on brokers and election processes first",
        errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED: "call with a token that is known and has not expired, or with"
        " a certificate",
        errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED: "have a new token created",
        errors_pb2.ERROR_CODE_DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "call over TLS with a certificate of your own",
    }
)


def advice_of(code: Code) -> str:
    """What a client does that meets this error."""
    return _OWN.get(code) or _derived(traits_of(code))


def _derived(traits: ErrorTraits) -> str:
    if not traits.retriable:
        return (
            "correct the request: it fails however often it is sent"
            if traits.exit_status is ExitStatus.WRONG_USE
            else "stop: repeating does not help"
        )
    look = "ask for metadata again, and repeat" if traits.refresh_metadata else "wait and repeat"
    return look if traits.outcome_known else f"{look} only what may be done twice"
