"""Delegation tokens in the words of the wire."""

from collections.abc import Sequence
from typing import Final

from regnum.admin.v1 import tokens_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.delegation_tokens import Creation, DelegationToken
from regnum_model.principals import Principal
from regnum_model.wire_times import timestamp_of
from regnum_service.errors import RegnumError

PRINCIPALS_MAX: Final = 1_000
"""Principals that one call names."""


def creation_of(request: tokens_pb2.CreateDelegationTokenRequest) -> Creation:
    """What is asked for. Raises RegnumError."""
    return Creation(
        owner=principal_of(request.owner) if request.owner else None,
        renewers=principals_of(request.renewers),
        life_ms=request.max_lifetime_ms,
    )


def principals_of(texts: Sequence[str]) -> tuple[Principal, ...]:
    """Principals as a request names them. Raises RegnumError."""
    if len(texts) > PRINCIPALS_MAX:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {PRINCIPALS_MAX} principals: name fewer")
    return tuple(map(principal_of, texts))


def principal_of(text: str) -> Principal:
    """A principal as a request names it. Raises RegnumError."""
    try:
        return Principal.parse(text)
    except ValueError as error:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, str(error)) from error


def token_message(token: DelegationToken) -> tokens_pb2.DelegationToken:
    """A token, without what proves it."""
    return tokens_pb2.DelegationToken(
        token_id=token.id,
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=[str(renewer) for renewer in token.renewers],
        issue_time=timestamp_of(token.issued_ms),
        expiry_time=timestamp_of(token.expiry_ms),
        max_time=timestamp_of(token.max_ms),
    )
