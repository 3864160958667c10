"""Open files that threads share: closed by their last user, least recently used first."""

import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from regnum_broker.log.disk.system_calls import Disk


class _OpenFile:
    """A descriptor and how many use it."""

    __slots__ = ("descriptor", "dropped", "pins", "seen")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pins = 0
        self.dropped = False
        self.seen = False
        """Whether anybody has used it before."""


class Descriptors:
    """Open files by path, at most so many, least recently used closed first. For any thread.

    A file in use is closed by its last user, so a descriptor number never comes to mean another file under a reader.
    """

    def __init__(self, capacity: int, disk: Disk | None = None) -> None:
        self._capacity = capacity
        self._disk = disk or Disk()
        self._files: OrderedDict[str, _OpenFile] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def pinned(self, path: str, *, create: bool = False) -> Iterator[int]:
        """The descriptor of an open file, which stays open meanwhile."""
        file = self.pin(path, create=create)
        try:
            yield file.descriptor
        finally:
            self.unpin(file)

    def pin(self, path: str, *, create: bool = False) -> _OpenFile:
        """An open file, to be given back by ``unpin``."""
        with self._lock:
            file = self._files.get(path)
            if file is None:
                flags = os.O_RDWR | (os.O_CREAT if create else 0)
                file = self._files[path] = _OpenFile(self._disk.open(path, flags))
                file.pins = 1
                self._evict()
            else:
                file.pins += 1
                file.seen = True
                self._files.move_to_end(path)
            return file

    def unpin(self, file: _OpenFile) -> None:
        """Give it back."""
        with self._lock:
            file.pins -= 1
            if file.dropped and file.pins == 0:
                self._disk.close(file.descriptor)

    def drop(self, path: str) -> None:
        """Close the file once nobody uses it; it was or will be deleted."""
        with self._lock:
            if (file := self._files.pop(path, None)) is not None:
                self._close(file)

    def drop_folders(self, folders: Collection[str]) -> None:
        """The same for all files in some folders."""
        with self._lock:
            for path in [path for path in self._files if path.rpartition("/")[0] in folders]:
                self._close(self._files.pop(path))

    def drop_all(self) -> None:
        """Close all."""
        with self._lock:
            while self._files:
                self._close(self._files.popitem()[1])

    def _evict(self) -> None:
        while len(self._files) > self._capacity:
            self._close(self._files.popitem(last=False)[1])

    def _close(self, file: _OpenFile) -> None:
        if file.pins == 0:
            self._disk.close(file.descriptor)
        else:
            file.dropped = True
