"""``etcd://host:port[,host:port...][/prefix][?max_txn_ops=N][&server_name=NAME]`` and credentials. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from regnum_model.nodes.processes import is_address, joined

from regnum_coordination.drivers.credentials import FORM, OPTIONS, Credentials, shown
from regnum_coordination.drivers.endpoints import parse_endpoint
from regnum_coordination.errors import InvalidRequest
from regnum_coordination.paths import check_path

DEFAULT_PORT: Final = 2379
DEFAULT_MAX_TXN_OPS: Final = 128
"""What an etcd server allows unless started with ``--max-txn-ops``."""

_FORM: Final = (
    "use etcd://host:port[,host:port...][/prefix][?option&option...] with the options max_txn_ops=N, server_name=NAME, "
    f"{FORM}"
)


def one_family(members: Sequence[tuple[Sequence[str], int]]) -> tuple[tuple[str, int], ...]:
    """An address of each member, all of one family, since gRPC's list of addresses takes no others.

    That is IPv4 where any member has such an address. Members that have none of the family are left out.

    Args:
        members: addresses and port of each.
    """
    ipv4 = any(":" not in host for hosts, _ in members for host in hosts)
    fitting = (([host for host in hosts if (":" not in host) is ipv4], port) for hosts, port in members)
    return tuple((hosts[0], port) for hosts, port in fitting if hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdAddress:
    """Where the store is, and which part of it is ours."""

    endpoints: tuple[tuple[str, int], ...]
    """Host and port of each member."""
    prefix: str
    """What every key begins with: empty, or a path."""
    max_txn_ops: int
    """The servers' ``--max-txn-ops``."""
    server_name: str
    """Name or address that the servers' certificates must carry: gRPC checks one for all members of a list."""
    credentials: Credentials
    """TLS and user."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL; raises ValueError, without the URL's user and query in its message."""
        parts = urlsplit(url)
        url = shown(url)
        if "@" in parts.netloc:
            raise ValueError(f"{url!r}: user and password do not belong into the host part; {_FORM}")
        if parts.scheme != "etcd" or not parts.netloc or parts.fragment:
            raise ValueError(f"{url!r} is not an etcd address; {_FORM}")
        prefix = parts.path.rstrip("/")
        try:
            check_path(prefix or "/")
        except InvalidRequest as error:
            raise ValueError(f"{url!r}: {error}; {_FORM}") from None
        options = parse_qs(parts.query, keep_blank_values=True)
        if unknown := sorted(options.keys() - {"max_txn_ops", "server_name", *OPTIONS}):
            raise ValueError(f"{url!r} has unknown options {', '.join(unknown)}; {_FORM}")
        text = options.get("max_txn_ops", [str(DEFAULT_MAX_TXN_OPS)])[-1]
        if not text.isascii() or not text.isdigit() or not 16 <= int(text) <= 100_000:
            raise ValueError(f"{url!r}: max_txn_ops is a number from 16 to 100000, as the servers were started with")
        endpoints = tuple(
            parse_endpoint(item, default_port=DEFAULT_PORT, url=url, form=_FORM) for item in parts.netloc.split(",")
        )
        try:
            credentials = Credentials.from_options(options)
        except ValueError as error:
            raise ValueError(f"{url!r}: {error}; {_FORM}") from None
        return cls(
            endpoints=endpoints,
            prefix=prefix,
            max_txn_ops=int(text),
            server_name=options.get("server_name", [endpoints[0][0]])[-1],
            credentials=credentials,
        )

    @property
    def target(self) -> str:
        """The gRPC target: a name for one endpoint, a list of addresses for several."""
        listed = self.targets
        if len(listed) == 1:
            return listed[0]
        return ("ipv6:" if ":" in self.endpoints[0][0] else "ipv4:") + ",".join(listed)

    @property
    def targets(self) -> tuple[str, ...]:
        """A gRPC target for each endpoint."""
        return tuple(joined(host, port) for host, port in self.endpoints)

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Host names that must be replaced by addresses, because a list can hold only addresses."""
        return () if len(self.endpoints) == 1 else tuple(host for host, _ in self.endpoints if not is_address(host))
