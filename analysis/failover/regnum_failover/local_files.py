r"""Files of traces in a folder of this machine, by names that Spark reads.

Spark takes every path for a pattern and for a URL: a colon in a name ends the job, ``[`` and ``{`` mean something else,
and files that begin with ``_`` or ``.`` are passed over without a word. So files are named to it one by one, those with
other than plain names by a link in a folder of temporary files; where the executors of a cluster would not see that,
they are counted and left out, as is what cannot be read at all.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Final

SUFFIX: Final = ".jsonl"
NAMED_MAX: Final = 5
"""Files that a note names; it counts all."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9~=+@-][A-Za-z0-9._~=+@ -]*", re.ASCII)
_PLAIN_FOLDER: Final = re.compile(r"[A-Za-z0-9._~=+@/ -]*", re.ASCII)
_SPARKS: Final = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:/|[{\\]")
"""URLs, and patterns that only Spark has."""
_OTHER: Final = re.compile(r"[^A-Za-z0-9=-]", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFiles:
    """What Spark is told of a folder, or of a pattern."""

    paths: Sequence[str]
    """For Spark."""
    notes: Sequence[str]
    """What was left out."""


def found_at(place: str) -> Sequence[str] | None:
    """Paths that a folder has, or a pattern matches; None: it is for Spark to say. Raises OSError.

    What is in folders below a folder is not looked at.
    """
    if _SPARKS.search(place) and not os.path.exists(place):  # noqa: PTH110 - a place may be anything
        return None
    found: list[str] = []
    # What is there under just that name is no pattern.
    for path in [place] if os.path.exists(place) else sorted(glob(place)):  # noqa: PTH110, PTH207
        if os.path.isdir(path):  # noqa: PTH112
            with os.scandir(path) as entries:
                found += sorted(entry.path for entry in entries if entry.name.endswith(SUFFIX))
        else:
            found.append(path)
    return found


def readable(found: Sequence[str], links: Path | None) -> LocalFiles:
    """Files as Spark reads them. Raises OSError.

    Args:
        found: paths of files, and perhaps of something else.
        links: an empty folder for links to files with other than plain names; None: those are left out.
    """
    paths: list[str] = []
    unnamed: list[str] = []
    unreadable: list[str] = []
    for path in found:
        folder, _, name = path.rpartition("/")
        if not os.path.isfile(path) or not os.access(path, os.R_OK):  # noqa: PTH113 - False where it may not be looked at
            unreadable.append(name)
        elif _PLAIN_NAME.fullmatch(name) and _PLAIN_FOLDER.fullmatch(folder):
            paths.append(path)
        elif links is None:
            unnamed.append(name)
        else:
            link = links / f"{len(paths):06d}-{_OTHER.sub('_', name.removesuffix(SUFFIX)[:100])}{SUFFIX}"
            link.symlink_to(Path(path).absolute())
            paths.append(str(link))
    return LocalFiles(
        paths=paths,
        notes=[
            *_note(unreadable, "cannot be read, or are no files; left out"),
            *_note(unnamed, "have names that Spark cannot read on a cluster; left out: rename them"),
        ],
    )


def _note(names: Sequence[str], what: str) -> list[str]:
    some = ", ".join(map(ascii, names[:NAMED_MAX]))
    more = ", ..." if len(names) > NAMED_MAX else ""
    return [f"{len(names):,} files {what} ({some}{more})"] if names else []
