"""What a service is told about its listeners: certificates, who may connect, and how much they may take."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

import structlog
from pydantic import Field, field_validator, model_validator
from regnum_model.nodes import Address
from regnum_model.nodes.processes import is_loopback
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics

from regnum_service.access.listener import ListenerAccess, ListenerLimits
from regnum_service.access.principal_mapping import MappingRules, MappingRulesError
from regnum_service.access.process_roles import RoleRules
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

NOT_TOLD_APART: Final = (
    "processes are not told apart: whichever has a certificate may speak for any client and give orders to brokers;"
    " give every process the same --process-role-mapping-rules"
)
"""What is said where certificates could say which process shows them, and nothing does."""


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
    internal_tls_principal_mapping_rules: str | None = Field(
        default=None,
        description="The same for the certificates of processes alone; without it, tls-principal-mapping-rules.",
    )
    process_role_mapping_rules: str = Field(
        default="",
        description="Which process a certificate stands for that is shown between processes: rules as in"
        " tls-principal-mapping-rules that make broker, election, metadata or quota of its name. With them only brokers"
        " speak for clients and copy replicas, only election processes give orders, and only metadata processes send"
        " metadata; a certificate that no rule is for is refused there. Without them any process may do all of that.",
    )
    internal_tls_crl: Path | None = Field(
        default=None,
        description="PEM file with revocation lists of the authorities in internal-tls-ca: calls by certificates that"
        " they name are refused and streams ended. Read again when it changes.",
    )
    allow_plaintext_beyond_loopback: bool = Field(
        default=True,
        description="Whether a listener without TLS may be told to listen where other machines reach it: these"
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

    @field_validator(
        "tls_principal_mapping_rules",
        "internal_tls_principal_mapping_rules",
        "client_tls_principal_mapping_rules",
        "process_role_mapping_rules",
        check_fields=False,
    )
    @classmethod
    def _rules_that_read(cls, text: str | None) -> str | None:
        try:
            MappingRules.parse(text or "")
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
        for name in ("process_role_mapping_rules", "internal_tls_crl"):
            if getattr(self, name) and not all(given):
                raise ValueError(
                    f"{name.replace('_', '-')} is about certificates of processes, and between processes there is no"
                    " TLS; give internal-tls-certificate, internal-tls-key and internal-tls-ca, or leave it out"
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
    client_tls_crl: Path | None = Field(
        default=None,
        description="PEM file with revocation lists of the authorities in client-tls-ca: calls by certificates that"
        " they name are refused and streams ended. Read again when it changes.",
    )
    client_tls_principal_mapping_rules: str | None = Field(
        default=None,
        description="tls-principal-mapping-rules for the certificates of clients alone; without it, those.",
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
    client_connections_max_age_s: float = Field(
        default=3_600.0,
        ge=0.0,
        description="Seconds after which a client's connection takes no new calls and is closed, at the latest after as"
        " long again, calls and streams and all: so that an authority that was taken away, which only a new connection"
        " meets, counts for all. 0: never. Connections of processes have no such age.",
    )
    client_max_connections_per_address: int = Field(
        default=0,
        ge=0,
        description="Connections of clients from one IP address; of more than that those are closed that have had no"
        " call under way for the longest time (Kafka: max.connections.per.ip). 0: any number, for behind a NAT many"
        " clients share an address.",
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
        if self.client_tls_crl is not None and ca is None:
            raise ValueError("client-tls-crl names certificates of the authorities in client-tls-ca; give that, too")
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
    shown: Mapping[str, WatchedFiles]
    """What each listener with TLS shows, by its name."""
    opener_of: Callable[[WatchedFiles | None], Open] = opener
    """Opens channels that show such files; None: in plaintext."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why callers are believed more than they should be."""
        tls = self.internal.tls
        return (NOT_TOLD_APART,) if tls is not None and tls.role_of is None else ()

    @property
    def open_channel(self) -> Open:
        """How channels to other processes are opened."""
        return self.opener_of(self.files)

    @classmethod
    def of(
        cls,
        settings: InternalListenerSettings,
        *,
        metrics: Metrics | None = None,
        opener_of: Callable[[WatchedFiles | None], Open] = opener,
    ) -> Self:
        """Read the files. Raises StartRefusedError. ``metrics`` say until when their certificates are good."""
        log = structlog.get_logger("tls")

        def complain(why: str) -> None:
            log.error("certificates changed and cannot be used", reason=why)

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
        roles = settings.process_role_mapping_rules
        tells_apart = bool(roles)
        # Where there is no TLS there is nothing that could tell.
        (metrics or Metrics()).observe(
            instruments.PROCESSES_TOLD_APART, lambda: None if internal is None else float(tells_apart)
        )
        if internal is not None and not roles:
            log.warning(NOT_TOLD_APART)
        inner = ListenerAccess(
            tls=None
            if internal is None
            else ServerTls(
                files=internal,
                requires_certificate=True,
                principal_of=principals_by(_rules(settings, settings.internal_tls_principal_mapping_rules)),
                role_of=RoleRules(MappingRules.parse(roles)) if roles else None,
            ),
            limits=ListenerLimits(
                streams_max=settings.internal_max_concurrent_streams,
                handshake_timeout_s=settings.tls_handshake_timeout_s,
            ),
        )
        if not isinstance(settings, ListenerSettings):
            return cls(client=inner, internal=inner, files=internal, shown=listeners, opener_of=opener_of)
        outer = ListenerAccess(
            tls=None
            if client is None
            else ServerTls(
                files=client,
                requires_certificate=settings.client_tls_client_auth == "required",
                principal_of=principals_by(_rules(settings, settings.client_tls_principal_mapping_rules)),
            ),
            limits=ListenerLimits(
                streams_max=settings.client_max_concurrent_streams,
                connections_max=settings.client_max_connections,
                connections_per_address_max=settings.client_max_connections_per_address or None,
                idle_s=settings.client_connections_max_idle_s,
                age_s=settings.client_connections_max_age_s or None,
                age_grace_s=settings.client_connections_max_age_s,
                handshake_timeout_s=settings.tls_handshake_timeout_s,
            ),
        )
        return cls(client=outer, internal=inner, files=internal, shown=listeners, opener_of=opener_of)


def _rules(settings: InternalListenerSettings, own: str | None) -> MappingRules:
    """Of a listener: its own ones, or those of all."""
    return MappingRules.parse(settings.tls_principal_mapping_rules if own is None else own)


def _files(settings: InternalListenerSettings) -> tuple[TlsFiles | None, TlsFiles | None]:
    """Of the internal listeners, and of the one for clients."""
    internal = client = None
    if settings.internal_tls_certificate is not None:
        internal = TlsFiles(
            ca=settings.internal_tls_ca,
            certificate=settings.internal_tls_certificate,
            key=settings.internal_tls_key,
            crl=settings.internal_tls_crl,
        )
    if isinstance(settings, ListenerSettings) and settings.client_tls_certificate is not None:
        client = TlsFiles(
            ca=settings.client_tls_ca,
            certificate=settings.client_tls_certificate,
            key=settings.client_tls_key,
            crl=settings.client_tls_crl,
        )
    return internal, client


def _plaintext_listeners(settings: InternalListenerSettings) -> Iterator[str]:
    for name in (CLIENT, *OTHERS):
        if getattr(settings, f"{name}_listen", None) is not None and not settings.speaks_tls(name):
            yield name
