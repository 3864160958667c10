"""One offset for each replica of a log directory in one file: high watermarks in one, log starts in another.

Goals: saving a few of them, or forgetting those of deleted replicas, costs what changes and not what there is: a
broker saves every second, and has thousands of replicas.

Algorithm: what changed is a line at the end of the file. The file is made anew, with one line for all, at the first
save after a start (what a kill left of a line goes) and when the lines since take more room than the first one. A
deletion writes nothing: nobody asks for what the file says of replicas that are gone. Only before a replica of the
same name is created is that taken back, since it would be believed of the new one after a kill.

Not synced by itself, except by a clean stop: after a loss of power a replica learns its high watermark from its leader.
What has to be on the disk before anybody is told (``starts``) is brought there by ``sync``, on another thread.
"""

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.journal.checkpoint import encode_checkpoint

SYNC_ATTEMPTS: Final = 10
"""A file that is made anew meanwhile grows before it is made anew again: a second attempt is rare, a third never is."""

APPENDED_BYTES_MIN: Final = 4_096
"""So many bytes of lines are added to any file before it is made anew."""
DURABLE_APPENDED_BYTES_MIN: Final = 64 * 1024
"""The same where it is on the disk before it takes the place of the one before: the writer waits for that, and a topic
at full speed with a small limit has a line every tenth of a second."""


class OffsetFile:
    """For the writer thread; ``of`` for any, ``sync`` for one other."""

    def __init__(
        self,
        path: str,
        disk: GuardedDisk,
        values: Mapping[PartitionKey, int],
        *,
        stale: Iterable[PartitionKey],
        durable: bool = False,
    ) -> None:
        """Only assigns.

        Args:
            path: the file.
            disk: its disk.
            values: what it says of replicas that there are.
            stale: of which others it says something.
            durable: whether a file that is made anew is on the disk before it takes the place of the one before.
        """
        self._durable: Final = durable
        self._path: Final = path
        self._disk: Final = disk
        self._values: Final = dict(values)
        self._stale: Final = dict.fromkeys(stale, 0)
        self._size_bytes: int | None = None
        """Bytes of the file; None: it is to be made anew."""
        self._size_bytes_max = 0
        self._appended_bytes_min: Final = DURABLE_APPENDED_BYTES_MIN if durable else APPENDED_BYTES_MIN
        self._names = 0
        """How often the file's name was given to another one, twice: it is odd while that is done."""
        self._names_synced = 0

    @property
    def is_used(self) -> bool:
        """Whether there is anything to say, or the file says something."""
        return bool(self._values or self._stale or self._size_bytes)

    def of(self, key: PartitionKey) -> int:
        """What the file says of a replica; 0 if nothing."""
        return self._values.get(key, 0)

    def save(self, values: Mapping[PartitionKey, int], *, bookkeeping: bool = False) -> None:
        """Save some; the others stay. What goes back, or is ``bookkeeping``, may use the room that is held back.

        Raises:
            ResourceExhaustedError: no room; what was saved last stands.
            DirectoryFailedError: the write failed.
        """
        changed = {key: value for key, value in values.items() if self._values.get(key, 0) != value}
        if changed:
            # An offset that is too high makes the next start believe that records are missing, or were deleted.
            lowered = any(value < self._values.get(key, 0) for key, value in changed.items())
            self._write(changed, bookkeeping=bookkeeping or lowered)
            self._values.update(changed)

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Take up that replicas are gone. Writes nothing."""
        for key in keys:
            if self._values.pop(key, 0):
                self._stale[key] = 0

    def make_way(self, keys: Collection[PartitionKey]) -> bool:
        """Have the file say nothing of replicas that are to be created; returns whether it said anything.

        Raises:
            ResourceExhaustedError: not even the reserve was there for it.
            DirectoryFailedError: the write failed.
        """
        if self._stale and not self._stale.keys().isdisjoint(keys):
            self._write({}, bookkeeping=True)
            return True
        return False

    def sync(self) -> None:
        """Bring to the disk what was saved before. For one thread at a time, and that need not be the writer.

        Raises:
            ResourceExhaustedError: no descriptor for it now.
            DirectoryFailedError: it failed.
        """
        if self._size_bytes is None:
            # Nothing was saved in this run.
            return
        for _ in range(SYNC_ATTEMPTS):
            # The writer may have made the file anew under this thread: then that one has to be there.
            with suppress(DamagedFileError):
                self._disk.sync(self._path)
                # Looked at behind that: if it was the file that is being made anew, then its name has to be there too.
                names = self._names
                if names != self._names_synced:
                    self._disk.sync_directory(self._path.rpartition("/")[0])
                    if names % 2 == 0:
                        self._names_synced = names
                return
        raise self._disk.fail(f"{self._path} cannot be brought to the disk: it was removed again and again")

    def save_all(self) -> None:
        """Make the file anew and bring it to the disk.

        Raises:
            ResourceExhaustedError: no room; what was saved last stands.
            DirectoryFailedError: the disk failed.
        """
        self._replace({}, sync=True, bookkeeping=True)

    def _write(self, changed: Mapping[PartitionKey, int], *, bookkeeping: bool) -> None:
        if self._size_bytes is not None:
            line = encode_checkpoint({**self._stale, **changed})
            if self._size_bytes + len(line) <= self._size_bytes_max and self._append(line, bookkeeping=bookkeeping):
                return
        self._replace(changed, sync=self._durable, bookkeeping=bookkeeping)

    def _append(self, line: bytes, *, bookkeeping: bool) -> bool:
        """Add a line; False: the file was removed or cut under the process."""
        assert self._size_bytes is not None, "made anew first"  # noqa: S101
        try:
            self._disk.write(self._path, [line], self._size_bytes, bookkeeping=bookkeeping)
        except DamagedFileError:
            return False
        self._size_bytes += len(line)
        self._stale.clear()
        return True

    def _replace(self, changed: Mapping[PartitionKey, int], *, sync: bool, bookkeeping: bool) -> None:
        values = {key: value for key, value in {**self._values, **changed}.items() if value}
        data = encode_checkpoint(values)
        self._names += 1
        try:
            self._disk.replace(self._path, data, sync=sync, bookkeeping=bookkeeping)
        finally:
            self._names += 1
        self._size_bytes = len(data)
        self._size_bytes_max = 2 * len(data) + self._appended_bytes_min
        self._stale.clear()
