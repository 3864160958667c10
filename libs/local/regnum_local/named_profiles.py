"""Named profiles: clusters that the command goes to by a name, each with its addresses and what a client shows.

They are in one file of the user, beside the profile that `regnum up` leaves; that one is LOCAL. Only the command knows
names: it puts what a profile says where the SDK looks for it, into the environment of its process.

Only the standard library is imported here, so that a command that needs nothing else starts at once.
"""

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from regnum_local.files import read_json, write_json
from regnum_local.profile import ProfileError

VERSION: Final = 1
LOCAL: Final = "local"
"""Name of the cluster of the last `regnum up`, which needs no entry."""
VARIABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bootstrap": "REGNUM_BOOTSTRAP",
        "tls_ca": "REGNUM_TLS_CA",
        "tls_certificate": "REGNUM_TLS_CERTIFICATE",
        "tls_key": "REGNUM_TLS_KEY",
        "token_file": "REGNUM_TOKEN_FILE",
    }
)
"""Where the SDK looks for each part of a profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedProfile:
    """A cluster, as a client needs to know it. No secrets: paths of files that have them."""

    bootstrap: str
    """``host:port`` of brokers, with commas between."""
    tls_ca: str = ""
    """Path of the authorities of the brokers' certificates; empty, here and below: none."""
    tls_certificate: str = ""
    """Path of the client's certificate."""
    tls_key: str = ""
    """Path of the key of that."""
    token_file: str = ""
    """Path of a delegation token's credential."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedProfiles:
    """All of a user."""

    current: str = LOCAL
    """Name of the one that commands go to."""
    profiles: Mapping[str, NamedProfile] = field(default_factory=dict)
    """By name; LOCAL is never among them."""

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        profiles = {name: asdict(one) for name, one in sorted(self.profiles.items())}
        return {"version": VERSION, "current": self.current, "profiles": profiles}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From the file; raises KeyError, TypeError, ValueError or AttributeError."""
        if value["version"] != VERSION:
            raise ValueError(f"version {value['version']} is not {VERSION}")
        profiles = {
            str(name): NamedProfile(**{key: str(one[key]) for key in VARIABLES})
            for name, one in value["profiles"].items()
        }
        return cls(current=str(value["current"]), profiles=profiles)

    def with_profile(self, name: str, profile: NamedProfile) -> Self:
        """The same with one more, or another one of that name."""
        return replace(self, profiles={**self.profiles, name: profile})

    def without(self, name: str) -> Self:
        """The same without one; commands go to LOCAL where it was the current one."""
        left = {other: one for other, one in self.profiles.items() if other != name}
        return replace(self, profiles=left, current=LOCAL if self.current == name else self.current)


def profiles_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where they are: ``regnum/profiles.json`` in the user's configuration folder."""
    folder = environment.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "regnum" / "profiles.json"


def read_profiles(environment: Mapping[str, str] = os.environ) -> NamedProfiles:
    """All of them; without a file there are none. Raises ProfileError."""
    path = profiles_path(environment)
    try:
        value = read_json(path)
        return NamedProfiles() if value is None else NamedProfiles.from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise ProfileError(
            f"cannot read the profiles {path}: {error.strerror if isinstance(error, OSError) else repr(error)}; "
            "repair the file, or remove it"
        ) from error


def write_profiles(profiles: NamedProfiles, environment: Mapping[str, str] = os.environ) -> None:
    """Keep them. Raises OSError."""
    path = profiles_path(environment)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, profiles.to_json())


def put_into(environment: MutableMapping[str, str], profile: NamedProfile) -> None:
    """What a profile says, where the SDK looks for it. Options of the command line that are there already win."""
    environment[VARIABLES["bootstrap"]] = profile.bootstrap
    for part, variable in VARIABLES.items():
        value = getattr(profile, part)
        if value and not environment.get(variable):
            environment[variable] = value
