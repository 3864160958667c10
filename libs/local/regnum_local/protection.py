"""How a cluster of this machine is protected: it comes back as it was, or better, and never with less."""

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.ports import is_free

from regnum_local.files import read_json, write_json
from regnum_local.local_tls import CERTIFICATES

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What a start is asked for, or what a folder had when its cluster ran last."""

    tls: bool = False
    """Whether every listener speaks TLS."""
    acl: bool = False
    """Whether rights are checked, which takes TLS."""

    def __or__(self, other: "Protection") -> "Protection":
        """All that either has."""
        acl = self.acl or other.acl
        return Protection(tls=self.tls or other.tls or acl, acl=acl)

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {"version": VERSION, "tls": self.tls, "acl": self.acl}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """From the file; raises KeyError, TypeError or ValueError."""
        if value["version"] != VERSION or not isinstance(value["tls"], bool) or not isinstance(value["acl"], bool):
            raise ValueError("it says something else than whether there are TLS and rights")
        return cls(tls=value["tls"], acl=value["acl"])


UNPROTECTED: Final = Protection()
"""Plaintext, and all may everything."""


def protected_as_before(asked: Protection, folder: Path) -> Protection:
    """What a start in a folder gives: what is asked for, and what the cluster in it had.

    Raises StartRefusedError where the folder does not say what that was.
    """
    path = protection_path(folder)
    try:
        value = read_json(path)
        known = None if value is None else Protection.from_json(value)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise StartRefusedError(
            f"cannot read {path}, which says how the cluster is protected: {error!r}; repair it, or remove it and give "
            "--tls or --acl",
            exit_status=ExitStatus.FAILED,
        ) from error
    if known is None and asked == UNPROTECTED and (folder / CERTIFICATES).exists():
        raise StartRefusedError(
            f"the cluster in {folder} was protected ({CERTIFICATES}/ is there), and the folder does not say whether "
            "rights were checked: give --acl if they were, and --tls if not",
            exit_status=ExitStatus.CONFLICT,
        )
    return asked | (known or UNPROTECTED)


def addresses_of(host: str) -> list[str]:
    """What a name or address stands for. Raises OSError."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def check_bind(
    host: str,
    protection: Protection,
    *,
    addresses_of: Callable[[str], list[str]] = addresses_of,
    is_here: Callable[[str], bool] = lambda address: is_free(0, address),
) -> None:
    """Whether the listeners for clients may be at a host. Raises StartRefusedError.

    Brokers tell their address to every client, so that it has to be one: the wildcard is none.
    """
    try:
        addresses = addresses_of(host)
    except (OSError, UnicodeError) as error:
        raise _refused(f"nothing is known by the name {host}: {error}; name an address of this machine") from None
    parsed = [ipaddress.ip_address(address.partition("%")[0]) for address in addresses]
    if any(address.is_unspecified for address in parsed):
        raise _refused(f"clients are told where brokers are, and {host} is no place; name an address of this machine")
    if missing := [address for address in addresses if not is_here(address)]:
        raise _refused(f"no interface of this machine has {', '.join(missing)}; name an address that one has")
    if not protection.tls and not all(address.is_loopback for address in parsed):
        raise _refused(
            f"{host} is reached from other machines, and each of them could read, write and delete everything: give "
            "--acl (TLS, and rights for each client) or --tls (TLS, and all rights for every client with a certificate)"
        )


def _refused(message: str) -> StartRefusedError:
    return StartRefusedError(message, exit_status=ExitStatus.WRONG_USE)


def keep(protection: Protection, folder: Path) -> None:
    """Have the next start know it. With the folder's lock held."""
    write_json(protection_path(folder), protection.to_json())


def protection_path(folder: Path) -> Path:
    """Where the folder of a cluster says it."""
    return folder / "protection.json"
