"""Certificates for a cluster that is tried out: two authorities, a certificate for each process and for each client.

Not for production: the keys of the authorities lie beside what they signed. One authority signs processes and the other
one clients, so that no client gets in where processes talk to one another.
"""

import datetime as dt
import ipaddress
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from regnum_service.errors import ExitStatus, StartRefusedError

from regnum_local.plan import CLIENT_CA, CLUSTER_CA, PROCESSES, STORE_ADMIN, STORE_PEER_CA, TOKEN_SECRET, store_peer

HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""Where the processes of one machine are reached."""
ADMIN: Final = "admin"
"""The client that a development cluster begins with."""
GUEST: Final = "guest"
"""Another one: where rights are checked it has those that it is given."""
AUTHORITY_DAYS: Final = 3_650
"""Days for which an authority is valid."""
DAYS: Final = 365
"""Days for which what it signs is valid."""
DAYS_LEFT: Final = dt.timedelta(days=30)
"""One that is valid for less is made anew."""
CLOCK_SKEW: Final = dt.timedelta(minutes=5)
"""Certificates are valid from so long ago, for machines whose clocks are behind."""
NAME_LENGTH_MAX: Final = 64
"""Characters of a common name (X.520)."""


@dataclass(frozen=True, slots=True)
class _Authority:
    """Somebody who signs."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def client_files(folder: Path, name: str = ADMIN) -> tuple[Path, Path]:
    """Certificate and key of a client."""
    return folder / f"client-{name}.pem", folder / f"client-{name}.key"


def make(
    folder: Path,
    processes: Iterable[str],
    *,
    hosts: Sequence[str] = HOSTS,
    clients: Sequence[str] = (ADMIN,),
    days: int = DAYS,
) -> list[Path]:
    """Make two authorities and what they sign, in a folder that has none yet; returns the files.

    Raises StartRefusedError, with nothing written, for names that cannot be and a folder that has some.
    """
    names = [*processes]
    _check(names, clients)
    files = [folder / f"{name}.pem" for name in (*names, *(f"client-{client}" for client in clients))]
    files += [folder / CLUSTER_CA, folder / CLIENT_CA]
    there = sorted(path.name for path in files if path.exists() or path.with_suffix(".key").exists())
    if there:
        raise StartRefusedError(
            f"{folder} has {', '.join(there[:5])} already, and other files may rely on them; name another folder with"
            " --dir, or remove them first",
            exit_status=ExitStatus.CONFLICT,
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    cluster, client = _authority("Regnum cluster CA"), _authority("Regnum client CA")
    made = _write(folder / CLUSTER_CA, cluster) + _write(folder / CLIENT_CA, client)
    for name in names:
        made += _write(folder / f"{name}.pem", _signed(name, "Processes", cluster, hosts=(name, *hosts), days=days))
    for name in clients:
        made += _write(client_files(folder, name)[0], _signed(name, "Clients", client, hosts=(), days=days))
    return made


def add_missing(
    folder: Path,
    processes: Iterable[str],
    *,
    hosts: Sequence[str] = HOSTS,
    clients: Sequence[str] = (ADMIN,),
    days: int = DAYS,
) -> list[Path]:
    """What ``make`` makes, in a folder that may have a part of it. Returns the new files.

    What is there stays as it is, but for certificates that are not valid for DAYS_LEFT, and those of processes that do
    not name all hosts.

    Raises StartRefusedError for an authority that has expired, or without its key.
    """
    names = [*processes]
    if not (folder / CLUSTER_CA).exists():
        return make(folder, names, hosts=hosts, clients=clients, days=days)
    _check_authorities(folder)
    made: list[Path] = []
    for name in names:
        if not _is_good(folder / f"{name}.pem", hosts):
            made += renew(folder, name, hosts=hosts, days=days)
    for name in clients:
        certificate, _ = client_files(folder, name)
        if not _is_good(certificate):
            made += _write(certificate, _signed(name, "Clients", _read(folder / CLIENT_CA), hosts=(), days=days))
    return made


def add_store(folder: Path, store: str, *, days: float = DAYS) -> list[Path]:
    """What an embedded store and those who look into it show, in a folder that ``make`` was done in; the new files.

    What is there and valid for DAYS_LEFT stays as it is.

    The store itself and the certificate of commands are signed by the authority of processes, whose certificates the
    store asks for; their unit is not that of processes, so that no listener of a process takes them for one. Members
    believe one another by an authority of their own.

    Raises StartRefusedError for an authority that has expired, or without its key.
    """
    _check_authorities(folder)
    made: list[Path] = []
    for name in (store, STORE_ADMIN):
        if not _is_good(folder / f"{name}.pem"):
            signed = _signed(name, "Stores", _read(folder / CLUSTER_CA), hosts=(name, *HOSTS), days=days)
            made += _write(folder / f"{name}.pem", signed)
    peer = store_peer(store)
    if not _is_good(folder / f"{peer}.pem"):
        if not (folder / STORE_PEER_CA).exists():
            made += _write(folder / STORE_PEER_CA, _authority("Regnum store peer CA"))
        signed = _signed(peer, "Stores", _read(folder / STORE_PEER_CA), hosts=(peer, *HOSTS), days=days)
        made += _write(folder / f"{peer}.pem", signed)
    return made


def add_token_secret(folder: Path) -> None:
    """What proves delegation tokens in this cluster, in a file that its owner alone may read, unless it is there."""
    if not (folder / TOKEN_SECRET).exists():
        _replace(folder / TOKEN_SECRET, secrets.token_urlsafe(48).encode(), mode=0o600)


def renew(folder: Path, name: str, *, hosts: Sequence[str] = HOSTS, days: float = DAYS) -> list[Path]:
    """Another certificate and key for a process, in place of the ones it has; returns the files."""
    signed = _signed(name, "Processes", _read(folder / CLUSTER_CA), hosts=(name, *hosts), days=days)
    return _write(folder / f"{name}.pem", signed)


def _check(processes: Sequence[str], clients: Sequence[str]) -> None:
    for name in (*processes, *clients):
        if not name or len(name) > NAME_LENGTH_MAX or not all(letter.isalnum() or letter in "-_.@" for letter in name):
            raise StartRefusedError(
                f"{name!r} cannot be the name of a process or client; give 1 to {NAME_LENGTH_MAX} letters, digits and"
                " characters of -_.@",
                exit_status=ExitStatus.WRONG_USE,
            )
    if PROCESSES in clients:
        raise StartRefusedError(
            f"{PROCESSES} is the principal of the cluster's own processes; give the client another name",
            exit_status=ExitStatus.WRONG_USE,
        )


def _authority(name: str) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Regnum"), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=AUTHORITY_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Authority(certificate, key)


def _signed(name: str, unit: str, authority: _Authority, *, hosts: Sequence[str], days: float) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Regnum"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    now = dt.datetime.now(dt.UTC)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
    return _Authority(builder.sign(authority.key, hashes.SHA256()), key)


def _is_good(file: Path, hosts: Sequence[str] = ()) -> bool:
    """Whether there is a certificate, for all these hosts, that is valid for DAYS_LEFT."""
    if not file.exists():
        return False
    shown = _load(file)
    if shown.not_valid_after_utc - dt.datetime.now(dt.UTC) < DAYS_LEFT:
        return False
    if not hosts:
        return True
    named = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return all(_host(host) in named for host in hosts)


def _check_authorities(folder: Path) -> None:
    """Raise StartRefusedError for one that has expired.

    It is not replaced: clients of other machines have copies of it, and would be refused without a word.
    """
    for path in (folder / CLUSTER_CA, folder / CLIENT_CA, folder / STORE_PEER_CA):
        if path.exists() and (end := _load(path).not_valid_after_utc) <= dt.datetime.now(dt.UTC):
            raise StartRefusedError(
                f"the authority {path} expired on {end:%Y-%m-%d}, and with it all that it signed; move the .pem and"
                f" .key files of {folder} to another folder and start again, which makes all anew; clients need the new"
                " ones",
                exit_status=ExitStatus.FAILED,
            )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _read(path: Path) -> _Authority:
    try:
        certificate = _load(path)
        key = serialization.load_pem_private_key(path.with_suffix(".key").read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise StartRefusedError(
            f"cannot sign with {path} and its .key ({error}); make new certificates in another folder",
            exit_status=ExitStatus.FAILED,
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StartRefusedError(f"the key of {path} was not made here; make new certificates in another folder")
    return _Authority(certificate, key)


def _write(path: Path, made: _Authority) -> list[Path]:
    """The certificate at that path and the key beside it, each whole or not at all."""
    key = made.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _replace(path.with_suffix(".key"), key, mode=0o600)
    _replace(path, made.certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return [path, path.with_suffix(".key")]


def _replace(path: Path, content: bytes, *, mode: int) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    # Never readable by others, not even before its mode is set.
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    beside.replace(path)
