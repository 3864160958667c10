"""How a cluster of this machine is protected: it comes back as it was, or better, and never with less."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from regnum_service.errors import ExitStatus, StartRefusedError

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


def keep(protection: Protection, folder: Path) -> None:
    """Have the next start know it. With the folder's lock held."""
    write_json(protection_path(folder), protection.to_json())


def protection_path(folder: Path) -> Path:
    """Where the folder of a cluster says it."""
    return folder / "protection.json"
