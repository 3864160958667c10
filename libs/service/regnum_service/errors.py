"""Errors of the wire and the one table that says what each means. Nowhere else is a gRPC status chosen.

Exception
  RegnumError          an answer for the caller: an ErrorCode, what to do next, facts as metadata
    UnansweredError    nobody is there, or answers in time
  StartRefusedError    a process cannot start as it was told to (port taken, directory in use, wrong cluster)
    PortTakenError
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import grpc
from regnum.types.v1 import errors_pb2
from regnum.types.v1.errors_pb2 import ErrorCode

Code: TypeAlias = ErrorCode.ValueType
"""A value of ErrorCode, as type checkers see it."""


class ExitStatus(enum.IntEnum):
    """Exit status of the command and of the services."""

    DONE = 0
    """All that was asked was done."""
    FAILED = 1
    """A failure that no other status names."""
    WRONG_USE = 2
    """The request itself is wrong; it fails however often it is sent."""
    NOT_FOUND = 3
    """What was named does not exist."""
    CONFLICT = 4
    """What exists stands against it."""
    UNAVAILABLE = 5
    """Nobody could answer in time; trying again may help."""
    QUOTA = 6
    """A quota refused it for now."""
    NOT_ALLOWED = 7
    """The caller may not do that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorTraits:
    """What an error means to those who meet it."""

    status: grpc.StatusCode
    """Status of a call that fails as a whole with it."""
    retriable: bool
    """The same request may succeed later. Whether it may be sent twice is another matter: see outcome_known."""
    refresh_metadata: bool
    """The caller's picture of the cluster may be old: fetch it again before the next try."""
    outcome_known: bool
    """True: nothing was done. False: it may have been done, so only what can be repeated safely is sent again (S20)."""
    exit_status: ExitStatus
    """Exit status of a command that ends with it."""


def _traits(
    status: grpc.StatusCode,
    exit_status: ExitStatus,
    *,
    retriable: bool = False,
    refresh: bool = False,
    outcome_known: bool = True,
) -> ErrorTraits:
    return ErrorTraits(
        status=status,
        retriable=retriable,
        refresh_metadata=refresh,
        outcome_known=outcome_known,
        exit_status=exit_status,
    )


_Status = grpc.StatusCode
_WRONG: Final = _traits(_Status.INVALID_ARGUMENT, ExitStatus.WRONG_USE)
_ELSEWHERE: Final = _traits(_Status.FAILED_PRECONDITION, ExitStatus.UNAVAILABLE, retriable=True, refresh=True)
"""Somebody else, or a later epoch, is in charge: look again and ask there."""
_OVERTAKEN: Final = _traits(_Status.FAILED_PRECONDITION, ExitStatus.CONFLICT)
"""The sender itself has been replaced; repeating cannot help."""
_FORBIDDEN: Final = _traits(_Status.PERMISSION_DENIED, ExitStatus.NOT_ALLOWED)
"""The caller has not the right; nothing was done, and what exists is not told."""
_MISSING: Final = _traits(_Status.NOT_FOUND, ExitStatus.NOT_FOUND, retriable=True, refresh=True)
"""Perhaps only not heard of yet."""

ERRORS: Final[Mapping[Code, ErrorTraits]] = MappingProxyType(
    {
        errors_pb2.ERROR_CODE_NONE: _traits(_Status.OK, ExitStatus.DONE),
        errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR: _traits(_Status.INTERNAL, ExitStatus.FAILED, outcome_known=False),
        errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE: _traits(_Status.OUT_OF_RANGE, ExitStatus.FAILED),
        # Kafka tries these again, for a network that flips bits; under HTTP/2 the batch was made wrong.
        errors_pb2.ERROR_CODE_CORRUPT_MESSAGE: _traits(_Status.DATA_LOSS, ExitStatus.FAILED),
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION: _MISSING,
        errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE: _traits(
            _Status.UNAVAILABLE, ExitStatus.UNAVAILABLE, retriable=True, refresh=True
        ),
        errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER: _ELSEWHERE,
        # A leader that does not answer may be frozen and replaced by now: hence the refresh.
        errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT: _traits(
            _Status.DEADLINE_EXCEEDED, ExitStatus.UNAVAILABLE, retriable=True, refresh=True, outcome_known=False
        ),
        errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE: _traits(
            _Status.UNAVAILABLE, ExitStatus.UNAVAILABLE, retriable=True, refresh=True, outcome_known=False
        ),
        errors_pb2.ERROR_CODE_MESSAGE_TOO_LARGE: _WRONG,
        errors_pb2.ERROR_CODE_INVALID_RECORD: _WRONG,
        errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH: _OVERTAKEN,
        errors_pb2.ERROR_CODE_OFFSET_METADATA_TOO_LARGE: _WRONG,
        errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS: _traits(
            _Status.UNAVAILABLE, ExitStatus.UNAVAILABLE, retriable=True
        ),
        # What it was asked may have been written before it became unavailable.
        errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE: _traits(
            _Status.UNAVAILABLE, ExitStatus.UNAVAILABLE, retriable=True, refresh=True, outcome_known=False
        ),
        errors_pb2.ERROR_CODE_NOT_COORDINATOR: _ELSEWHERE,
        errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION: _WRONG,
        errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS: _traits(_Status.UNAVAILABLE, ExitStatus.UNAVAILABLE, retriable=True),
        # The leader may have been replaced after the append: hence the refresh.
        errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND: _traits(
            _Status.UNAVAILABLE, ExitStatus.UNAVAILABLE, retriable=True, refresh=True, outcome_known=False
        ),
        errors_pb2.ERROR_CODE_INVALID_REQUIRED_ACKS: _WRONG,
        errors_pb2.ERROR_CODE_ILLEGAL_GENERATION: _OVERTAKEN,
        errors_pb2.ERROR_CODE_INCONSISTENT_GROUP_PROTOCOL: _WRONG,
        errors_pb2.ERROR_CODE_INVALID_GROUP_ID: _WRONG,
        errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID: _OVERTAKEN,
        errors_pb2.ERROR_CODE_INVALID_SESSION_TIMEOUT: _WRONG,
        # Not the same call: the member joins again first.
        errors_pb2.ERROR_CODE_REBALANCE_IN_PROGRESS: _OVERTAKEN,
        errors_pb2.ERROR_CODE_INVALID_COMMIT_OFFSET_SIZE: _WRONG,
        errors_pb2.ERROR_CODE_NON_EMPTY_GROUP: _traits(_Status.FAILED_PRECONDITION, ExitStatus.CONFLICT),
        errors_pb2.ERROR_CODE_GROUP_SUBSCRIBED_TO_TOPIC: _traits(_Status.FAILED_PRECONDITION, ExitStatus.CONFLICT),
        errors_pb2.ERROR_CODE_GROUP_ID_NOT_FOUND: _traits(_Status.NOT_FOUND, ExitStatus.NOT_FOUND),
        errors_pb2.ERROR_CODE_GROUP_MAX_SIZE_REACHED: _traits(_Status.RESOURCE_EXHAUSTED, ExitStatus.CONFLICT),
        errors_pb2.ERROR_CODE_FENCED_INSTANCE_ID: _OVERTAKEN,
        errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS: _traits(_Status.ALREADY_EXISTS, ExitStatus.CONFLICT),
        errors_pb2.ERROR_CODE_INVALID_PARTITIONS: _WRONG,
        errors_pb2.ERROR_CODE_INVALID_REPLICATION_FACTOR: _WRONG,
        errors_pb2.ERROR_CODE_INVALID_REPLICA_ASSIGNMENT: _WRONG,
        errors_pb2.ERROR_CODE_INVALID_CONFIG: _WRONG,
        errors_pb2.ERROR_CODE_NOT_CONTROLLER: _ELSEWHERE,
        errors_pb2.ERROR_CODE_INVALID_REQUEST: _WRONG,
        errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER: _OVERTAKEN,
        errors_pb2.ERROR_CODE_DUPLICATE_SEQUENCE_NUMBER: _traits(_Status.ALREADY_EXISTS, ExitStatus.CONFLICT),
        errors_pb2.ERROR_CODE_INVALID_PRODUCER_EPOCH: _OVERTAKEN,
        errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR: _traits(
            _Status.UNAVAILABLE, ExitStatus.UNAVAILABLE, retriable=True, refresh=True, outcome_known=False
        ),
        errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH: _ELSEWHERE,
        errors_pb2.ERROR_CODE_UNKNOWN_LEADER_EPOCH: _traits(
            _Status.UNAVAILABLE, ExitStatus.UNAVAILABLE, retriable=True
        ),
        errors_pb2.ERROR_CODE_STALE_BROKER_EPOCH: _OVERTAKEN,
        # Its leader has not heard from enough followers yet. Where it never does, another one will lead: hence look.
        errors_pb2.ERROR_CODE_OFFSET_NOT_AVAILABLE: _traits(
            _Status.UNAVAILABLE, ExitStatus.UNAVAILABLE, retriable=True, refresh=True
        ),
        errors_pb2.ERROR_CODE_FETCH_SESSION_ID_NOT_FOUND: _traits(
            _Status.FAILED_PRECONDITION, ExitStatus.UNAVAILABLE, retriable=True
        ),
        errors_pb2.ERROR_CODE_INVALID_FETCH_SESSION_EPOCH: _traits(
            _Status.FAILED_PRECONDITION, ExitStatus.UNAVAILABLE, retriable=True
        ),
        errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED: _traits(
            _Status.RESOURCE_EXHAUSTED, ExitStatus.QUOTA, retriable=True
        ),
        errors_pb2.ERROR_CODE_PREFERRED_LEADER_NOT_AVAILABLE: _traits(_Status.UNAVAILABLE, ExitStatus.UNAVAILABLE),
        errors_pb2.ERROR_CODE_ELIGIBLE_LEADERS_NOT_AVAILABLE: _traits(_Status.UNAVAILABLE, ExitStatus.UNAVAILABLE),
        errors_pb2.ERROR_CODE_ELECTION_NOT_NEEDED: _traits(_Status.FAILED_PRECONDITION, ExitStatus.CONFLICT),
        errors_pb2.ERROR_CODE_NO_REASSIGNMENT_IN_PROGRESS: _traits(_Status.FAILED_PRECONDITION, ExitStatus.CONFLICT),
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_ID: _MISSING,
        # Who asks about a broker has its id from somewhere: it is wrong, and not new.
        errors_pb2.ERROR_CODE_BROKER_ID_NOT_REGISTERED: _traits(_Status.NOT_FOUND, ExitStatus.NOT_FOUND),
        errors_pb2.ERROR_CODE_INCONSISTENT_TOPIC_ID: _traits(
            _Status.FAILED_PRECONDITION, ExitStatus.CONFLICT, retriable=True, refresh=True
        ),
        errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
        errors_pb2.ERROR_CODE_GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED: _FORBIDDEN,
        errors_pb2.ERROR_CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _FORBIDDEN,
        errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION: _traits(_Status.UNIMPLEMENTED, ExitStatus.WRONG_USE),
        errors_pb2.ERROR_CODE_SECURITY_DISABLED: _traits(_Status.FAILED_PRECONDITION, ExitStatus.CONFLICT),
        errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED: _traits(_Status.UNAUTHENTICATED, ExitStatus.NOT_ALLOWED),
        errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTH_DISABLED: _traits(_Status.FAILED_PRECONDITION, ExitStatus.CONFLICT),
        errors_pb2.ERROR_CODE_DELEGATION_TOKEN_NOT_FOUND: _traits(_Status.NOT_FOUND, ExitStatus.NOT_FOUND),
        errors_pb2.ERROR_CODE_DELEGATION_TOKEN_OWNER_MISMATCH: _FORBIDDEN,
        errors_pb2.ERROR_CODE_DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: _FORBIDDEN,
        errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTHORIZATION_FAILED: _FORBIDDEN,
        errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED: _traits(_Status.UNAUTHENTICATED, ExitStatus.NOT_ALLOWED),
        errors_pb2.ERROR_CODE_INVALID_PRINCIPAL_TYPE: _WRONG,
        errors_pb2.ERROR_CODE_PRINCIPAL_DESERIALIZATION_FAILURE: _WRONG,
        errors_pb2.ERROR_CODE_REBOOTSTRAP_REQUIRED: _ELSEWHERE,
    }
)
"""Every ErrorCode and what it means."""

_PREFIX: Final = "ERROR_CODE_"


def reason_of(code: Code) -> str:
    """Name of a code without its prefix, as in ErrorInfo.reason: ``NOT_CONTROLLER``."""
    return ErrorCode.Name(code).removeprefix(_PREFIX)


def code_of(reason: str) -> Code | None:
    """The code with that reason; None when this version knows none."""
    name = _PREFIX + reason
    return ErrorCode.Value(name) if name in ErrorCode.keys() else None  # noqa: SIM118 - an enum wrapper, not a dict


def traits_of(code: Code) -> ErrorTraits:
    """Traits of a code. A code from a newer peer, which the table cannot know, is taken as an unexpected failure."""
    return ERRORS.get(code, ERRORS[errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR])


class RegnumError(Exception):
    """A request fails as a whole, for a reason that the caller can act on.

    >>> try:
    ...     admin.create_topic("orders")
    ... except regnum_client.RegnumError as error:
    ...     print(error.code == ErrorCode.TOPIC_ALREADY_EXISTS, error.retriable)
    True False
    """

    code: Code
    """The reason."""
    message: str
    """What is wrong and what to do next."""
    metadata: Mapping[str, str]
    """Facts for programs, for instance the controller's address with NOT_CONTROLLER."""
    retry_after_ms: int | None
    """When to try again. None leaves it to the caller's own back-off."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.metadata = MappingProxyType(dict(metadata or {}))
        self.retry_after_ms = retry_after_ms

    def __str__(self) -> str:
        return self.message

    def __repr__(self) -> str:
        name = reason_of(self.code) if self.code in ErrorCode.values() else str(self.code)
        return f"RegnumError({name}, {self.message!r})"

    @property
    def traits(self) -> ErrorTraits:
        """What the code means."""
        return traits_of(self.code)

    @property
    def retriable(self) -> bool:
        """The same call may succeed later; whether it may have been done already says ``traits.outcome_known``."""
        return self.traits.retriable


class UnansweredError(RegnumError):
    """Nobody answered: no process is there, it ended meanwhile, or the time was up. Says the transport, not a peer."""


class StartRefusedError(Exception):
    """A process cannot start as it was told to. The message is for the operator; no stack trace is shown."""

    exit_status: ExitStatus
    """Exit status of the process."""

    def __init__(self, message: str, *, exit_status: ExitStatus = ExitStatus.CONFLICT) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class PortTakenError(StartRefusedError):
    """Another process listens on the address that was asked for."""
