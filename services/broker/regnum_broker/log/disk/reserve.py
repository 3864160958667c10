"""A file that holds room back on the disk, so that a full one can still be started on, deleted from and stopped on."""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from regnum_broker.log.disk.system_calls import Disk

ROOM_AGAIN_BYTES: Final = 2 * 1024 * 1024
"""Room beside the reserve with which a disk that refused records is not full any more: they fit, and some more."""

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says when the disk, or the owner's share of it, is full."""


class Reserve:
    """Room of a log directory for its own bookkeeping. For the writer thread; ``full`` may be read by any."""

    def __init__(self, path: Path, size_bytes: int, disk: Disk) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self._disk = disk
        self._full = False
        self._refused = False

    @property
    def full(self) -> bool:
        """Whether the room was given away, or could not be taken: nothing but bookkeeping is written then."""
        return self._full

    @property
    def wanting(self) -> bool:
        """Whether ``make`` has something to find out: records were refused, or there is no room for the reserve."""
        return self._full or self._refused

    def refused(self) -> None:
        """Take up that records found no room, whatever smaller ones find: so until ``make`` finds more."""
        self._refused = True

    def make(self) -> bool:
        """Take the room, unless it is held; returns whether the disk has it. Writes no data."""
        if self._size_bytes == 0:
            self._refused = False
            return True
        try:
            descriptor = self._disk.open(str(self._path), os.O_RDWR | os.O_CREAT)
            try:
                status = self._disk.status(descriptor)
                if status.st_size > self._size_bytes:
                    self._disk.ftruncate(descriptor, self._size_bytes)
                elif status.st_size < self._size_bytes:
                    self._disk.allocate(descriptor, self._size_bytes)
            finally:
                self._disk.close(descriptor)
        except OSError as error:
            self._full = error.errno in NO_SPACE
            with suppress(OSError):
                self._disk.unlink(str(self._path))
            return False
        self._full = False
        self._refused = self._refused and not self._has_room_again()
        return True

    def _has_room_again(self) -> bool:
        """Whether the system gives more room than the reserve: what it says is free may not be for this process."""
        probe = str(self._path.with_name("reserve.probe"))
        try:
            descriptor = self._disk.open(probe, os.O_RDWR | os.O_CREAT)
            try:
                # Its room goes with the descriptor, also with a kill.
                self._disk.unlink(probe)
                self._disk.allocate(descriptor, min(ROOM_AGAIN_BYTES, self._size_bytes))
            finally:
                self._disk.close(descriptor)
        except OSError:
            return False
        return True

    def release(self) -> bool:
        """Give the room to the bookkeeping; returns whether there was any."""
        if self._size_bytes == 0:
            return False
        try:
            self._disk.unlink(str(self._path))
        except OSError:
            released = False
        else:
            released = True
        self._full = True
        return released
