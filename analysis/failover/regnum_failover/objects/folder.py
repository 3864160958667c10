"""The port over a folder: keys are paths below it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from regnum_failover.objects.selection import Found
from regnum_failover.objects.store import ObjectGoneError, StoreError

PIECE_BYTES: Final = 2**20
_UNFINISHED: Final = ".unfinished"


class FolderStore:
    """A folder. A file is there whole or not at all, also after a power failure."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def objects(self, prefix: str) -> Iterator[Found]:
        """Every file below a prefix, which ends with a name."""
        for path in sorted((self._root / prefix).rglob("*")):
            if path.is_file() and not path.name.endswith(_UNFINISHED):
                stat = path.stat()
                key = path.relative_to(self._root).as_posix()
                yield Found(modified_s=stat.st_mtime, key=key, size=stat.st_size)

    def folders(self, prefix: str) -> list[str]:
        """Names of folders right below a prefix."""
        folder = self._root / prefix
        return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def read(self, key: str, begin: int = 0) -> Iterator[bytes]:
        """A file in pieces."""
        try:
            with (self._root / key).open("rb") as file:
                file.seek(begin)
                while piece := file.read(PIECE_BYTES):
                    yield piece
        except FileNotFoundError:
            raise ObjectGoneError(f"cannot read {self._root / key}: it is not there") from None
        except OSError as error:
            raise StoreError(f"cannot read {self._root / key}: {error.strerror}") from None

    def write(self, key: str, content: Path | bytes) -> None:
        """A file, in the place of what is there."""
        path = self._root / key
        unfinished = path.with_name(f".{path.name}.{os.getpid()}{_UNFINISHED}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                file.write(content if isinstance(content, bytes) else content.read_bytes())
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
            _sync(path.parent)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from None

    def remove(self, key: str) -> None:
        """Take a file away, if it is there."""
        (self._root / key).unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
