"""Which processes of a cluster run, kept on disk so that whoever comes after a killed launcher can find them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from regnum_local.files import read_json, write_json
from regnum_local.identity import ProcessIdentity

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRecord:
    """Processes of one run of a cluster."""

    launcher: ProcessIdentity
    """The process that started the others."""
    processes: Mapping[str, ProcessIdentity] = field(default_factory=dict)
    """Every started process by its name in the cluster."""

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        processes = {name: identity.to_json() for name, identity in self.processes.items()}
        return {"version": VERSION, "launcher": self.launcher.to_json(), "processes": processes}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From the file; raises KeyError, TypeError, ValueError or AttributeError."""
        if value["version"] != VERSION:
            raise ValueError(f"version {value['version']} is not {VERSION}")
        processes = {str(name): ProcessIdentity.from_json(item) for name, item in value["processes"].items()}
        return cls(launcher=ProcessIdentity.from_json(value["launcher"]), processes=processes)


def record_path(data_dir: Path) -> Path:
    """Where the record of a cluster is."""
    return data_dir / "processes.json"


def read_record(data_dir: Path) -> RuntimeRecord | None:
    """The record; None when there is none or it is unreadable: then nothing in it could be trusted either."""
    try:
        value = read_json(record_path(data_dir))
        return None if value is None else RuntimeRecord.from_json(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def write_record(data_dir: Path, record: RuntimeRecord) -> None:
    """Replace the record."""
    write_json(record_path(data_dir), record.to_json())


def remove_record(data_dir: Path) -> None:
    """Nothing runs any more."""
    record_path(data_dir).unlink(missing_ok=True)
