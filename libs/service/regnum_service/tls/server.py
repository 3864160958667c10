"""TLS at a listener: what it shows, whom it asks for a certificate, and what a certificate stands for.

gRPC answers TLS 1.2 and 1.3 and nothing older; that is its own floor and cannot be lowered here.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from regnum.types.v1 import errors_pb2
from regnum_model.principals import Principal

from regnum_service.access.authentication import distinguished_name
from regnum_service.access.identity import ProcessRole
from regnum_service.access.principal_mapping import MappingRules, NoPrincipalError
from regnum_service.errors import RegnumError
from regnum_service.tls.files import WatchedFiles


def principals_by(rules: MappingRules) -> Callable[[str], Principal]:
    """The principal of a distinguished name by these rules; raises RegnumError for one that has none."""

    def principal_of(subject: str) -> Principal:
        try:
            return rules.principal(subject)
        except NoPrincipalError as error:
            raise RegnumError(errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED, str(error)) from error

    return principal_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """Of one listener."""

    files: WatchedFiles
    """Its certificate, and the authorities of its clients."""
    requires_certificate: bool
    """Clients show a certificate of one of these authorities, or are not let in."""
    principal_of: Callable[[str], Principal] = distinguished_name
    """The principal of a distinguished name. Raises RegnumError for one without."""
    role_of: Callable[[str], ProcessRole] | None = None
    """Which process of the cluster a distinguished name stands for; None: nothing says so, and any is taken for any."""

    def context(self) -> ssl.SSLContext:
        """For a socket of Python's own: what the files hold now. Reads files: never on an event loop."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.files.load_into(context)
        if self.requires_certificate:
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def credentials(self) -> grpc.ServerCredentials:
        """For one port: each connection gets what the files hold when it comes."""
        files = self.files
        given = files.version

        def changed() -> grpc.ServerCertificateConfiguration | None:
            # None: as before. To make gRPC's context for each connection would cost more than the handshake.
            nonlocal given
            version = files.check()
            if version == given:
                return None
            given = version
            return files.pem.server_configuration()

        return grpc.dynamic_ssl_server_credentials(
            files.pem.server_configuration(),
            changed,  # type: ignore[arg-type]  # gRPC takes None for "no change"
            self.requires_certificate,
        )
