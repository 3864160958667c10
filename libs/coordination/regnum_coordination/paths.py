"""Rules for store paths, the same on every driver."""

from collections.abc import Iterator
from typing import Final

from regnum_coordination.errors import InvalidRequest

ROOT: Final = "/"

RESERVED: Final = frozenset({".sessions", ".sequences"})
"""First path parts that drivers keep for themselves; hidden from ``children`` of the root (safety rule S6)."""


def check_path(path: str) -> None:
    """Raise InvalidRequest unless ``path`` is the root or absolute, without empty parts, dots, NUL or end slash."""
    if path == ROOT or _is_ordinary(path):
        return
    parts = path.split("/")
    if len(parts) < 2 or parts[0] != "":
        raise InvalidRequest(f"path {path!r} is not absolute; write it with a leading slash")
    if any(part in {"", ".", ".."} for part in parts[1:]):
        raise InvalidRequest(f'path {path!r} has an empty part, "." or ".."; remove it')
    if "\0" in path:
        raise InvalidRequest(f"path {path!r} contains NUL; remove it")
    if parts[1] in RESERVED:
        raise InvalidRequest(f"path {path!r} is kept by the drivers for themselves; use another first part")
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidRequest(f"path {path!r} is not encodable as UTF-8; remove the lone surrogates") from None


def _is_ordinary(path: str) -> bool:
    """Whether a quick look shows that nothing can be wrong: batches have tens of thousands of paths."""
    return (
        path.startswith("/")
        and path.isascii()
        and "//" not in path
        and "/." not in path
        and "\0" not in path
        and not path.endswith("/")
    )


def check_written_path(path: str) -> None:
    """As ``check_path``, and the root is refused: it always exists and holds nothing."""
    check_path(path)
    if path == ROOT:
        raise InvalidRequest("the root can be neither written nor deleted; name a node below it")


def parent(path: str) -> str:
    """The folder of a path that is not the root."""
    return path.rpartition("/")[0] or ROOT


def ancestors(path: str) -> Iterator[str]:
    """The folders above a path but for the root, the nearest first."""
    while path != ROOT and (path := parent(path)) != ROOT:
        yield path


def name(path: str) -> str:
    """The last part of a path that is not the root."""
    return path.rpartition("/")[2]


def folder_prefix(path: str) -> str:
    """What the paths of a folder's children begin with."""
    return ROOT if path == ROOT else path + "/"
