"""``zookeeper://host:port[,host:port...][/chroot][?options]``. Pure."""

import ipaddress
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from regnum_coordination.drivers.credentials import FORM as CREDENTIALS_FORM
from regnum_coordination.drivers.credentials import OPTIONS, Credentials
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.paths import check_path

DEFAULT_PORT: Final = 2181

_FORM: Final = (
    f"use zookeeper://host:port[,host:port...][/chroot][?option&option...] with the options {CREDENTIALS_FORM}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAddress:
    """Where the store is, which part of it is ours, and how we prove who we are."""

    endpoints: tuple[tuple[str, int], ...]
    """Host and port of each server."""
    chroot: str
    """What every path begins with: empty, or a path."""
    credentials: Credentials
    """Files for TLS, and the user."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL; raises ValueError."""
        parts = urlsplit(url)
        if parts.scheme != "zookeeper" or not parts.netloc or parts.fragment or "@" in parts.netloc:
            raise ValueError(f"this is not a ZooKeeper address; {_FORM}")
        chroot = parts.path.rstrip("/")
        try:
            check_path(chroot or "/")
        except InvalidRequest as error:
            raise ValueError(f"{url!r}: {error}; {_FORM}") from None
        options = parse_qs(parts.query, keep_blank_values=True)
        if unknown := sorted(options.keys() - set(OPTIONS)):
            raise ValueError(f"{url!r} has unknown options {', '.join(unknown)}; {_FORM}")
        return cls(
            endpoints=tuple(_endpoint(item, url) for item in parts.netloc.split(",")),
            chroot=chroot,
            credentials=Credentials.from_options(options),
        )

    @property
    def hosts(self) -> str:
        """The servers as kazoo takes them."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.endpoints)


def _endpoint(text: str, url: str) -> tuple[str, int]:
    host, port = text, str(DEFAULT_PORT)
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            raise ValueError(f"{url!r}: {text!r} is not [address]:port; {_FORM}")
        port = rest[1:] or port
    elif ":" in text:
        host, _, port = text.rpartition(":")
    if not host or (":" in host and not _is_address(host)) or not port.isascii() or not port.isdigit():
        raise ValueError(f"{url!r}: {text!r} is not host:port; {_FORM}")
    if not 1 <= int(port) <= 65535:
        raise ValueError(f"{url!r}: port {port} is not between 1 and 65535")
    return host, int(port)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
