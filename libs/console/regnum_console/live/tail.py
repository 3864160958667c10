"""A folder of traces, read on as processes write into it.

Constraints: a file may be set aside under another name while it is read (``regnum-broker-1.jsonl`` becomes
``regnum-broker-1.000001.jsonl``), cut, or removed, and what a killed process wrote last may be half a line. A folder
may hold gigabytes from before.

Algorithm: a file is known by its inode, so that another name changes nothing; one that is shorter than what was read
of it, or whose inode has come to another file's name, begins anew. Of what was there at the first look the newest
BACKLOG_BYTES are read. One look reads LOOK_BYTES at most, and the next one goes on. A line that is not JSON costs
itself.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
from regnum_insight.spans.otlp import Selection, spans_of
from regnum_insight.spans.span import Span

BACKLOG_BYTES: Final = 64 * 2**20
"""Of the past, so much is read."""
LOOK_BYTES: Final = 16 * 2**20
"""Bytes of one look."""
LINE_BYTES_MAX: Final = 8 * 2**20
"""A line that is longer is left out."""
_NAME: Final = re.compile(r"(?P<stem>.+?)(\.\d{6,})?\.jsonl")

Found = dict[tuple[int, int], tuple[Path, os.stat_result]]
"""Files by device and inode."""


def files_in(folder: Path) -> Found:
    """Files of traces in a folder, without those that go while it is looked at; none where there is no folder yet."""
    found: Found = {}
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for one in entries:
            with suppress(FileNotFoundError):
                if _NAME.fullmatch(one.name) and one.is_file():
                    stat = one.stat()
                    found[stat.st_dev, stat.st_ino] = Path(one.path), stat
    return found


@dataclass(slots=True)
class _Followed:
    """A file, and how far it was read."""

    stem: str
    """Its name without the number that it gets when it is set aside."""
    offset: int
    """Bytes that were read."""
    rest: bytes = b""
    """Begin of a line whose end was not there yet."""
    skips: bool = False
    """Whether what comes belongs to a line whose begin was not read."""


class TraceTail:
    """Reads what is new in a folder. Not for several threads at once."""

    def __init__(
        self,
        folder: Path,
        selection: Selection,
        *,
        backlog_bytes: int = BACKLOG_BYTES,
        look_bytes: int = LOOK_BYTES,
        find: Callable[[Path], Found] = files_in,
    ) -> None:
        """Only assigns; ``selection`` says what is held of the spans, ``find`` lists the files of a folder."""
        self._folder: Final = folder
        self._selection: Final = selection
        self._backlog_bytes: Final = backlog_bytes
        self._look_bytes: Final = look_bytes
        self._find: Final = find
        self._known: dict[tuple[int, int], _Followed] = {}
        self._looked = False
        self.lines_torn = 0
        """Lines that were no JSON, or too long."""

    def look(self) -> list[Span]:
        """Spans that came since the last look, in the order of files; none where there is no folder."""
        files = self._files()
        if not self._looked:
            self._looked = bool(files)
            self._begin(files)
        spans: list[Span] = []
        left = self._look_bytes
        present = set()
        for path, stat in files:
            key = (stat.st_dev, stat.st_ino)
            present.add(key)
            stem = _stem(path.name)
            followed = self._known.get(key)
            if followed is None or followed.stem != stem or stat.st_size < followed.offset:
                followed = self._known[key] = _Followed(stem, 0)
            if stat.st_size > followed.offset and left > 0:
                data = _read(path, key, followed.offset, left)
                followed.offset += len(data)
                left -= len(data)
                for line in self._lines(followed, data):
                    spans += self._spans(line)
        self._known = {key: one for key, one in self._known.items() if key in present}
        return spans

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        """Files and what they are, those that were written last at the end."""
        found = self._find(self._folder)
        if not self._known.keys() <= found.keys():
            # One that was set aside during the look may have been missed under both its names. It is no removed one:
            # what is forgotten is read again from its begin.
            found |= self._find(self._folder)
        return sorted(found.values(), key=lambda one: (one[1].st_mtime_ns, one[0].name))

    def _begin(self, files: list[tuple[Path, os.stat_result]]) -> None:
        """Of what is there already, begin with the newest."""
        left = self._backlog_bytes
        for path, stat in reversed(files):
            offset = max(0, stat.st_size - left)
            left -= stat.st_size - offset
            followed = _Followed(_stem(path.name), offset, skips=offset > 0)
            self._known[stat.st_dev, stat.st_ino] = followed

    def _lines(self, followed: _Followed, data: bytes) -> Iterator[bytes]:
        *whole, rest = (followed.rest + data).split(b"\n")
        if followed.skips and whole:
            followed.skips = False
            del whole[0]
        followed.rest = rest
        if len(rest) > LINE_BYTES_MAX:
            followed.rest, followed.skips = b"", True
            self.lines_torn += 1
        yield from whole

    def _spans(self, line: bytes) -> list[Span]:
        if not line.strip():
            return []
        try:
            document = orjson.loads(line)
        except orjson.JSONDecodeError:
            self.lines_torn += 1
            return []
        return [span for span in spans_of(document, self._selection) if isinstance(span, Span)]


def _stem(name: str) -> str:
    match = _NAME.fullmatch(name)
    return name if match is None else match["stem"]


def _read(path: Path, key: tuple[int, int], offset: int, length: int) -> bytes:
    """Bytes of a file; none where the name has gone, or stands for another file by now."""
    try:
        with path.open("rb") as file:
            stat = os.fstat(file.fileno())
            if (stat.st_dev, stat.st_ino) != key:
                return b""
            file.seek(offset)
            return file.read(length)
    except FileNotFoundError:
        return b""
