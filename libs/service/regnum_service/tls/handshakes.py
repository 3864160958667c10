"""Handshakes of TLS that failed, counted by what gRPC says of them: it tells nothing but a line on stderr.

It says neither which listener it was nor which address, and it says nothing of who hangs up, keeps silent or offers no
HTTP/2. Lines are of level INFO, for connections to this process and from it alike.
"""

import threading
from collections.abc import Iterable
from typing import Final

_FAILED: Final = b"Handshake failed with error "

_REASONS: Final = (
    (b"PEER_DID_NOT_RETURN_A_CERTIFICATE", "no_certificate"),
    (b"certificate has expired", "certificate_expired"),
    (b"CERTIFICATE_VERIFY_FAILED", "certificate_not_trusted"),
    (b"WRONG_VERSION_NUMBER", "not_tls"),
    (b"HTTP_REQUEST", "not_tls"),
    (b"UNSUPPORTED_PROTOCOL", "no_common_protocol"),
    (b"NO_SHARED_CIPHER", "no_common_protocol"),
    (b"_ALERT_", "ended_by_peer"),
)
"""What gRPC says, and the reason that is counted; the first that is found."""

OTHER: Final = "other"
"""Of the rest."""


def failure_of(line: bytes) -> str | None:
    """The reason for which a handshake failed; None: the line says nothing of the kind. Pure.

    >>> failure_of(b"I1126 ssl.cc:2563] Handshake failed with error SSL_ERROR_SSL: WRONG_VERSION_NUMBER")
    'not_tls'
    """
    if _FAILED not in line:
        return None
    return next((reason for words, reason in _REASONS if words in line), OTHER)


class HandshakeFailures:
    """How many there were. Any thread."""

    def __init__(self) -> None:
        """None yet; every reason is shown from the beginning."""
        self._lock: Final = threading.Lock()
        self._counts: Final = {(reason,): 0.0 for _, reason in _REASONS} | {(OTHER,): 0.0}

    def note(self, reason: str) -> None:
        """One more."""
        with self._lock:
            self._counts[reason,] += 1

    def read(self) -> Iterable[tuple[tuple[str, ...], float]]:
        """By reason, as metrics show them."""
        with self._lock:
            return tuple(self._counts.items())


FAILURES: Final = HandshakeFailures()
"""Of this process: there is one stderr."""
