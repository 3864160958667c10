"""How a driver proves who it is, and whom it believes: options of a store's URL, the same for every driver.

    ?ca=FILE                   PEM file of the authorities that signed the servers' certificates; switches TLS on
    ?cert=FILE&key=FILE        PEM files of the client's own certificate and its key, for servers that ask for one
    ?user=NAME&password_file=FILE

A URL is shown in logs and process lists, so that no option holds a secret: only paths do.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

OPTIONS: Final = ("ca", "cert", "key", "user", "password_file")
"""Names of the options, in the order of the fields below."""

FORM: Final = "ca=FILE, cert=FILE&key=FILE, user=NAME&password_file=FILE"
"""How they are written, for messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Files and a name; nothing secret."""

    ca: Path | None = None
    """Certificates of the authorities that are believed; None for a connection without TLS."""
    cert: Path | None = None
    """Certificate (chain) of the client; None for none."""
    key: Path | None = None
    """Its key; None for none."""
    user: str | None = None
    """Name in the store's own list of users; None for none."""
    password_file: Path | None = None
    """File with the user's password in its first line; None for none."""

    @classmethod
    def from_options(cls, options: Mapping[str, Sequence[str]]) -> Self:
        """Read them from the parsed query of a URL, other options in which are left alone; raises ValueError."""
        found = {option: options[option][-1] for option in OPTIONS if option in options}
        if empty := sorted(option for option, value in found.items() if not value):
            raise ValueError(f"option {', '.join(empty)} is empty; leave it out or give it a value")
        for one, other in (("cert", "key"), ("user", "password_file")):
            if (one in found) != (other in found):
                raise ValueError(f"options {one} and {other} go together; give both or none")
        if "cert" in found and "ca" not in found:
            raise ValueError("options cert and key are for TLS; give ca too, the authorities to believe")
        files = {option: Path(value) for option, value in found.items() if option != "user"}
        return cls(user=found.get("user"), **files)

    def password(self) -> bytes:
        """First line of the password file, read anew each time because a password may change; raises ValueError."""
        if self.password_file is None:
            raise AssertionError("there is no user, so there is no password")
        lines = read(self.password_file, "password_file").splitlines()
        if not lines or not lines[0]:
            raise ValueError(f"{self.password_file} is empty; write the password into its first line")
        try:
            lines[0].decode()
        except UnicodeDecodeError:
            # Nothing of the error is shown: it quotes the password.
            raise ValueError(f"the first line of {self.password_file} is not text in UTF-8; write it so") from None
        return lines[0]

    def check_files(self) -> None:
        """Try every file once; raises ValueError for one that can never be used."""
        if self.user is not None:
            self.password()
        if self.ca is None:
            return
        for option, path in (("ca", self.ca), ("cert", self.cert), ("key", self.key)):
            if path is not None:
                read(path, option)
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except ssl.SSLError:
            raise ValueError(f"ca={self.ca} holds no certificate in PEM form; name a file that does") from None
        if self.cert is None or self.key is None:
            return
        try:
            # The empty password keeps an encrypted key from being asked for at the terminal.
            context.load_cert_chain(self.cert, self.key, password="")
        except (ssl.SSLError, ValueError):
            raise ValueError(
                f"cert={self.cert} and key={self.key} are no certificate and its key in PEM form, unencrypted; "
                "name files that are"
            ) from None


def read(path: Path, option: str) -> bytes:
    """Content of the file that an option names; raises ValueError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{option}={path} cannot be read: {error.strerror}") from None


def shown(url: str) -> str:
    """The URL as messages may show it: without what may be a secret that somebody wrote into the wrong place."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
