"""What a connection of Python's own TLS shows, in the words of gRPC: one caller is the same at every listener.

gRPC has a certificate's name written by OpenSSL (RFC 2253, short names of attributes); here ``cryptography`` writes it,
with the same short names. What it would write otherwise (an attribute that has no short name here) is no name: such a
certificate is refused, and never taken for another one's.
"""

import ssl
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from regnum.types.v1 import errors_pb2

from regnum_service.access.authentication import CERTIFICATE, SUBJECT
from regnum_service.errors import RegnumError

REMEMBERED: Final = 4_096
"""Certificates that are known by their content."""

SHORT_NAMES: Final = MappingProxyType(
    {
        NameOID.COMMON_NAME: "CN",
        NameOID.ORGANIZATION_NAME: "O",
        NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
        NameOID.COUNTRY_NAME: "C",
        NameOID.STATE_OR_PROVINCE_NAME: "ST",
        NameOID.LOCALITY_NAME: "L",
        NameOID.STREET_ADDRESS: "street",
        NameOID.DOMAIN_COMPONENT: "DC",
        NameOID.USER_ID: "UID",
        NameOID.EMAIL_ADDRESS: "emailAddress",
        NameOID.SERIAL_NUMBER: "serialNumber",
        NameOID.SURNAME: "SN",
        NameOID.GIVEN_NAME: "GN",
        NameOID.TITLE: "title",
    }
)
"""As OpenSSL writes attributes of names."""


def shown_by(connection: ssl.SSLObject | None) -> Mapping[str, Sequence[bytes]]:
    """The certificate of the other end and its name; empty: it showed none. Raises RegnumError: it has no such name."""
    shown = None if connection is None else connection.getpeercert(binary_form=True)
    return {} if shown is None else _facts(shown)


@lru_cache(maxsize=REMEMBERED)
def _facts(der: bytes) -> Mapping[str, Sequence[bytes]]:
    try:
        one = x509.load_der_x509_certificate(der)
        attributes = [attribute.oid for attribute in one.subject]
        name = one.subject.rfc4514_string(dict(SHORT_NAMES))
    except ValueError as error:
        raise _unreadable(str(error)) from None
    if unknown := [oid.dotted_string for oid in attributes if oid not in SHORT_NAMES]:
        raise _unreadable(f"its name has the attribute {unknown[0]}, which this listener does not know")
    return {CERTIFICATE: (one.public_bytes(Encoding.PEM),), SUBJECT: (name.encode(),)}


def _unreadable(why: str) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED,
        f"the certificate of this connection cannot be read ({why}); show another one",
    )
