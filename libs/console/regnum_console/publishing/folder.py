"""What has come to the trace files of a folder and was not published yet.

Goals: every line is published, also by a process that was killed, and once as far as that can be; files that were
removed before their lines were read are counted.

Algorithm: a file beside the traces has how far each of them was published, by identity (``growth``: device, inode and
the first line). It is replaced when the cluster has acknowledged lines, so that after a kill the last of them come
twice, and are one span each to every reader.
"""

import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from regnum_insight.spans.growth import Grown, look_at_folder
from regnum_insight.spans.intake import SUFFIX

CHUNK_BYTES: Final = 8 * 2**20
"""Read at a time. A line that is longer is passed over, and counted."""
POSITIONS: Final = ".published.json"
"""Name of the file that says how far the others were published."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file was published."""

    offset: int
    """Bytes."""
    size: int
    """Bytes of whole lines that it had when it was seen last."""


class Chunk(NamedTuple):
    """Lines that come next."""

    key: str
    """Identity of their file."""
    lines: list[bytes]
    """Without their ends; none where one line has no end within CHUNK_BYTES."""
    end: int
    """Where they end in the file."""


class TraceFiles:
    """A folder. Not for several threads at once."""

    def __init__(
        self,
        folder: Path,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        look: Callable[[Path, Mapping[str, int]], dict[str, Grown]] = look_at_folder,
    ) -> None:
        """Only assigns; ``look`` finds the files of a folder."""
        self._look: Final = look
        self._chunk_bytes: Final = chunk_bytes
        self._folder: Final = folder
        self._path: Final = folder / POSITIONS
        self._positions: dict[str, Position] | None = None
        self.lost_bytes = 0
        """Of files that went, or of lines that were too long, before they were published; as far as it was seen."""

    def next(self) -> Chunk | None:
        """Lines that come next, of one file; None: all is published. Raises OSError, ValueError for bad positions."""
        known = self._known()
        offsets = {key: one.offset for key, one in known.items()}
        found = self._look(self._folder, offsets)
        if not known.keys() <= found.keys():
            # One that was set aside during the look may have been missed under both its names. It is no removed one:
            # what is forgotten is published again from its begin.
            found |= self._look(self._folder, offsets)
        present: dict[str, tuple[Grown, Position]] = {}
        for key, file in found.items():
            if file.by_line and Path(file.name).suffix == SUFFIX:
                before = known.get(key)
                offset = before.offset if before is not None and file.size >= before.offset else 0
                present[key] = file, Position(offset, file.size)
        self._count_lost(known, present)
        self._positions = {key: position for key, (_, position) in present.items()}
        for key, (file, position) in present.items():
            if position.offset < position.size:
                chunk = self._chunk(key, file, position)
                if chunk is not None:
                    return chunk
        return None

    def published(self, chunk: Chunk) -> None:
        """Remember that it is. Raises OSError."""
        known = self._known()
        before = known[chunk.key]
        if not chunk.lines:
            self.lost_bytes += chunk.end - before.offset
        known[chunk.key] = Position(chunk.end, max(chunk.end, before.size))
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({key: asdict(one) for key, one in known.items()}), encoding="utf-8")
        new.replace(self._path)

    def _known(self) -> dict[str, Position]:
        if self._positions is None:
            try:
                text = self._path.read_text(encoding="utf-8")
            except FileNotFoundError:
                text = "{}"
            try:
                self._positions = {key: Position(**one) for key, one in json.loads(text).items()}
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"{self._path} does not say how far files were published; remove it, and all is published again"
                ) from error
        return self._positions

    def _count_lost(self, before: Mapping[str, Position], now: Collection[str]) -> None:
        self.lost_bytes += sum(was.size - was.offset for key, was in before.items() if key not in now)

    def _chunk(self, key: str, file: Grown, position: Position) -> Chunk | None:
        data = _read(file, position.offset, min(position.size - position.offset, self._chunk_bytes))
        if not data:
            # It was set aside under another name since: the next look finds it there.
            return None
        whole, end, _ = data.rpartition(b"\n")
        if not end:
            return Chunk(key, [], position.offset + len(data))
        return Chunk(key, [line for line in whole.split(b"\n") if line.strip()], position.offset + len(whole) + 1)


def _read(found: Grown, offset: int, length: int) -> bytes:
    """Bytes of a file; none where its name has gone, or stands for another file by now. Raises OSError."""
    try:
        with Path(found.name).open("rb") as file:
            stat = os.fstat(file.fileno())
            if f"{stat.st_dev}:{stat.st_ino}" != found.inode:
                return b""
            file.seek(offset)
            return file.read(length)
    except FileNotFoundError:
        return b""
