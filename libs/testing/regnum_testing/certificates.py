"""Certificates for servers and clients of tests: an authority, and what it signed for this machine.

Made once for each process that imports this module, in a folder that goes with the process.
"""

import atexit
import shutil
import ssl
import tempfile
from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

_FOLDER: Final = Path(tempfile.mkdtemp(prefix="regnum-certificates-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)

CA: Final = _FOLDER / "ca.pem"
"""The authority that signed the others."""
SERVER_CERT: Final = _FOLDER / "server.pem"
"""For 127.0.0.1 and localhost."""
SERVER_KEY: Final = _FOLDER / "server.key"
"""Its key, PKCS 8."""
CLIENT_CERT: Final = _FOLDER / "client.pem"
"""A client; its common name is "client"."""
CLIENT_KEY: Final = _FOLDER / "client.key"
"""Its key, PKCS 8."""


def client_context() -> ssl.SSLContext:
    """What a client needs that shows its certificate."""
    context = ssl.create_default_context(cafile=CA)
    context.load_cert_chain(CLIENT_CERT, CLIENT_KEY)
    return context


def _write(leaf: trustme.LeafCert, certificate: Path, key: Path) -> None:
    certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    # Java reads no other form.
    private = load_pem_private_key(leaf.private_key_pem.bytes(), password=None)
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


_authority = trustme.CA()
_authority.cert_pem.write_to_path(CA)
_write(_authority.issue_cert("127.0.0.1", "localhost"), SERVER_CERT, SERVER_KEY)
_write(_authority.issue_cert("client", common_name="client"), CLIENT_CERT, CLIENT_KEY)
