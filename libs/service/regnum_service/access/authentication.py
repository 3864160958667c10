"""Who makes a call: found out where it comes in, before anything of it is read, and known to all that runs for it.

Algorithm: a delegation token names its owner; without one, a certificate does, through the mapping rules of the
listener; without either, it is nobody. Where a listener has no TLS there are no certificates, and a token is refused:
it would have been read by others on its way.

Cost: on a plaintext listener one dictionary look-up by the peer's name; over TLS gRPC is asked for the certificate of
the connection (about 2 microseconds), and what that stands for is remembered by the certificate's digest (8 more): a
client chooses how large its certificate is, and how many connections show it. It is never remembered by the peer's
address: once a connection has ended, another one may have the same.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final, Protocol, TypeAlias

import grpc
from regnum.types.v1 import errors_pb2
from regnum_model.principals import NOBODY, Principal

from regnum_service.access.authorization import Denials
from regnum_service.access.identity import CLIENT, Caller, ProcessRole, calling
from regnum_service.access.process_roles import unmapped
from regnum_service.access.validity import Certificate, Validity
from regnum_service.connection_limit import Uses
from regnum_service.connections import place_of
from regnum_service.errors import RegnumError

TOKEN_METADATA: Final = "authorization"  # noqa: S105 - the name of the entry
"""Metadata in which a call brings its delegation token; tools and proxies know that it is not to be written down."""

CERTIFICATE: Final = "x509_pem_cert"
SUBJECT: Final = "x509_subject"
"""Entries of gRPC's authentication context: the certificate, and its distinguished name as RFC 2253 writes it."""

REMEMBERED_MAX: Final = 16_384
"""Callers that a listener remembers; when there are more it begins anew."""

OURS: Final = "/regnum."
"""How the methods of our own services begin: health and reflection know of no callers."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""
Handler = Any
"""grpc.RpcMethodHandler, whose stubs are generic and whose class is not."""
Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
"""What a call brings besides its message; names are lower case."""
_Facts: TypeAlias = Mapping[str, Sequence[bytes]]


class TokenCheck(Protocol):
    """Knows delegation tokens."""

    def check(self, metadata: Metadata) -> Principal | None:
        """Whose token a call brings; None: it brings none. Raises RegnumError for one that is wrong or has expired."""


def host_of(peer: str) -> str:
    """IP address of a peer as gRPC names it (``ipv4:10.0.0.1:5``, ``ipv6:%5B::1%5D:5``); empty: it has none."""
    place = place_of(peer)
    return "" if place is None else str(place[0])


def distinguished_name(subject: str) -> Principal:
    """The principal of a certificate without rules: the whole name (Kafka's DEFAULT)."""
    return Principal(subject)


class Authentication:
    """Of one listener. Belongs to its event loop."""

    def __init__(
        self,
        listener: str = CLIENT,
        *,
        encrypted: bool = False,
        tokens: TokenCheck | None = None,
        principal_of: Callable[[str], Principal] = distinguished_name,
        role_of: Callable[[str], ProcessRole] = unmapped,
        validity: Validity | None = None,
    ) -> None:
        """Only assigns.

        Args:
            listener: its name.
            encrypted: whether it speaks TLS.
            tokens: who knows delegation tokens; None: they are not looked for.
            principal_of: from the distinguished name of a certificate. Raises RegnumError for one without a principal.
            role_of: from that name, too: which process of the cluster it stands for.
            validity: until when certificates are believed; None: for as long as their connection stands.
        """
        self._listener: Final = listener
        self._encrypted: Final = encrypted
        self._tokens: Final = tokens
        self._principal_of: Final = principal_of
        self._role_of: Final = role_of
        self._validity: Final = validity
        self._known: Final[dict[tuple[str, bytes], Caller]] = {}
        self._certificates: Final[dict[bytes, Certificate]] = {}
        """By digest; only where their validity is asked for."""

    def caller_of(self, context: Context) -> Caller:
        """Who makes that call. Raises RegnumError when what it shows is wrong."""
        facts: _Facts = context.auth_context() if self._encrypted else {}
        digest = _digest_of(facts)
        if self._validity is not None and digest:
            # Also of who shows a token: the connection is the certificate's.
            self._validity.check(self._certificate(digest, facts))
        if self._tokens is not None:
            bearer = self._bearer(context.invocation_metadata(), self._tokens)
            if bearer is not None:
                return self._caller(bearer, context.peer())
        peer = context.peer()
        key = (peer, digest)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            subject = _subject_of(facts)
            principal = self._principal_of(subject) if subject else NOBODY
            known = self._known[key] = self._caller(principal, peer, subject=subject)
        return known

    def claimed_by(self, context: Context) -> Caller:
        """What is known of a caller that is not believed."""
        facts: _Facts = context.auth_context() if self._encrypted else {}
        return replace(self._caller(NOBODY, context.peer()), subject=_subject_of(facts))

    def certificate_of(self, context: Context) -> Certificate | None:
        """What the connection of a call shows; None: nothing. Raises RegnumError for what cannot be read here."""
        facts: _Facts = context.auth_context() if self._encrypted else {}
        digest = _digest_of(facts)
        return self._certificate(digest, facts) if digest else None

    def _certificate(self, digest: bytes, facts: _Facts) -> Certificate:
        known = self._certificates.get(digest)
        if known is None:
            if len(self._certificates) >= REMEMBERED_MAX:
                self._certificates.clear()
            known = self._certificates[digest] = Certificate.read(facts[CERTIFICATE][0])
        return known

    def _bearer(self, metadata: Metadata, tokens: TokenCheck) -> Principal | None:
        if not self._encrypted:
            if any(name == TOKEN_METADATA for name, _ in metadata):
                raise RegnumError(
                    errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED,
                    f"a delegation token came over a connection without TLS to listener {self._listener!r}; treat it"
                    " as known to others: expire it, and use TLS",
                )
            return None
        return tokens.check(metadata)

    def _caller(self, principal: Principal, peer: str, *, subject: str = "") -> Caller:
        return Caller(
            principal=principal,
            host=host_of(peer),
            listener=self._listener,
            encrypted=self._encrypted,
            role=self._role_of(subject),
            subject=subject,
        )


def _digest_of(facts: _Facts) -> bytes:
    """Of the certificate that was shown; empty: none was."""
    shown = facts.get(CERTIFICATE)
    return sha256(shown[0]).digest() if shown else b""


def _subject_of(facts: _Facts) -> str:
    """Distinguished name of the certificate that was shown; empty: none was."""
    subject = facts.get(SUBJECT)
    if CERTIFICATE not in facts or not subject:
        return ""
    return subject[0].decode("utf-8", "backslashreplace")


class AuthenticationInterceptor(grpc.aio.ServerInterceptor):
    """Sets the caller of every call of our own services. Stands inside the one that turns errors into answers."""

    def __init__(
        self, authentication: Authentication, uses: Uses | None = None, denials: Denials | None = None
    ) -> None:
        """Only assigns.

        Args:
            authentication: tells callers apart.
            uses: hears which connections have calls; None: nobody asks.
            denials: where it is counted and written down who is not believed; None: nowhere.
        """
        self._authentication: Final = authentication
        self._uses: Final = uses
        self._denials: Final = denials or Denials()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler:
        """The handler that knows its caller; the interceptor around this one remembers it."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(OURS):
            return handler
        parse, render = handler.request_deserializer, handler.response_serializer
        name = handler_call_details.method.rpartition(".")[2]
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._streaming(name, handler.stream_stream), parse, render)
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(self._single(name, handler.stream_unary), parse, render)
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(self._streaming(name, handler.unary_stream), parse, render)
        return grpc.unary_unary_rpc_method_handler(self._single(name, handler.unary_unary), parse, render)

    def _believed(self, name: str) -> Callable[[Context], Caller]:
        """Who makes a call of that name; raises RegnumError, which is written down."""
        authentication, denials = self._authentication, self._denials

        def caller_of(context: Context) -> Caller:
            try:
                return authentication.caller_of(context)
            except RegnumError as error:
                denials.unauthenticated(authentication.claimed_by(context), error, call=name)
                raise

        return caller_of

    def _single(self, name: str, behaviour: Any) -> Any:
        caller_of, uses = self._believed(name), self._uses

        async def call(request: Any, context: Context) -> Any:
            with calling(caller_of(context)):
                return await behaviour(request, context)

        return call if uses is None else _counted(call, uses)

    def _streaming(self, name: str, behaviour: Any) -> Any:
        caller_of, uses = self._believed(name), self._uses

        async def call(request: Any, context: Context) -> None:
            with calling(caller_of(context)):
                responses = behaviour(request, context)
                if not isinstance(responses, AsyncIterator):
                    await responses
                    return
                async with aclosing(responses):  # type: ignore[type-var]  # it is a generator
                    async for response in responses:
                        await context.write(response)

        return call if uses is None else _counted(call, uses)


def _counted(behaviour: Any, uses: Uses) -> Any:
    async def call(request: Any, context: Context) -> Any:
        peer = context.peer()
        uses.began(peer)
        try:
            return await behaviour(request, context)
        finally:
            uses.ended(peer)

    return call
