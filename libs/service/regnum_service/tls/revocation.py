"""Certificates that their authorities have taken back, from a file of revocation lists (RFC 5280).

gRPC for Python cannot be given such lists, so that a listener asks by itself (``access.validity``).
"""

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from regnum_service.access.validity import Serial

_BEGIN = b"-----BEGIN X509 CRL-----"
_END = b"-----END X509 CRL-----"


def revoked_in(lists: bytes, authorities: bytes) -> frozenset[Serial]:
    """What some lists in PEM form, one behind the other, name.

    A list counts also after the time for which its next issue was promised. Raises ValueError, which says why, for what
    is no list, and for one that none of the authorities (PEM) has signed: it would take back nothing that they made.
    """
    found: set[Serial] = set()
    known = x509.load_pem_x509_certificates(authorities)
    parts = [part.partition(_END)[0] for part in lists.split(_BEGIN)[1:]]
    if not parts:
        raise ValueError("there is no revocation list in PEM form in it")
    for part in parts:
        one = x509.load_pem_x509_crl(_BEGIN + part + _END + b"\n")
        if not any(_is_of(one, authority) for authority in known):
            raise ValueError(
                f"the list of {one.issuer.rfc4514_string()} is signed by none of the listener's authorities; where that"
                " was one of them, take its list out, too"
            )
        issuer = one.issuer.public_bytes()
        found.update(Serial(issuer, revoked.serial_number) for revoked in one)
    return frozenset(found)


def _is_of(one: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    if one.issuer != authority.subject:
        return False
    try:
        return one.is_signature_valid(authority.public_key())  # type: ignore[arg-type]
    except (TypeError, UnsupportedAlgorithm):
        # The key is of a kind that signs nothing, or of one that is not known here.
        return False
