"""Until when a certificate is believed: its own end, and revocation; also after its connection was let in. Pure.

TLS looks at a certificate once, when its connection is made, and at no list of revoked ones; a connection may stand for
months. So each call asks again, and streams end (``streams``). Only the certificate itself is looked at, not those
between it and its authority.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple, Self

from cryptography import x509
from regnum.types.v1 import errors_pb2

from regnum_service.errors import RegnumError


class Serial(NamedTuple):
    """What a certificate is revoked by."""

    issuer: bytes
    """Name of the authority that signed it, as it stands in the certificate (DER)."""
    number: int
    """Serial number that the authority gave it."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a connection showed."""

    serial: Serial
    not_after_ms: int
    """Milliseconds since 1970, after which it is no good."""

    @classmethod
    def read(cls, pem: bytes) -> Self:
        """From PEM form. Raises RegnumError: TLS took it, and it cannot be read here."""
        try:
            one = x509.load_pem_x509_certificate(pem)
            serial = Serial(one.issuer.public_bytes(), one.serial_number)
        except ValueError as error:
            raise _refused(f"the certificate of this connection cannot be read ({error}); show another one") from None
        return cls(serial, int(one.not_valid_after_utc.timestamp() * 1_000))

    def __str__(self) -> str:
        return f"the certificate of this connection (serial number {self.serial.number:x})"


class Validity:
    """Of the certificates that clients of one listener show."""

    def __init__(self, revoked: Callable[[], Collection[Serial]], wall_ms: Callable[[], int]) -> None:
        """Only assigns.

        Args:
            revoked: those that are, now.
            wall_ms: milliseconds since 1970.
        """
        self._revoked: Final = revoked
        self._wall_ms: Final = wall_ms

    def ends_ms(self, certificate: Certificate) -> int:
        """Until when it is believed, in milliseconds since 1970; 0: it is revoked."""
        return 0 if certificate.serial in self._revoked() else certificate.not_after_ms

    def check(self, certificate: Certificate) -> None:
        """Raise RegnumError SASL_AUTHENTICATION_FAILED unless it is believed now."""
        if self._wall_ms() > self.ends_ms(certificate):
            raise _refused(self._why(certificate))

    def end_of_stream(self, certificate: Certificate) -> RegnumError:
        """What is said to a stream that ends with its certificate.

        One that has expired is asked to come again: whoever has renewed the certificate meanwhile, as is usual, goes on
        with the new one, and another is refused then.
        """
        if certificate.serial in self._revoked():
            return _refused(self._why(certificate))
        return RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, self._why(certificate))

    def _why(self, certificate: Certificate) -> str:
        if certificate.serial in self._revoked():
            return f"{certificate} is revoked; use another one"
        ended = datetime.fromtimestamp(certificate.not_after_ms / 1_000, UTC).isoformat(timespec="seconds")
        return f"{certificate} has expired ({ended}); connect again with a renewed one"


def _refused(why: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED, why)
