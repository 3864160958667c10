"""Until when the certificates that a process shows are good: for its metrics, and for those who ask how it is."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
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


class ExpiredCertificates:
    """Which listeners show a certificate that is no good any more. One thread at a time."""

    def __init__(self, listeners: Mapping[str, WatchedFiles]) -> None:
        """Only assigns; ``listeners``: files by the name of the listener."""
        self._expiries: Final = {name: (files, Expiry(files)) for name, files in listeners.items()}

    def look(self, now_s: float) -> str:
        """That they are, in words; empty: none is. Reads files that changed; ``now_s``: seconds since 1970."""
        found: list[str] = []
        for name, (files, expiry) in self._expiries.items():
            files.check()
            at_s = expiry.now_s()
            if at_s is not None and at_s <= now_s:
                at = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
                found.append(f"the certificate of its {name} listener expired at {at}; replace the files")
        return "; ".join(found)


def show(listeners: Mapping[str, WatchedFiles], metrics: Metrics) -> None:
    """Have a process's metrics say it of each of its listeners."""
    expiries = {name: Expiry(files) for name, files in listeners.items()}

    def readings() -> Iterable[tuple[tuple[str, ...], float]]:
        for name, expiry in expiries.items():
            if (at_s := expiry.now_s()) is not None:
                yield (name,), at_s

    metrics.observe_all(instruments.CERTIFICATE_EXPIRY, readings)
