"""What a connection that TLS ended means, and what to do: gRPC's words are those of its library. Pure."""

from typing import Final

_REASONS: Final = (
    (
        "CERTIFICATE_VERIFY_FAILED: certificate has expired",
        "the server's certificate has expired: renew it, or set this machine's clock",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED: certificate is not yet valid",
        "the server's certificate is not valid yet: set the clock of this machine, or of the one that made it",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED: self signed certificate",
        "the server's certificate is signed by nobody but itself: give --tls-ca the authority that it should have",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED: self-signed certificate",
        "the server's certificate is signed by nobody but itself: give --tls-ca the authority that it should have",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "the server's certificate is signed by no authority of --tls-ca: give the right one, or doubt who answers",
    ),
    (
        "Hostname Verification Check failed",
        "the server's certificate is not for this host: connect by a name that it has, or have one made for this name",
    ),
    ("WRONG_VERSION_NUMBER", "the server does not speak TLS there: connect without, or to another address"),
    ("Tls handshake failed", "server and client found no common way to speak TLS: see the server's log"),
    (
        "failed to connect to all addresses; last error: UNAVAILABLE: ",
        "the server hung up at once: it may want TLS, a certificate, or another one than was shown; its log says which",
    ),
)
"""What gRPC says, and what that means; the first that is found."""


def why_not_connected(details: str) -> str | None:
    """What to do about a connection that ended like that; None: TLS has nothing to do with it."""
    if details.endswith(("Connection refused", "No route to host", "Network is unreachable")):
        return None
    for words, meaning in _REASONS:
        if words in details and (not words.endswith(": ") or "Socket closed" in details):
            return meaning
    return None
