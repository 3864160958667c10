"""The journal of a log directory on the disk, in two copies.

Goals: creating a thousand replicas, or becoming leader of them, costs one append and one fsync (design section 8); no
single fault of the medium makes the directory forget a replica.

Constraints: a kill leaves at most a torn last line; nothing here is needed to read batches.

Algorithm: one self-proving line for each entry, after a head that names the generation. Both files are made without
what is obsolete when the directory is opened, each time a generation higher, and then get the same appends; only the
first is synced each time. So copies of one generation have the same lines at the same positions, the copy at most
lacks the newest ones, and each bad line is taken from the other file. The first file counts where both are good; the
copy counts alone when the first is gone. Copies of different generations were left by a kill between two renames:
then the first file is whole and the copy is of no use.

What remains: a torn tail is dropped. A bad line with good ones after it that the copy does not have is damage: it is
counted, and the start then cannot prove that the logs are complete.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from regnum_broker.log.disk.disk import DamagedFileError, GuardedDisk
from regnum_broker.log.disk.lines import decode_line, encode_line, encode_lines
from regnum_broker.log.errors import ResourceExhaustedError
from regnum_broker.log.journal.entries import JournalEntry, JournalState, compacted, fold, from_json, to_json

HEAD: Final = "journal"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of a journal file."""

    end: int
    """Position of its newline."""
    entry: JournalEntry | None
    """None: the head, or what was not written so."""
    good: bool
    """Whether it proves itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """A journal file."""

    at: dict[int, _Line]
    """Its lines by the positions at which they begin."""
    generation: int | None
    """None: the head is missing or bad."""

    @property
    def bad(self) -> list[int]:
        """Positions of lines that do not prove themselves."""
        return [position for position, line in self.at.items() if not line.good]


def merged(first: bytes | None, copy: bytes | None) -> JournalState:
    """The state that two journal files tell of; None: there is no such file. Pure."""
    if first is None and copy is None:
        return JournalState(missing=True)
    own = _lines(first or b"")
    cut = len(first or b"") < len(copy or b"")
    if own.at and not own.bad and not cut:
        # As after every stop but a bad one; and a start reads as many lines as a broker has replicas, and more.
        return _folded(own)
    other = _lines(copy or b"")
    if not own.at:
        repairs = ("the journal was taken from its copy",) if other.at else ()
        return replace(_folded(other), missing=not other.at, repairs=repairs)
    if not _of_one_generation(own, other):
        return _folded(own)
    kept = {position: line for position, line in own.at.items() if line.good}
    found = {position: line for position, line in other.at.items() if line.good}
    added = [line for position, line in found.items() if position not in kept]
    unreplaced = {
        position: own.at[position]
        for position in own.bad
        if not any(begin <= position <= line.end for begin, line in found.items())
    }
    lines = dict(sorted({**unreplaced, **found, **kept}.items()))
    state = _folded(_Lines(at=lines, generation=own.generation))
    return replace(state, repairs=(f"{len(added)} lines of the journal were taken from its copy",) if added else ())


def _of_one_generation(own: _Lines, other: _Lines) -> bool:
    """Whether two files got the same lines. Where a head cannot be read, the other lines tell."""
    if own.generation is not None and other.generation is not None:
        return own.generation == other.generation
    shared = [at for at in own.at.keys() & other.at.keys() if own.at[at].entry and other.at[at].entry]
    return bool(shared) and all(own.at[at] == other.at[at] for at in shared)


def _lines(data: bytes) -> _Lines:
    at: dict[int, _Line] = {}
    generation: int | None = None
    position = 0
    for text in data.split(b"\n"):
        end = position + len(text)
        if text:
            match decode_line(text):
                case [str(kind), int(number)] if kind == HEAD and position == 0:
                    generation = number
                    at[position] = _Line(end=end, entry=None, good=True)
                case value:
                    entry = from_json(value)
                    at[position] = _Line(end=end, entry=entry, good=entry is not None)
        position = end + 1
    return _Lines(at=at, generation=generation)


def _folded(lines: _Lines) -> JournalState:
    """The state of lines; bad ones at the end were never finished, those before are damage."""
    damaged = bad = 0
    for line in lines.at.values():
        if line.good:
            damaged, bad = damaged + bad, 0
        else:
            bad += 1
    entries = (line.entry for line in lines.at.values() if line.entry is not None)
    return fold(entries, damaged_lines=damaged)


class Journal:
    """The open journal of a directory. For the writer thread, but for ``sync``."""

    def __init__(self, path: Path, disk: GuardedDisk) -> None:
        self._path: Final = str(path)
        self._copy_path: Final = f"{path}.copy"
        self._disk: Final = disk
        self._size_bytes = 0
        self._copied = False
        self._generation = 0

    def load(self) -> JournalState:
        """Read it. Changes nothing."""
        first, copy = self._disk.read_whole(self._path), self._disk.read_whole(self._copy_path)
        self._generation = max(_generation_of(first), _generation_of(copy))
        return merged(first, copy)

    def rewrite(self, state: JournalState) -> None:
        """Make both files anew with the fewest entries that make ``state``; to be called before the first ``append``.

        On a disk without room for that they stay as they are, if they are whole.

        Raises:
            ResourceExhaustedError: no room to repair them.
            DirectoryFailedError: the disk failed.
        """
        entries = encode_lines(map(to_json, compacted(state)))
        first, copy = self._disk.read_whole(self._path), self._disk.read_whole(self._copy_path)
        if first is not None and first == _head(_generation_of(first)) + entries:
            self._size_bytes = len(first)
            if copy != first:
                self._copy(first)
            else:
                self._copied = True
            return
        data = _head(self._generation + 1) + entries
        try:
            self._disk.replace(self._path, data, sync=True, bookkeeping=True)
        except ResourceExhaustedError:
            if first is None or merged(first, None).incomplete:
                raise
            # It says the same with more words, but for a line that was never finished.
            self._size_bytes = _whole_bytes(first)
            if self._size_bytes < len(first):
                self._disk.truncate(self._path, self._size_bytes)
            self._copied = copy == first[: self._size_bytes]
            return
        self._generation += 1
        self._size_bytes = len(data)
        self._copy(data)

    def append(self, entries: Iterable[JournalEntry], *, sync: bool) -> None:
        """Add entries: one write for each file, and one fsync if ``sync``.

        Raises:
            ResourceExhaustedError: no room; nothing was added.
            DirectoryFailedError: the write or the fsync failed.
        """
        data = encode_lines(map(to_json, entries))
        if data:
            self._append(data)
        if sync:
            self.sync()

    def sync(self) -> None:
        """Bring all that was added to the disk. For any thread.

        Raises:
            DirectoryFailedError: what was added may be lost.
        """
        try:
            self._disk.sync(self._path)
        except DamagedFileError as error:
            raise self._disk.fail(str(error)) from error

    def sync_copy(self) -> None:
        """Bring the copy to the disk as well: for a clean stop."""
        if self._copied:
            try:
                self._disk.sync(self._copy_path)
            except DamagedFileError:
                self._copied = False

    def _append(self, data: bytes) -> None:
        try:
            self._disk.write(self._path, [data], self._size_bytes, bookkeeping=True)
        except DamagedFileError as error:
            self._restore(error)
            self._disk.write(self._path, [data], self._size_bytes, bookkeeping=True)
        if self._copied:
            try:
                self._disk.write(self._copy_path, [data], self._size_bytes, bookkeeping=True)
            except (DamagedFileError, ResourceExhaustedError):
                # What is there is still the beginning of the journal; the next start makes the copy whole.
                self._copied = False
        self._size_bytes += len(data)

    def _restore(self, error: DamagedFileError) -> None:
        """Put the copy in place of a journal that was removed or cut under the process."""
        copy = self._disk.read_whole(self._copy_path) if self._copied else None
        if copy is None or len(copy) != self._size_bytes:
            raise self._disk.fail(
                f"{error}; the broker must stop: start it again, and it takes its replicas up from their folders"
            ) from error
        self._disk.replace(self._path, copy, sync=True, bookkeeping=True)

    def _copy(self, data: bytes) -> None:
        try:
            self._disk.replace(self._copy_path, data, sync=True, bookkeeping=True)
        except ResourceExhaustedError:
            self._copied = False
        else:
            self._copied = True


def _head(generation: int) -> bytes:
    return encode_line([HEAD, generation])


def _whole_bytes(data: bytes) -> int:
    """Bytes of the good lines."""
    return max((line.end + 1 for line in _lines(data).at.values() if line.good), default=0)


def _generation_of(data: bytes | None) -> int:
    return _lines((data or b"").partition(b"\n")[0]).generation or 0
