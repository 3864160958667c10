"""Delegation tokens as the SDK shows them."""

from dataclasses import dataclass, field
from typing import Self

from regnum.admin.v1 import tokens_pb2
from regnum_model.wire_times import unix_ms_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenView:
    """A token, without what proves it.

    >>> def soonest(tokens: Sequence[DelegationTokenView]) -> int:
    ...     return min(token.expiry_ms for token in tokens)
    """

    token_id: str
    """Its id: no secret."""
    owner: str
    """Principal that it stands for: ``User:alice``."""
    requester: str
    """Who asked for it."""
    renewers: tuple[str, ...]
    """Principals that may renew and end it besides its owner."""
    issued_ms: int
    """When it was made, in milliseconds since 1970."""
    expiry_ms: int
    """When it ends unless it is renewed."""
    max_ms: int
    """When it ends in any case."""

    @classmethod
    def from_wire(cls, token: tokens_pb2.DelegationToken) -> Self:
        """As a message says it."""
        return cls(
            token_id=token.token_id,
            owner=token.owner,
            requester=token.requester,
            renewers=tuple(token.renewers),
            issued_ms=unix_ms_of(token.issue_time),
            expiry_ms=unix_ms_of(token.expiry_time),
            max_ms=unix_ms_of(token.max_time),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelegationToken:
    """A token that was made just now.

    >>> def keep(made: NewDelegationToken, path: Path) -> None:
    ...     path.touch(mode=0o600)
    ...     path.write_text(made.credential)
    """

    token: DelegationTokenView
    """What it is."""
    credential: str = field(repr=False)
    """What proves it: a secret. Keep it in a file of mode 0600, and name that in ``TlsFiles(token=...)``."""
