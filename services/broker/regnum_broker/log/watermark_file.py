"""The high watermarks of a log directory, as its checkpoint file has them.

Goals: saving a few of them, or forgetting those of deleted replicas, costs what changes and not what there is: a
broker saves every second, and has thousands of replicas.

Algorithm: what changed is a line at the end of the file. The file is made anew, with one line for all, at the first
save after a start (what a kill left of a line goes) and when the lines since take more room than the first one. A
deletion writes nothing: nobody asks for what the file says of replicas that are gone. Only before a replica of the
same name is created is that taken back, since it would be believed of the new one after a kill.

Not synced, except by a clean stop: after a loss of power a replica learns its high watermark from its leader.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from regnum_model.ids import PartitionKey

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.journal.checkpoint import encode_checkpoint

APPENDED_BYTES_MIN: Final = 4_096
"""So many bytes of lines are added to any file before it is made anew."""


class WatermarkFile:
    """For the writer thread; ``of`` for any."""

    def __init__(
        self, path: str, disk: GuardedDisk, values: Mapping[PartitionKey, int], *, stale: Iterable[PartitionKey]
    ) -> None:
        """Only assigns.

        Args:
            path: the file.
            disk: its disk.
            values: what it says of replicas that there are.
            stale: of which others it says something.
        """
        self._path: Final = path
        self._disk: Final = disk
        self._values: Final = dict(values)
        self._stale: Final = dict.fromkeys(stale, 0)
        self._size_bytes: int | None = None
        """Bytes of the file; None: it is to be made anew."""
        self._size_bytes_max = 0

    def of(self, key: PartitionKey) -> int:
        """What the file says of a replica; 0 if nothing."""
        return self._values.get(key, 0)

    def save(self, values: Mapping[PartitionKey, int]) -> None:
        """Save some; the others stay.

        Raises:
            ResourceExhaustedError: no room; what was saved last stands.
            DirectoryFailedError: the write failed.
        """
        changed = {key: value for key, value in values.items() if self._values.get(key, 0) != value}
        if changed:
            # A checkpoint that is too high makes the next start believe that records are missing.
            self._write(changed, bookkeeping=any(value < self._values.get(key, 0) for key, value in changed.items()))
            self._values.update(changed)

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """Take up that replicas are gone. Writes nothing."""
        for key in keys:
            if self._values.pop(key, 0):
                self._stale[key] = 0

    def make_way(self, keys: Collection[PartitionKey]) -> None:
        """Have the file say nothing of replicas that are to be created.

        Raises:
            ResourceExhaustedError: not even the reserve was there for it.
            DirectoryFailedError: the write failed.
        """
        if self._stale and not self._stale.keys().isdisjoint(keys):
            self._write({}, bookkeeping=True)

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
        self._replace(changed, sync=False, bookkeeping=bookkeeping)

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
        self._disk.replace(self._path, data, sync=sync, bookkeeping=bookkeeping)
        self._size_bytes = len(data)
        self._size_bytes_max = 2 * len(data) + APPENDED_BYTES_MIN
        self._stale.clear()
