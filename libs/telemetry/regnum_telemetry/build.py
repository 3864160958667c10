"""Which build of Regnum this process is of: the one place that knows.

The version is that of the installed distribution (pyproject.toml has it); the commit stands beside it in wheels that
were made from a checkout or with ``REGNUM_COMMIT`` (hatch_build.py). A checkout that is installed in place has no
commit: it is whatever stands there.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Final

DISTRIBUTION: Final = "regnum"
UNKNOWN: Final = "unknown"

_FILE: Final = "extra_metadata/build.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A build; ``str`` is what ``--version`` says."""

    version: str
    """As in pyproject.toml; ``unknown`` for source that was put on the path and never installed."""
    commit: str
    """Twelve digits, with ``-dirty`` behind them when it was not quite that commit; ``unknown`` where nobody said."""

    def __str__(self) -> str:
        return f"{DISTRIBUTION} {self.version} (commit {self.commit})"


@cache
def this_build() -> Build:
    """Of the running code. Reads two small files at its first call."""
    try:
        return build_of(distribution(DISTRIBUTION))
    except PackageNotFoundError:
        return Build(version=UNKNOWN, commit=UNKNOWN)


def build_of(installed: Distribution) -> Build:
    """Of what is installed there."""
    try:
        told = json.loads(installed.read_text(_FILE) or "{}")
    except ValueError:
        told = {}
    commit = told.get("commit") if isinstance(told, dict) else None
    return Build(version=installed.version, commit=commit if isinstance(commit, str) else UNKNOWN)
