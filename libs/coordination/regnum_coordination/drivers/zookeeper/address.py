"""``zookeeper://host:port[,host:port...][/chroot][?options]``. Pure."""

from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from regnum_model.nodes.processes import joined

from regnum_coordination.drivers.credentials import FORM as CREDENTIALS_FORM
from regnum_coordination.drivers.credentials import OPTIONS, Credentials, shown
from regnum_coordination.drivers.endpoints import parse_endpoint
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
        """Read a URL; raises ValueError, without the URL's user and query in its message."""
        parts = urlsplit(url)
        url = shown(url)
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
        try:
            credentials = Credentials.from_options(options)
        except ValueError as error:
            raise ValueError(f"{url!r}: {error}; {_FORM}") from None
        return cls(
            endpoints=tuple(
                parse_endpoint(item, default_port=DEFAULT_PORT, url=url, form=_FORM) for item in parts.netloc.split(",")
            ),
            chroot=chroot,
            credentials=credentials,
        )

    @property
    def hosts(self) -> str:
        """The servers as kazoo takes them."""
        return ",".join(joined(host, port) for host, port in self.endpoints)
