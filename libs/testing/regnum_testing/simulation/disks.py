"""A disk that keeps, when power fails, what was synced, and of the rest what chance leaves.

The files are real ones, in memory. For each change that is not synced yet the disk knows how to take it back. A loss of
power takes back, of each file's content and of each folder's names, the changes after a point that chance chooses, and
may leave a part of the first write of them. A killed process loses nothing but its descriptors.
"""

import errno
import os
import random
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Final

from regnum_broker.log import life
from regnum_broker.log.disk.names import folder_named
from regnum_broker.log.disk.system_calls import Disk, WriteBuffer
from regnum_model.ids import PartitionKey

from regnum_testing.simulation.machine import AtOnce


class _Change:
    """One that is not synced."""

    __slots__ = ("key", "left", "number", "take_back")

    def __init__(self, number: int, key: int, take_back: Callable[[], None], left: bytes = b"") -> None:
        self.number = number
        self.key = key
        self.take_back = take_back
        self.left = left
        """What a write wrote, of which a part may be left; empty: it is no write."""


class SimulatedDisk(Disk):
    """Of one broker, through all its lives."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        """``root``: what the broker's data directory is in, and nothing else."""
        self._graves: Final = root / "unlinked"
        self._graves.mkdir(parents=True)
        self._copies: Final = root / "copy"
        self.folder: Final = root / "data"
        """Data directory of the broker."""
        self._chance: Final = chance
        self._open: Final[dict[int, None]] = {}
        self._changes: Final[dict[int, _Change]] = {}
        self._by_key: Final[dict[int, dict[int, None]]] = {}
        self._held: Final[dict[int, int]] = {}
        """Descriptors of the disk's own, by inode, to take back with."""
        self._numbers = 0
        self._locked = False
        self.refuses: int | None = None
        """Errno of what changes the disk; None: it works. ENOSPC is answered to what takes room alone."""
        self.fails_once = False
        """Whether the next append to a log fails. The kernel drops half of what was not synced there."""
        self._dropped: int | None = None
        """Key of the file whose changes are lost when the process is gone."""
        self.has_refused = False
        """Whether the present process was answered so."""
        self._has_failed = False
        """Whether it has failed under the present process: what was not synced is never written any more, whatever a
        later sync says (reliability D32). It shows when the process is gone."""
        self.brought_back: set[PartitionKey] = set()
        """Replicas that were deleted, and are there again since the volume went back."""
        self.on_open: Callable[[str], None] = lambda _: None
        """Told of each file that is made."""

    def threads(self, name: str, count: int) -> Executor:
        """Threads of a job that waits for them."""
        del name, count
        return AtOnce()

    # Faults.

    def kill(self) -> None:
        """The process is gone: the kernel closes what it had open."""
        for descriptor in tuple(self._open):
            self.close(descriptor)
        self.has_refused = False
        dropped, self._dropped = self._dropped, None
        if self._has_failed:
            self._has_failed = False
            self.lose_power()
        elif dropped is not None:
            numbers = sorted(self._by_key.get(dropped, ()))
            for number in reversed(numbers[len(numbers) // 2 :]):
                self._changes[number].take_back()
            self._forget(dropped)

    def lose_power(self) -> int:
        """The machine is gone, too; returns how many changes it took along."""
        self.kill()
        doomed: list[_Change] = []
        for key in tuple(self._by_key):
            numbers = sorted(self._by_key[key])
            doomed += [self._changes[number] for number in numbers[self._chance.randint(0, len(numbers)) :]]
        firsts = {key: min(change.number for change in doomed if change.key == key) for key in {c.key for c in doomed}}
        for change in sorted(doomed, key=lambda change: -change.number):
            with suppress(OSError):
                change.take_back()
                if change.left and change.number == firsts[change.key]:
                    self._tear(change)
        for key in tuple(self._by_key):
            self._forget(key)
        return len(doomed)

    def _tear(self, change: _Change) -> None:
        part = self._chance.randint(0, len(change.left))
        held = self._held[change.key]
        os.pwrite(held, change.left[:part], os.fstat(held).st_size)

    def write_back(self) -> None:
        """The kernel writes what was not synced, as it does every few seconds."""
        for key in tuple(self._by_key):
            self._forget(key)

    def copy(self) -> None:
        """Remember what is there now, as a snapshot of the volume."""
        shutil.rmtree(self._copies, ignore_errors=True)
        shutil.copytree(self.folder, self._copies)

    @property
    def copied_in_this_life(self) -> bool:
        """Whether the copy is of the life that the directory is in: the directory could go back to it unseen (D64)."""
        here, copied = self.folder / life.FILE, self._copies / life.FILE
        return here.exists() and copied.exists() and here.read_bytes() == copied.read_bytes()

    def go_back(self) -> bool:
        """Put the copy back, or an empty volume; returns whether there is a copy. For a broker that is down."""
        for key in tuple(self._by_key):
            self._forget(key)
        before = self._replicas()
        shutil.rmtree(self.folder)
        if not self._copies.exists():
            return False
        shutil.copytree(self._copies, self.folder)
        self.brought_back = self._replicas() & (self.brought_back | self._replicas() - before)
        return True

    def _replicas(self) -> set[PartitionKey]:
        """Those that have a folder."""
        found = {folder_named(path.name) for path in (self.folder / "replicas").glob("*")}
        return {named.key for named in found if named is not None and not named.suffix}

    # What can be taken back.

    def _note(self, key: int, take_back: Callable[[], None], left: bytes = b"") -> None:
        self._numbers += 1
        self._changes[self._numbers] = _Change(self._numbers, key, take_back, left)
        self._by_key.setdefault(key, {})[self._numbers] = None

    def _forget(self, key: int) -> None:
        for number in self._by_key.pop(key, ()):
            del self._changes[number]
        held = self._held.pop(key, None)
        if held is not None:
            os.close(held)

    def _hold(self, key: int, descriptor: int) -> int:
        held = self._held.get(key)
        if held is None:
            # Opened anew: a duplicate would share the lock of the file.
            held = self._held[key] = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
        return held

    def _hold_folder(self, path: str) -> tuple[int, int]:
        """Key and descriptor of a folder."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            key = os.fstat(descriptor).st_ino
            if key not in self._held:
                self._held[key] = os.dup(descriptor)
            return key, self._held[key]
        finally:
            os.close(descriptor)

    def _refuse(self, *, takes_room: bool = False) -> None:
        if self.refuses is None or (self.refuses == errno.ENOSPC and not takes_room):
            return
        self.has_refused = True
        self._has_failed = self._has_failed or self.refuses != errno.ENOSPC
        raise OSError(self.refuses, os.strerror(self.refuses))

    # The calls.

    def open(self, path: str, flags: int) -> int:
        """Open; what is made can be taken back."""
        is_new = bool(flags & os.O_CREAT) and not os.path.lexists(path)
        if is_new:
            self._refuse(takes_room=True)
        # Also what is only written is read, to be taken back.
        descriptor = super().open(path, flags & ~(os.O_TRUNC | os.O_WRONLY) | os.O_RDWR)
        self._open[descriptor] = None
        if is_new:
            folder, name = os.path.split(path)
            key, held = self._hold_folder(folder)
            self._note(key, lambda: os.unlink(name, dir_fd=held))
            self.on_open(path)
        elif flags & os.O_TRUNC:
            self.ftruncate(descriptor, 0)
        return descriptor

    def close(self, descriptor: int) -> None:
        """Close."""
        self._open.pop(descriptor, None)
        super().close(descriptor)

    def open_folder(self, path: str) -> int:
        """Open a folder."""
        descriptor = super().open_folder(path)
        self._open[descriptor] = None
        return descriptor

    def pwritev(self, descriptor: int, buffers: Sequence[WriteBuffer], position: int) -> int:
        """Write; it can be taken back."""
        self._refuse(takes_room=True)
        status = os.fstat(descriptor)
        if self.fails_once and Path(f"/proc/self/fd/{descriptor}").readlink().suffix == ".log":
            self.fails_once, self.has_refused, self._dropped = False, True, status.st_ino
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        data = b"".join(buffers)
        before, size = os.pread(descriptor, len(data), position), status.st_size
        held = self._hold(status.st_ino, descriptor)

        def take_back() -> None:
            os.pwrite(held, before, position)
            os.ftruncate(held, size)

        self._note(status.st_ino, take_back, data if position == size else b"")
        return os.pwrite(descriptor, data, position)

    def ftruncate(self, descriptor: int, size: int) -> None:
        """Cut; it can be taken back."""
        self._refuse()
        status = os.fstat(descriptor)
        cut = os.pread(descriptor, max(0, status.st_size - size), size)
        held = self._hold(status.st_ino, descriptor)

        def take_back() -> None:
            os.ftruncate(held, status.st_size)
            os.pwrite(held, cut, size)

        self._note(status.st_ino, take_back)
        super().ftruncate(descriptor, size)

    def allocate(self, descriptor: int, size: int) -> None:
        """Make the file as long as that."""
        self._refuse(takes_room=True)
        # Room is nothing that anything here runs out of but by ``refuses``.
        os.ftruncate(descriptor, size)

    def room(self, path: str) -> tuple[int, int]:
        """Always the same, whatever machine this is."""
        del path
        return 8 << 30, 16 << 30

    def fdatasync(self, descriptor: int) -> None:
        """Nothing of it is taken back any more."""
        self._refuse()
        if not self._has_failed and (key := os.fstat(descriptor).st_ino) != self._dropped:
            self._forget(key)

    def put(self, path: str, suffix: str, content: bytes) -> None:
        """See Disk."""
        self._refuse(takes_room=True)
        super().put(path, suffix, content)

    def rename(self, source: str, target: str) -> None:
        """Give another name; it can be taken back."""
        self._refuse()
        folder, name = os.path.split(target)
        was_folder, was_name = os.path.split(source)
        grave = self._bury(target)
        super().rename(source, target)
        if (named := folder_named(was_name)) is not None:
            self.brought_back.discard(named.key)
        key, held = self._hold_folder(folder)
        _, was_held = self._hold_folder(was_folder)

        def take_back() -> None:
            os.rename(name, was_name, src_dir_fd=held, dst_dir_fd=was_held)
            if grave is not None:
                os.link(grave, name, dst_dir_fd=held)

        self._note(key, take_back)

    def unlink(self, path: str) -> None:
        """Remove a name; it can be taken back."""
        self._refuse()
        folder, name = os.path.split(path)
        grave = self._bury(path)
        super().unlink(path)
        key, held = self._hold_folder(folder)
        if grave is not None:
            self._note(key, lambda: os.link(grave, name, dst_dir_fd=held))

    def _bury(self, path: str) -> Path | None:
        """Keep what has a name that goes."""
        self._numbers += 1
        grave = self._graves / str(self._numbers)
        try:
            os.link(path, grave)
        except OSError as error:
            if error.errno in {errno.ENOENT, errno.EPERM, errno.EISDIR}:
                return None
            raise
        return grave

    def make_folder(self, path: str) -> None:
        """Create; it can be taken back."""
        self._refuse(takes_room=True)
        super().make_folder(path)
        folder, name = os.path.split(path)
        key, held = self._hold_folder(folder)
        self._note(key, lambda: os.rmdir(name, dir_fd=held))

    def remove_folder(self, path: str) -> None:
        """It is gone for good, with what was in it."""
        self._refuse()
        key = Path(path).stat().st_ino
        super().remove_folder(path)
        self._forget(key)
