"""Certificates that are right, and wrong in each way that there is, as files."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from regnum_service.tls.files import TlsFiles

HOST: Final = "127.0.0.1"
"""Whom right certificates are for."""

DAY: Final = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Certificates:
    """An authority that is trusted, another one, and what they sign, below a folder."""

    def __init__(self, folder: Path) -> None:
        """Makes the two authorities."""
        self._folder: Final = folder
        self._authority: Final = trustme.CA()
        self._other: Final = trustme.CA()
        self.ca: Final = folder / "ca.pem"
        self.other_ca: Final = folder / "other-ca.pem"
        self._authority.cert_pem.write_to_path(self.ca)
        self._other.cert_pem.write_to_path(self.other_ca)

    def right(self, name: str = HOST, *, common_name: str = "broker") -> Leaf:
        """Signed by the authority, valid, for that host."""
        return self._write(self._authority.issue_cert(name, common_name=common_name), f"right-{name}-{common_name}")

    def of_another_authority(self) -> Leaf:
        """Signed by the other one."""
        return self._write(self._other.issue_cert(HOST, common_name="broker"), "other")

    def expired(self) -> Leaf:
        """Valid until yesterday."""
        now = dt.datetime.now(dt.UTC)
        leaf = self._authority.issue_cert(HOST, common_name="broker", not_before=now - 3 * DAY, not_after=now - DAY)
        return self._write(leaf, "expired")

    def early(self) -> Leaf:
        """Valid from tomorrow."""
        now = dt.datetime.now(dt.UTC)
        leaf = self._authority.issue_cert(HOST, common_name="broker", not_before=now + DAY, not_after=now + 3 * DAY)
        return self._write(leaf, "early")

    def self_signed(self) -> Leaf:
        """Signed by nobody but itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
        now = dt.datetime.now(dt.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
            .sign(key, hashes.SHA256())
        )
        leaf = Leaf(self._folder / "self-signed.pem", self._folder / "self-signed.key")
        leaf.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        leaf.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return leaf

    def files(self, leaf: Leaf | None, *, ca: Path | None = None) -> TlsFiles:
        """What one side shows, and the trusted authority unless another one is named."""
        return TlsFiles(
            ca=ca or self.ca,
            certificate=None if leaf is None else leaf.certificate,
            key=None if leaf is None else leaf.key,
        )

    def _write(self, made: trustme.LeafCert, name: str) -> Leaf:
        leaf = Leaf(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        leaf.certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        leaf.key.write_bytes(made.private_key_pem.bytes())
        return leaf
