"""Until when the certificates that a process shows are good, for its metrics."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from cryptography import x509
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics

from regnum_service.tls.files import WatchedFiles


def expiry_s(certificates: bytes) -> float:
    """When the first of some certificates in PEM form is no good any more, in seconds since 1970.

    Raises ValueError where they cannot be read.
    """
    return min(one.not_valid_after_utc.timestamp() for one in x509.load_pem_x509_certificates(certificates))


class Expiry:
    """Of the certificates in some files: read again when these have changed and are in use. One thread at a time."""

    def __init__(self, files: WatchedFiles, read: Callable[[bytes], float] = expiry_s) -> None:
        """Only assigns. ``read``: finds it in a file's content."""
        self._files: Final = files
        self._read: Final = read
        self._version = 0
        self._expiry_s: float | None = None

    def now_s(self) -> float | None:
        """Seconds since 1970; None: there is no certificate, or one that only TLS itself can read."""
        version, certificate = self._files.version, self._files.pem.certificate
        if version != self._version:
            self._version = version
            try:
                self._expiry_s = None if certificate is None else self._read(certificate)
            except ValueError:
                self._expiry_s = None
        return self._expiry_s


def show(listeners: Mapping[str, WatchedFiles], metrics: Metrics) -> None:
    """Have a process's metrics say it of each of its listeners."""
    expiries = {name: Expiry(files) for name, files in listeners.items()}

    def readings() -> Iterable[tuple[tuple[str, ...], float]]:
        for name, expiry in expiries.items():
            if (at_s := expiry.now_s()) is not None:
                yield (name,), at_s

    metrics.observe_all(instruments.CERTIFICATE_EXPIRY, readings)
