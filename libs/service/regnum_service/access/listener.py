"""What a listener asks of those who connect: handed to a server as one thing."""

from dataclasses import dataclass
from typing import Final

from regnum_service.access.authentication import Authentication, TokenCheck
from regnum_service.access.authorization import EVERYBODY, Authorizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAccess:
    """Of one listener."""

    tokens: TokenCheck | None = None
    """Who knows delegation tokens; None: calls come without."""

    authorizer: Authorizer = EVERYBODY
    """Says what callers may do; stands before every servicer."""

    def authentication(self, listener: str) -> Authentication:
        """What tells callers apart at the listener of that name."""
        return Authentication(listener, tokens=self.tokens)


OPEN: Final = ListenerAccess()
"""Anybody, and nobody is asked."""
