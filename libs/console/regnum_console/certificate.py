"""What the console shows beyond this machine: a certificate, and the names in it. Read again when it changes."""

import asyncio
import ssl
from ipaddress import IPv6Address
from typing import Final

from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.tls.files import TlsFiles, TlsFilesError, WatchedFiles


class Certificate:
    """Of one listener."""

    def __init__(self, files: TlsFiles) -> None:
        """Read it. Raises StartRefusedError for files that are no use, and for a certificate without a name."""
        try:
            self._files: Final = WatchedFiles(files)
        except TlsFilesError as error:
            raise StartRefusedError(str(error), exit_status=ExitStatus.WRONG_USE) from error
        self._version = 0
        self._take_up()
        if not self.names:
            raise StartRefusedError(
                f"{files.certificate} has no subject alternative name: browsers believe no other",
                exit_status=ExitStatus.WRONG_USE,
            )

    async def context(self) -> ssl.SSLContext:
        """For a connection that comes now."""
        if self._files.is_due:
            await asyncio.to_thread(self._look)
        return self._context

    def _look(self) -> None:
        if self._files.check() != self._version:
            self._take_up()

    def _take_up(self) -> None:
        self._version = self._files.version
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._files.load_into(self._context)
        self.names = names_in(self._files.pem.certificate or b"")
        """What it is for, lower case, addresses of IPv6 in brackets."""


def names_in(certificate: bytes) -> frozenset[str]:
    """DNS names and addresses that a certificate in PEM form is for, as they stand in addresses of pages."""
    from cryptography import x509  # noqa: PLC0415 - only a console that is served beyond this machine needs it

    first = x509.load_pem_x509_certificates(certificate)[0]
    try:
        named = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    addresses = named.get_values_for_type(x509.IPAddress)
    written = {f"[{one}]" if isinstance(one, IPv6Address) else str(one) for one in addresses}
    return frozenset(written | {one.lower() for one in named.get_values_for_type(x509.DNSName)})
