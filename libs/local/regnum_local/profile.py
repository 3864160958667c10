"""The profile: where the cluster of `regnum up` can be reached. Written by up, read by every other command.

There is one for the user, which commands read unless REGNUM_PROFILE names another: that of the cluster that was
started first and runs. And there is one in the folder of each cluster, for who runs several.

Only the standard library is imported here, so that a command that needs nothing else starts at once.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from regnum_local.files import read_json, write_json
from regnum_local.identity import ProcessIdentity

VERSION: Final = 1
TLS_FILES: Final = ("ca", "certificate", "key")


class ProfileError(Exception):
    """The profile file cannot be read. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileTls:
    """What a client of a cluster with TLS needs: paths of PEM files."""

    ca: Path
    """Authority of the brokers' certificates."""
    certificate: Path
    """Of a client."""
    key: Path
    """Its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A running cluster, as other commands need to know it."""

    bootstrap: tuple[str, ...]
    """``host:port`` of the client listener of every broker."""
    elections: tuple[str, ...]
    """``host:port`` of the client listener of every election process."""
    coordination: str
    """URL of the coordination store."""
    data_dir: Path
    """Folder of data, logs and records of the cluster."""
    launcher: ProcessIdentity
    """The `regnum up` that runs it."""
    tls: ProfileTls | None = None
    """None: it speaks plaintext."""

    def is_current(self) -> bool:
        """Whether that `regnum up` still runs."""
        return self.launcher.alive()

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {
            "version": VERSION,
            "bootstrap": list(self.bootstrap),
            "elections": list(self.elections),
            "coordination": self.coordination,
            "data_dir": str(self.data_dir),
            "launcher": self.launcher.to_json(),
            **({} if self.tls is None else {"tls": {key: str(getattr(self.tls, key)) for key in TLS_FILES}}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From the file; raises KeyError, TypeError or ValueError."""
        if value["version"] != VERSION:
            raise ValueError(f"version {value['version']} is not {VERSION}")
        return cls(
            bootstrap=tuple(map(str, value["bootstrap"])),
            elections=tuple(map(str, value["elections"])),
            coordination=str(value["coordination"]),
            data_dir=Path(value["data_dir"]),
            launcher=ProcessIdentity.from_json(value["launcher"]),
            tls=None if (tls := value.get("tls")) is None else ProfileTls(**{key: Path(tls[key]) for key in TLS_FILES}),
        )


def profile_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the profile is: REGNUM_PROFILE, else ``regnum/profile.json`` in the user's configuration folder."""
    chosen = environment.get("REGNUM_PROFILE")
    if chosen:
        return Path(chosen)
    folder = environment.get("XDG_CONFIG_HOME")
    return (Path(folder) if folder else Path.home() / ".config") / "regnum" / "profile.json"


def read_profile(path: Path | None = None) -> Profile | None:
    """The profile; None when no cluster left one. Raises ProfileError."""
    path = profile_path() if path is None else path
    try:
        value = read_json(path)
        return None if value is None else Profile.from_json(value)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ProfileError(
            f"cannot read the profile {path}: {error.strerror if isinstance(error, OSError) else repr(error)}; "
            "remove the file, or give --bootstrap"
        ) from error


def write_profile(profile: Profile, path: Path | None = None) -> None:
    """Leave a profile for the other commands."""
    write_json(profile_path() if path is None else path, profile.to_json())


def own_profile_path(data_dir: Path) -> Path:
    """The profile in the folder of a cluster, whoever has the user's."""
    return data_dir / "profile.json"


def leave_profile(profile: Profile) -> Profile | None:
    """Leave it for all commands, unless that is the place of another cluster that runs.

    Returns the profile of the other one, which stays: what commands go to never changes under somebody's hands. Raises
    OSError.
    """
    path = profile_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.parent):
        try:
            other = read_profile(path)
        except ProfileError:
            other = None
        if other is not None and other.data_dir != profile.data_dir and other.is_current():
            return other
        write_profile(profile, path)
        return None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """No other process looks whose profile is in a folder and changes it. A lock of the folder: it leaves no file."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_profiles(data_dir: Path) -> None:
    """Remove those of this cluster."""
    remove_profile(data_dir, own_profile_path(data_dir))
    remove_profile(data_dir)


def remove_profile(data_dir: Path, path: Path | None = None) -> bool:
    """Remove the profile if it is the one of this cluster; another cluster's stays."""
    path = profile_path() if path is None else path
    if not path.exists():
        return False
    with _locked(path.parent):
        try:
            profile = read_profile(path)
        except ProfileError:
            return False
        if profile is None or profile.data_dir != data_dir:
            return False
        path.unlink(missing_ok=True)
        return True
