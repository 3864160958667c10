"""Certificates for servers and clients of tests: an authority, and what it signed for this machine."""

import ssl
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).with_name("pem")

CA: Final = _FOLDER / "ca.pem"
"""The authority that signed the others."""
SERVER_CERT: Final = _FOLDER / "server.pem"
"""For 127.0.0.1 and localhost."""
SERVER_KEY: Final = _FOLDER / "server.key"
"""Its key."""
CLIENT_CERT: Final = _FOLDER / "client.pem"
"""A client; its common name is "client"."""
CLIENT_KEY: Final = _FOLDER / "client.key"
"""Its key."""


def client_context() -> ssl.SSLContext:
    """What a client needs that shows its certificate."""
    context = ssl.create_default_context(cafile=CA)
    context.load_cert_chain(CLIENT_CERT, CLIENT_KEY)
    return context
