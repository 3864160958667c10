"""Certificates and keys from PEM files, read again when they change.

Algorithm: the three files are looked at (size, times and inode) at most once in ``CHECK_INTERVAL_S``, by a listener for
each connection that comes in, on gRPC's own threads, and by channels on a thread. What changed is read and tried, and
used only when certificate and key belong together: whoever replaces them replaces one after the other. Otherwise what
was there before stays in use, a line in the log says why, and each further look reads again: a right that is given
later, or descriptors that are free again, change nothing that a look shows.
"""

import re
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import grpc

from regnum_service.tls.private_files import is_exposed

if TYPE_CHECKING:
    from regnum_service.access.validity import Serial

CHECK_INTERVAL_S: Final = 1.0
"""Files are looked at no more often than that."""

BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one file: the authorities of a whole operating system have 0.2 MB."""

_Look: TypeAlias = tuple[tuple[int, int, int] | None, ...]

_CREDENTIAL: Final = re.compile(rb"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{86}")


class TlsFilesError(Exception):
    """The files cannot be used. The message says which, why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where one side of a connection has what it shows, and what it checks the other side with.

    Files are read again when they change.

    >>> from pathlib import Path
    >>> tls = TlsFiles(ca=Path("ca.pem"), certificate=Path("service.pem"), key=Path("service.key"))
    >>> tls.check()  # then, for instance: Producer(["broker-1:9092"], tls=tls)
    >>> TlsFiles(certificate=Path("service.pem")).check()
    Traceback (most recent call last):
    regnum_service.tls.files.TlsFilesError: there is a TLS certificate and no TLS key; give both, or neither
    """

    ca: Path | None = None
    """Authorities that the other side's certificate is checked with; None: it is not checked by a server, and by a
    client with the authorities that gRPC brings along."""
    certificate: Path | None = None
    """Certificate of this side, and those between it and the authority; None: this side shows none."""
    key: Path | None = None
    """Private key of the certificate."""
    token: Path | None = None
    """Of a client: file with the credential of a delegation token, which every call shows; None: calls show none."""
    credential: str | None = field(default=None, repr=False)
    """Of a client: the credential itself, a secret, for programs that do not have it in a file."""
    crl: Path | None = None
    """Of a server: revocation lists of the authorities in ``ca``; None: nothing is revoked."""

    def check(self) -> None:
        """Raise TlsFilesError unless certificate and key are both there, or neither, and there is one token at most."""
        if self.token is not None and self.credential is not None:
            raise TlsFilesError("there is a file with a delegation token, and a credential besides; give one of them")
        if (self.certificate is None) is not (self.key is None):
            given, missing = ("certificate", "key") if self.key is None else ("key", "certificate")
            raise TlsFilesError(f"there is a TLS {given} and no TLS {missing}; give both, or neither")

    @property
    def paths(self) -> tuple[Path | None, Path | None, Path | None]:
        """Those of TLS."""
        return self.ca, self.certificate, self.key


@dataclass(frozen=True, slots=True)
class Pem:
    """What the files held at one moment; None where there is no file."""

    ca: bytes | None
    certificate: bytes | None
    key: bytes | None
    token: bytes | None = None
    revoked: "frozenset[Serial]" = frozenset()
    """Certificates of the other side that are believed no more."""

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For a client. gRPC shows a token over TLS only."""
        tls = grpc.ssl_channel_credentials(self.ca, self.key, self.certificate)
        if self.token is None:
            return tls
        shown = grpc.access_token_call_credentials(self.token.decode("ascii").strip())
        return grpc.composite_channel_credentials(tls, shown)

    def server_configuration(self) -> grpc.ServerCertificateConfiguration:
        """For a server."""
        return grpc.ssl_server_certificate_configuration([(self.key or b"", self.certificate or b"")], self.ca)

    def __repr__(self) -> str:
        """Without the key, and without the token."""
        return "Pem(...)"


class WatchedFiles:
    """The last good content of the files. Any thread."""

    def __init__(
        self,
        files: TlsFiles,
        *,
        complain: Callable[[str], None] = lambda _why: None,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files. Raises TlsFilesError.

        Args:
            files: where they are.
            complain: hears why files that changed are not used; from any thread.
            monotonic_s: time.
        """
        files.check()
        self._files: Final = files
        self._complain: Final = complain
        self._now_s: Final = monotonic_s
        self._lock: Final = threading.Lock()
        self._looked = _look(files)
        self._pem = read(files)
        self._checked_s = monotonic_s()
        self._complained = ""
        self.version = 1
        """Goes up with every change that is in use."""

    @property
    def pem(self) -> Pem:
        """What is in use."""
        return self._pem

    @property
    def has_lists(self) -> bool:
        """Whether there are revocation lists among them."""
        return self._files.crl is not None

    def load_into(self, context: ssl.SSLContext) -> None:
        """Have a context show the certificate, and believe the authorities. Raises OSError for files that have gone."""
        files = self._files
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key)
        if self._pem.ca is not None:
            context.load_verify_locations(cadata=self._pem.ca.decode("ascii", "replace"))

    @property
    def is_due(self) -> bool:
        """Whether the files were not looked at for a while."""
        return self._now_s() - self._checked_s >= CHECK_INTERVAL_S

    def check(self) -> int:
        """Take up what changed, if that is due; returns the version. Reads files: never on an event loop."""
        if not self.is_due or not self._lock.acquire(blocking=False):
            return self.version
        try:
            self._checked_s = self._now_s()
            self._take_up()
        finally:
            self._lock.release()
        return self.version

    def _take_up(self) -> None:
        looked = _look(self._files)
        complaint = ""
        if looked != self._looked:
            try:
                pem = read(self._files)
            except TlsFilesError as error:
                complaint = f"{error}; what was there before stays in use"
            else:
                # Only now: what could not be read may become readable without any change that a look shows.
                self._looked = looked
                if pem != self._pem:
                    self._pem = pem
                    self.version += 1
        if complaint and complaint != self._complained:
            self._complain(complaint)
        self._complained = complaint


def read(files: TlsFiles) -> Pem:
    """The content of the files. Raises TlsFilesError for what is no use."""
    ca, certificate, key, token = (None if path is None else _read(path) for path in (*files.paths, files.token))
    pem = Pem(ca, certificate, key, token)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if files.ca is not None and pem.ca is not None:
        try:
            context.load_verify_locations(cadata=pem.ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise TlsFilesError(f"{files.ca} holds no certificates of authorities in PEM form ({error})") from error
    if files.token is not None and pem.token is not None:
        _check_token(files.token, pem.token)
    if files.credential is not None:
        pem = replace(pem, token=_as_credential(files.credential))
    if files.certificate is not None and files.key is not None:
        _check_pair(context, files.certificate, files.key)
        if (_read(files.certificate), _read(files.key)) != (pem.certificate, pem.key):
            raise TlsFilesError(f"{files.certificate} or {files.key} changed while they were read; they are read again")
    if files.crl is not None:
        # Last, for it may take tenths of a second: files that cannot be used are read at each look.
        pem = replace(pem, revoked=_revoked(files.crl, ca or b""))
    return pem


def _revoked(path: Path, authorities: bytes) -> "frozenset[Serial]":
    from regnum_service.tls.revocation import revoked_in  # noqa: PLC0415 - clients are installed without the library

    lists = _read(path)
    try:
        return revoked_in(lists, authorities)
    except ValueError as error:
        raise TlsFilesError(f"{path} cannot be used ({error}); give revocation lists in PEM form") from error


def _check_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    def no_password() -> str:
        raise TlsFilesError(f"{key} has a password, which nobody can give here; store the key without one, mode 0600")

    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsFilesError(
            f"{certificate} and {key} are not a certificate and its key in PEM form that belong together ({error})"
        ) from error


def _check_token(path: Path, token: bytes) -> None:
    """Says nothing of what is in the file: it may be another secret."""
    if is_exposed(path.stat()):
        raise TlsFilesError(
            f"others than its owner and this process' own group may read or write {path}; chmod 600, and another token"
            " if they did"
        )
    if _CREDENTIAL.fullmatch(token.strip()) is None:
        raise TlsFilesError(f"{path} holds no credential of a delegation token; regnum tokens create --file makes one")


def _as_credential(text: str) -> bytes:
    """Says nothing of the text, as above."""
    if not is_credential(text):
        raise TlsFilesError("that is no credential of a delegation token; regnum tokens create shows one")
    return text.encode("ascii")


def is_credential(text: str) -> bool:
    """Whether a text has the form of a delegation token's credential."""
    return _CREDENTIAL.fullmatch(text.encode("utf-8", "surrogateescape")) is not None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise TlsFilesError(f"cannot read {path}: {error.strerror}; give the path of a PEM file") from error
    if len(content) > BYTES_MAX:
        raise TlsFilesError(f"{path} has more than {BYTES_MAX} bytes; give the path of a PEM file")
    return content


def _look(files: TlsFiles) -> _Look:
    looked: list[tuple[int, int, int] | None] = []
    for path in (*files.paths, files.token, files.crl):
        try:
            stat = None if path is None else path.stat()
        except OSError:
            stat = None
        looked.append(None if stat is None else (stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(looked)
