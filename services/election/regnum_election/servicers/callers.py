"""Who calls, and how long a call may wait."""

from typing import Any, Final

import grpc
from regnum.election.v1 import controller_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.api_versions import version_of
from regnum_model.principals import NAME_LENGTH_MAX as PRINCIPAL_LENGTH_MAX
from regnum_model.principals import USER, Principal
from regnum_model.quotas import NAME_LENGTH_MAX
from regnum_service.access.identity import CLIENT, Caller, caller
from regnum_service.deadlines import waitable_s
from regnum_service.errors import RegnumError

from regnum_election.admission.stand_in import Account

DEFAULT_WAIT_S: Final = 30.0
"""How long a call waits when the caller does not say."""

CLIENT_ID_LENGTH_MAX: Final = NAME_LENGTH_MAX + 1
"""Characters of a client id that count: with so many it can have no quota of its own."""

ADDRESS_LENGTH_MAX: Final = 255
"""Characters of a host, and of a connection, that a broker names."""

ITEMS_PER_TURN: Final = 2_000
"""Topics, entities or replicas put into other words between two turns of the event loop (safety rule S22)."""

Context = grpc.aio.ServicerContext[Any, Any]


def wait_s(timeout_ms: int, context: Context) -> float:
    """How long a call may wait: what the caller says, within its deadline. Raises RegnumError."""
    if timeout_ms < 0:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, "timeout_ms is negative; give a positive one, or 0 for the default"
        )
    wanted_s = timeout_ms / 1000 if timeout_ms else DEFAULT_WAIT_S
    return min(wanted_s, waitable_s(context))


def account_of(header: types_pb2.RequestHeader, *, strict_since: int) -> Account:
    """Who asks, and whether that version of the request understands a refusal. Raises RegnumError."""
    try:
        version = version_of(header.api_version, version_zero=header.version_zero)
    except ValueError as error:
        raise RegnumError(errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION, str(error)) from error
    return Account(
        user=caller().principal.name,
        client_id=header.client_id[:CLIENT_ID_LENGTH_MAX],
        strict=version >= strict_since,
    )


def who_asks(header: types_pb2.RequestHeader, context: Context) -> str:
    """Who asks, for the log."""
    account = account_of(header, strict_since=0)
    return f"user {account.user}, client id {account.client_id!r}, at {context.peer()}"


def client_of(original: controller_pb2.OriginalCaller) -> Caller:
    """The client that the broker which calls speaks for. Raises RegnumError PRINCIPAL_DESERIALIZATION_FAILURE."""
    name = original.principal_name
    if original.principal_type != USER or not 0 < len(name) <= PRINCIPAL_LENGTH_MAX:
        raise RegnumError(
            errors_pb2.ERROR_CODE_PRINCIPAL_DESERIALIZATION_FAILURE,
            f"the broker names no principal: the type has to be {USER}, and the name 1 to {PRINCIPAL_LENGTH_MAX}"
            " characters; the broker's release may differ from this one",
        )
    return Caller(
        principal=Principal(name=name, token_authenticated=original.token_authenticated),
        host=original.client_host[:ADDRESS_LENGTH_MAX],
        listener=CLIENT,
        encrypted=original.encrypted,
        forwarded=True,
        via=caller().name_and_place,
    )


def check_count(count: int, count_max: int, what: str) -> None:
    """Raise RegnumError INVALID_REQUEST for more than a call may bring."""
    if count > count_max:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {count_max} {what}: split the request")
