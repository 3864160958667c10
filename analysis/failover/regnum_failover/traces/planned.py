"""What a driver has listed, left in a file for the source: it is not listed again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regnum_insight.spans.growth import Piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What is to be read."""

    parts: Sequence[Sequence[Piece]]
    """Pieces of each task."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Identities of files by their names, where they may be set aside under others meanwhile (``growth``)."""
    kept_at: str = ""
    """Place of tables whose ledger keeps spans; empty: none does."""
    kept: str = ""
    """Name of these spans there."""


def write_plan(planned: Planned, path: Path) -> None:
    """Leave it for ``TracesReader``."""
    told = {"parts": planned.parts, "keys": planned.keys, "kept_at": planned.kept_at, "kept": planned.kept}
    path.write_text(json.dumps(told), encoding="utf-8")


def read_plan(path: Path) -> Planned:
    """What ``write_plan`` left."""
    told = json.loads(path.read_text(encoding="utf-8"))
    parts = [[Piece(*piece) for piece in part] for part in told.pop("parts")]
    return Planned(parts=parts, **told)
