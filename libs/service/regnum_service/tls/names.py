"""What a connection of Python's own TLS shows, in the words of gRPC: one caller is the same at every listener.

gRPC has a certificate's name written by OpenSSL (``XN_FLAG_RFC2253``): the last part first, short names of attributes,
what is special behind a backslash, and bytes of what is no printable ASCII in hexadecimal. It is written here in the
same way. A certificate with an attribute that has no short name here is refused, and never taken for another one's.
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
        parts = [[(attribute.oid, attribute.value) for attribute in part] for part in one.subject.rdns]
    except ValueError as error:
        raise _unreadable(str(error)) from None
    return {
        CERTIFICATE: (one.public_bytes(Encoding.PEM),),
        SUBJECT: (",".join("+".join(map(_attribute, reversed(part))) for part in reversed(parts)).encode(),),
    }


def _attribute(attribute: tuple[x509.ObjectIdentifier, str | bytes]) -> str:
    oid, value = attribute
    name = SHORT_NAMES.get(oid)
    if name is None or isinstance(value, bytes):
        raise _unreadable(f"its name has the attribute {oid.dotted_string}, which this listener does not know")
    return f"{name}={written(value)}"


def written(value: str) -> str:
    """A value as OpenSSL writes it by RFC 2253."""
    last = len(value) - 1
    return "".join(
        f"\\{one}"
        if one in ',+"\\<>;' or (one == "#" and not place) or (one == " " and place in (0, last))
        else one
        if " " <= one <= "~"
        else "".join(f"\\{byte:02X}" for byte in one.encode())
        for place, one in enumerate(value)
    )


def _unreadable(why: str) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED,
        f"the certificate of this connection cannot be read ({why}); show another one",
    )
