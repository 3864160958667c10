"""Who somebody is: the principal of a call (KIP-590, seed 004).

A principal comes from the connection or from a token, never from a field that a client may write.
"""

from dataclasses import dataclass
from typing import Final, Self

USER: Final = "User"
"""The one type of principal that there is."""

NAME_LENGTH_MAX: Final = 1_024
"""Characters of a name: a distinguished name of a certificate may be long."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody, as rights, quotas and the audit log know them."""

    name: str
    """As the certificate or the token says it; ``ANONYMOUS`` of a connection that says nothing."""
    type: str = USER
    """Kind of principal."""
    token_authenticated: bool = False
    """The caller showed a delegation token: it may not deal with tokens (KIP-48). No part of who it is."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``User:name``. Raises ValueError."""
        type, colon, name = text.partition(":")
        if not colon or not type or not name or len(text) > NAME_LENGTH_MAX:
            raise ValueError(f"{text[:80]!r} is no principal; write User:name")
        return cls(name=name, type=type)


NOBODY: Final = Principal("ANONYMOUS")
"""The principal of who does not say who they are."""
