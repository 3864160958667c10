"""What a listener asks of those who connect, and how much they may take: handed to a server as one thing."""

from dataclasses import dataclass, field
from typing import Final

from regnum_service.access.authentication import Authentication, TokenCheck
from regnum_service.access.authorization import EVERYBODY, Authorizer, Denials
from regnum_service.access.identity import CLIENT
from regnum_service.access.process_roles import unmapped
from regnum_service.access.streams import EndingStreams
from regnum_service.access.validity import Validity
from regnum_service.tls.server import ServerTls


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """How much those who connect to a listener may take."""

    streams_max: int = 1_000
    """Calls under way on one connection; further ones wait at the client (HTTP/2's concurrent streams)."""
    connections_max: int | None = None
    """Connections; of more than that those without a call for the longest time are closed. None: any number."""
    connections_per_address_max: int | None = None
    """The same of those from one address. None: any number."""
    idle_s: float | None = None
    """Seconds without a call after which a connection is closed. None: never."""
    age_s: float | None = None
    """Seconds after which a connection is closed, with calls under way ``age_grace_s`` later. None: never."""
    age_grace_s: float = 1.0
    """Calls of a connection that has become too old may go on for so long."""
    handshake_timeout_s: float = 5.0
    """Seconds within which a connection says something that makes sense."""
    metadata_bytes_max: int = 16 * 1024
    """Of a call's metadata; more is answered RESOURCE_EXHAUSTED."""

    @property
    def options(self) -> tuple[tuple[str, int], ...]:
        """As gRPC knows them."""
        return (
            ("grpc.max_concurrent_streams", self.streams_max),
            ("grpc.server_handshake_timeout_ms", round(1000 * self.handshake_timeout_s)),
            # From the first on calls are refused now and then, beyond the second always: one limit, and no luck.
            ("grpc.max_metadata_size", self.metadata_bytes_max),
            ("grpc.absolute_max_metadata_size", self.metadata_bytes_max),
            *(() if self.idle_s is None else (("grpc.max_connection_idle_ms", round(1000 * self.idle_s)),)),
            *(() if self.age_s is None else _ageing(self.age_s, self.age_grace_s)),
        )


def _ageing(age_s: float, grace_s: float) -> tuple[tuple[str, int], ...]:
    return (
        ("grpc.max_connection_age_ms", round(1000 * age_s)),
        ("grpc.max_connection_age_grace_ms", round(1000 * grace_s)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerAccess:
    """Of one listener."""

    tls: ServerTls | None = None
    """None: it speaks plaintext."""
    tokens: TokenCheck | None = None
    """Who knows delegation tokens; None: calls come without."""
    token_streams: EndingStreams[str] | None = None
    """Has streams end with the tokens that opened them; None: there are none."""
    limits: ListenerLimits = field(default_factory=ListenerLimits)
    """How much they may take."""
    authorizer: Authorizer = EVERYBODY
    """Says what callers may do; stands before every servicer."""
    denials: Denials = field(default_factory=Denials)
    """Where it is counted and written down who was refused because it is not known who that is."""

    @property
    def tells_processes_apart(self) -> bool:
        """Whether callers have roles there."""
        return self.tls is not None and self.tls.role_of is not None

    def authentication(self, listener: str, validity: Validity | None = None) -> Authentication:
        """What tells callers apart at the listener of that name; ``validity``: of their certificates."""
        tls = self.tls
        if tls is None:
            return Authentication(listener or CLIENT, tokens=self.tokens)
        return Authentication(
            listener or CLIENT,
            encrypted=True,
            tokens=self.tokens,
            principal_of=tls.principal_of,
            role_of=tls.role_of or unmapped,
            validity=validity,
        )


OPEN: Final = ListenerAccess()
"""Anybody, and nobody is asked."""
