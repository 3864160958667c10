"""What a service is told about its listeners: certificates, who may connect, and how much they may take."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

import structlog
from pydantic import Field, field_validator, model_validator
from regnum_model.nodes import Address
from regnum_model.nodes.processes import is_loopback
from regnum_telemetry.metrics import Metrics

from regnum_service.access.listener import ListenerAccess, ListenerLimits
from regnum_service.access.principal_mapping import MappingRules, MappingRulesError
from regnum_service.channel import Open
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.settings import ServiceSettings
from regnum_service.tls.channels import opener
from regnum_service.tls.expiry import show
from regnum_service.tls.files import TlsFiles, TlsFilesError, WatchedFiles
from regnum_service.tls.server import ServerTls, principals_by

CLIENT: Final = "client"
OTHERS: Final = ("internal", "lifeline")
"""Listeners by the beginning of their settings; those between processes of the cluster share one set of files."""


class InternalListenerSettings(ServiceSettings):
    """Of a service with a listener for other processes of the cluster."""

    internal_tls_certificate: Path | None = Field(
        default=None,
        description="PEM file with the certificate that this process shows to the others, at its listeners and when it"
        " calls them. With it all connections between processes use TLS, both sides showing a certificate; read again"
        " when it changes.",
    )
    internal_tls_key: Path | None = Field(default=None, description="PEM file with its key, without a password.")
    internal_tls_ca: Path | None = Field(
        default=None, description="PEM file with the authorities that certificates of other processes are signed by."
    )
    tls_principal_mapping_rules: str = Field(
        default="DEFAULT",
        description="How the name of a certificate becomes a principal (Kafka: ssl.principal.mapping.rules): "
        "RULE:pattern/replacement/[LU] and DEFAULT, separated by commas.",
    )
    allow_plaintext_beyond_loopback: bool = Field(
        default=True,
        description="Whether a listener without TLS may be told to listen where other machines reach it: whoever does"
        " may read and change everything that goes over it. False: such an address is refused at the start.",
    )
    internal_max_concurrent_streams: int = Field(
        default=1_000, ge=10, le=100_000, description="Calls under way on one connection to the internal listener."
    )
    tls_handshake_timeout_s: float = Field(
        default=5.0,
        ge=0.5,
        le=60.0,
        description="Seconds within which a connection has to say something that makes sense, or is closed.",
    )

    @field_validator("tls_principal_mapping_rules")
    @classmethod
    def _rules_that_read(cls, text: str) -> str:
        try:
            MappingRules.parse(text)
        except MappingRulesError as error:
            raise ValueError(str(error)) from None
        return text

    @model_validator(mode="after")
    def _check_internal_tls(self) -> Self:
        given = [self.internal_tls_certificate, self.internal_tls_key, self.internal_tls_ca]
        if any(given) and not all(given):
            raise ValueError(
                "internal-tls-certificate, internal-tls-key and internal-tls-ca belong together: between processes both"
                " sides show a certificate and check the other's; give all three, or none"
            )
        return self

    @model_validator(mode="after")
    def _check_plaintext(self) -> Self:
        if self.allow_plaintext_beyond_loopback:
            return self
        for name in (CLIENT, *OTHERS):
            told: str | None = getattr(self, f"{name}_listen", None)
            if told is None or self.speaks_tls(name) or is_loopback(Address.parse(told).host):
                continue
            files = "client" if name == CLIENT else "internal"
            raise ValueError(
                f"{name}-listen is {told}, which other machines may reach, and without TLS anybody there may read and"
                f" change everything, which allow-plaintext-beyond-loopback forbids here; give"
                f" --{files}-tls-certificate and what belongs to it, or listen on 127.0.0.1"
            )
        return self

    def speaks_tls(self, listener: str) -> bool:
        """Whether the listener of that name does."""
        name = CLIENT if listener == CLIENT else "internal"
        return getattr(self, f"{name}_tls_certificate", None) is not None


class ListenerSettings(InternalListenerSettings):
    """Of a service with a listener for clients besides."""

    client_tls_certificate: Path | None = Field(
        default=None,
        description="PEM file with the certificate that clients are shown, and those between it and its authority;"
        " with it clients connect over TLS. Read again when it changes.",
    )
    client_tls_key: Path | None = Field(default=None, description="PEM file with its key, without a password.")
    client_tls_ca: Path | None = Field(
        default=None, description="PEM file with the authorities that certificates of clients are signed by."
    )
    client_tls_client_auth: Literal["none", "requested", "required"] = Field(
        default="none",
        description="Whether clients show a certificate (Kafka: ssl.client.auth). gRPC cannot ask for one without"
        " insisting, so requested is refused: give clients that have none of their own one that they share.",
    )
    client_max_concurrent_streams: int = Field(
        default=1_000, ge=10, le=100_000, description="Calls under way on one connection of a client."
    )
    client_max_connections: int = Field(
        default=10_000,
        ge=1,
        description="Connections of clients; of more than that those are closed that have had no call under way for"
        " the longest time (Kafka: max.connections). Other processes of the cluster do not count: they have a listener"
        " of their own.",
    )
    client_connections_max_idle_s: float = Field(
        default=600.0,
        ge=1.0,
        description="Seconds without a call after which a client's connection is closed (Kafka:"
        " connections.max.idle.ms).",
    )

    @model_validator(mode="after")
    def _check_client_tls(self) -> Self:
        certificate, key, ca = self.client_tls_certificate, self.client_tls_key, self.client_tls_ca
        if (certificate is None) is not (key is None):
            raise ValueError("client-tls-certificate and client-tls-key belong together; give both, or neither")
        if self.client_tls_client_auth == "requested":
            raise ValueError(
                "client-tls-client-auth is requested, and gRPC's server cannot ask for a certificate without insisting;"
                " give required, and to clients without a certificate of their own one that they share, or none"
            )
        if self.client_tls_client_auth == "required" and (certificate is None or ca is None):
            raise ValueError(
                "client-tls-client-auth is required; give --client-tls-certificate, --client-tls-key and"
                " --client-tls-ca, the authorities of the clients' certificates"
            )
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTls:
    """TLS of one process, as its settings say."""

    client: ListenerAccess
    """At the listener for clients."""
    internal: ListenerAccess
    """At the listeners for other processes."""
    files: WatchedFiles | None
    """What this process shows to others that it calls; None: it calls them in plaintext."""

    @property
    def open_channel(self) -> Open:
        """How channels to other processes are opened."""
        return opener(self.files)

    @classmethod
    def of(cls, settings: InternalListenerSettings, *, metrics: Metrics | None = None) -> Self:
        """Read the files. Raises StartRefusedError. ``metrics`` say until when their certificates are good."""
        log = structlog.get_logger("tls")

        def complain(why: str) -> None:
            log.error("certificates changed and cannot be used", reason=why)

        rules = MappingRules.parse(settings.tls_principal_mapping_rules)
        try:
            internal, client = (
                None if files is None else WatchedFiles(files, complain=complain) for files in _files(settings)
            )
        except TlsFilesError as error:
            raise StartRefusedError(str(error), exit_status=ExitStatus.WRONG_USE) from error
        for name in _plaintext_listeners(settings):
            log.warning(
                "this listener speaks plaintext: whoever reaches it may read and change what goes over it",
                listener=name,
                listens=getattr(settings, f"{name}_listen"),
            )
        listeners = {
            name: files
            for name in (CLIENT, *OTHERS)
            if getattr(settings, f"{name}_listen", None) is not None
            if (files := client if name == CLIENT else internal) is not None
        }
        show(listeners, metrics or Metrics())
        principal_of = principals_by(rules)
        inner = ListenerAccess(
            tls=None
            if internal is None
            else ServerTls(files=internal, requires_certificate=True, principal_of=principal_of),
            limits=ListenerLimits(
                streams_max=settings.internal_max_concurrent_streams,
                handshake_timeout_s=settings.tls_handshake_timeout_s,
            ),
        )
        if not isinstance(settings, ListenerSettings):
            return cls(client=inner, internal=inner, files=internal)
        outer = ListenerAccess(
            tls=None
            if client is None
            else ServerTls(
                files=client,
                requires_certificate=settings.client_tls_client_auth == "required",
                principal_of=principal_of,
            ),
            limits=ListenerLimits(
                streams_max=settings.client_max_concurrent_streams,
                connections_max=settings.client_max_connections,
                idle_s=settings.client_connections_max_idle_s,
                handshake_timeout_s=settings.tls_handshake_timeout_s,
            ),
        )
        return cls(client=outer, internal=inner, files=internal)


def _files(settings: InternalListenerSettings) -> tuple[TlsFiles | None, TlsFiles | None]:
    """Of the internal listeners, and of the one for clients."""
    internal = client = None
    if settings.internal_tls_certificate is not None:
        internal = TlsFiles(
            ca=settings.internal_tls_ca,
            certificate=settings.internal_tls_certificate,
            key=settings.internal_tls_key,
        )
    if isinstance(settings, ListenerSettings) and settings.client_tls_certificate is not None:
        client = TlsFiles(
            ca=settings.client_tls_ca, certificate=settings.client_tls_certificate, key=settings.client_tls_key
        )
    return internal, client


def _plaintext_listeners(settings: InternalListenerSettings) -> Iterator[str]:
    for name in (CLIENT, *OTHERS):
        if getattr(settings, f"{name}_listen", None) is not None and not settings.speaks_tls(name):
            yield name
