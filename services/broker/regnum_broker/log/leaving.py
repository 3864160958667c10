"""Folders of deleted replicas, and files of deleted records, on their way out.

Goals: thousands of them hold up no append; a replica that is created again never meets what was deleted.

Algorithm: the journal says *deleted* first, so whatever a crash leaves is removed at the next start. Then, on the
writer thread, each folder is renamed: one short system call, after which its name is free. Its files are removed on a
thread of its own, since that takes the file system longer than anything that is appended. A replica that is created
again before its folder had its turn waits for the renaming, and for that to be on the disk: after a loss of power the
old folder must not stand in for the new one. Files of segments that a log has left behind go the same way.

A file in such a folder that is not ours stays, and the folder with it, under its new name; the next start tries again.
"""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.disk.names import DELETED_SUFFIX, LOG_SUFFIX, NAME_FILE, file_name
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.folders import folder_of, is_own

FILES_OF_MOST: Final = (NAME_FILE, f"{file_name(0)}{LOG_SUFFIX}")
"""What is in the folder of a replica that has its first segment only, and was made since the last clean stop."""


class Leaving:
    """Belongs to the writer thread, but for ``remove``, which is for one other at a time, and ``stop``, for any."""

    def __init__(self, path: Path, disk: GuardedDisk, *, number: int = 0) -> None:
        """``number``: the highest in a name that an earlier run has left."""
        self._path: Final = path
        self._disk: Final = disk
        self._named: Final[dict[PartitionKey, None]] = {}
        """Those that have their names still."""
        self._renamed: Final[set[PartitionKey]] = set()
        """Those whose new names may not be on the disk yet."""
        self._doomed: Final[deque[str]] = deque()
        """Folders to remove."""
        self._files: Final[deque[str]] = deque()
        """Files to remove."""
        self._number = number
        self._stopped = False

    def add(self, keys: Iterable[PartitionKey]) -> None:
        """Replicas that the journal calls deleted, and that nobody writes to any more."""
        self._named.update(dict.fromkeys(keys))

    def rename(self, count_max: int) -> bool:
        """Rename so many folders; returns whether others are left.

        Raises:
            ResourceExhaustedError: no room for a name; the next start removes the folder.
            DirectoryFailedError: the disk failed.
        """
        self._rename([key for key, _ in zip(self._named, range(count_max), strict=False)])
        return bool(self._named)

    def make_way(self, keys: Collection[PartitionKey]) -> None:
        """Free the names of replicas that are to be created.

        Raises:
            ResourceExhaustedError: no room for a name.
            DirectoryFailedError: the disk failed.
        """
        self._rename([key for key in keys if key in self._named])
        if not self._renamed.isdisjoint(keys):
            self._disk.sync_directory(f"{self._path}/replicas")
            self._renamed.clear()

    def set_aside(self, path: str) -> None:
        """Free the name of a file whose records are deleted; one that is not there is fine.

        Raises:
            DirectoryFailedError: the disk failed.
        """
        self._number += 1
        target = f"{path}.{self._number}{DELETED_SUFFIX}"
        try:
            if self._disk.rename(path, target):
                self._files.append(target)
        except ResourceExhaustedError:
            # No room for another name in that folder. It may be slow, but it takes none.
            self._disk.delete(path)
        finally:
            self._disk.forget(path)

    def left(self, names: Iterable[str], set_aside: Iterable[str]) -> None:
        """Files that a kill has left: those that have their names still, and others."""
        for path in names:
            self.set_aside(path)
        self._files.extend(set_aside)

    @property
    def files_left(self) -> bool:
        """Whether there are files to remove."""
        return bool(self._files)

    def remove(self) -> Sequence[str]:
        """Remove what was renamed, until nothing is left or ``stop`` was called; returns folders that are not empty.

        Raises:
            DirectoryFailedError: the disk failed.
        """
        kept: list[str] = []
        while self._files and not self._stopped:
            self._disk.delete(self._files.popleft())
        while self._doomed and not self._stopped:
            folder = self._doomed.popleft()
            if not self._disk.remove_folder(folder, is_own=is_own, expected=FILES_OF_MOST):
                kept.append(folder)
        return kept

    def stop(self) -> None:
        """Remove no further folder: the next start does."""
        self._stopped = True

    def _rename(self, keys: Collection[PartitionKey]) -> None:
        folders = {key: folder_of(self._path, key) for key in keys}
        try:
            for key, folder in folders.items():
                self._number += 1
                target = f"{folder}.{self._number}{DELETED_SUFFIX}"
                if self._disk.rename(folder, target):
                    self._renamed.add(key)
                    self._doomed.append(target)
                del self._named[key]
        finally:
            # Afterwards: a reader that comes between would bring a file back under the name that it had. Also where a
            # later one was refused: a replica that is created again must not write into what is about to be removed.
            self._disk.forget_folders(folders.values())
