"""Copies traces out of a bucket into a folder, for Spark.

Goals: bounded memory, disk and time; a file for many objects; nothing of an object twice, whatever broke in between.

Constraints: objects may be compressed (a thousand times, when somebody is hostile), be cut off, go away meanwhile; the
store may fall silent in the middle of one.

Algorithm: the listing is cut down to the newest (``selection``), whose parts are fetched side by side, newest first. A
part is one file: its objects one after another, unpacked, each ending with a line. An object that broke off is begun
again where it began in the file. When as many bytes are there as may be, what is left is left out and counted.
"""

import enum
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from regnum_failover.objects.selection import Part, Selection, parts, select
from regnum_failover.objects.store import ObjectGoneError, ObjectStore, StoreError, StoreUnreachableError

GZIP: Final = b"\x1f\x8b"
UNPACKED_BYTES_MAX: Final = 2**20
"""Unpacked at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a job reads at most."""

    days: float = 30
    """Older objects are left out."""
    objects_max: int = 200_000
    """Objects; some 100 bytes of memory for each."""
    bytes_max: int = 2**30
    """Bytes, of objects and as files."""
    attempts: int = 3
    """For each object."""
    threads: int = 8
    deadline_s: float = 900
    """For all of it together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What is in the folder."""

    objects_n: int
    """Objects that are there, whole."""
    bytes_n: int
    """Bytes of files."""
    notes: Sequence[str]
    """What was left out, and why: sentences for the report."""


class _Outcome(enum.Enum):
    """How the copy of an object went."""

    WHOLE = enum.auto()
    CUT = enum.auto()
    GONE = enum.auto()
    DAMAGED = enum.auto()


class NoTracesError(StoreError):
    """The store answers, and has none."""


class Fetching:
    """One copy out of a bucket. ``now_s`` counts since 1970, ``monotonic_s`` does not stand or jump."""

    def __init__(
        self, store: ObjectStore, limits: Limits, *, now_s: Callable[[], float], monotonic_s: Callable[[], float]
    ) -> None:
        self._store = store
        self._limits = limits
        self._now_s = now_s
        self._monotonic_s = monotonic_s
        self._ends_s = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._bytes_n = 0
        self._outcomes: Counter[_Outcome] = Counter()

    def run(self, prefix: str, folder: Path) -> Fetched:
        """Fill an empty folder. Raises NoTracesError or StoreError: the folder is then worth nothing."""
        self._ends_s = self._monotonic_s() + self._limits.deadline_s
        listing = (found for found in self._store.objects(prefix) if self._in_time())
        chosen = select(
            listing,
            since_s=self._now_s() - self._limits.days * 86_400,
            objects_max=self._limits.objects_max,
            bytes_max=self._limits.bytes_max,
        )
        if not chosen.kept:
            raise NoTracesError(_none(chosen, prefix, self._limits.days))
        with ThreadPoolExecutor(self._limits.threads, "fetch") as pool:
            futures = [pool.submit(self._fetch, part, folder) for part in parts(chosen.kept)]
            errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return Fetched(objects_n=self._outcomes[_Outcome.WHOLE], bytes_n=self._bytes_n, notes=self._notes(chosen))

    def _fetch(self, part: Part, folder: Path) -> None:
        done = False
        try:
            with (folder / part.name).open("w+b") as file:
                for key in part.keys:
                    if self._ended.is_set():
                        break
                    if self._full():
                        self._count(_Outcome.CUT)
                    else:
                        self._append(key, file)
            done = True
        finally:
            if not done:
                # The others need not go on for nothing.
                self._ended.set()

    def _append(self, key: str, file: IO[bytes]) -> None:
        begin = file.tell()
        for attempt in range(1, self._limits.attempts + 1):
            try:
                self._count(self._copied(key, file))
            except ObjectGoneError:
                self._back(file, begin)
                self._count(_Outcome.GONE)
            except StoreUnreachableError:
                self._back(file, begin)
                if attempt == self._limits.attempts:
                    raise
                continue
            return

    def _copied(self, key: str, file: IO[bytes]) -> _Outcome:
        """Append an object and the end of a line; returns how it went."""
        try:
            for piece in unpacked(self._store.read(key)):
                self._in_time()
                if self._full():
                    self._write(file, b"\n")
                    return _Outcome.CUT
                self._write(file, piece)
        except zlib.error:
            # What could be read of it is a torn line like any other.
            self._write(file, b"\n")
            return _Outcome.DAMAGED
        self._write(file, b"\n")
        return _Outcome.WHOLE

    def _write(self, file: IO[bytes], content: bytes) -> None:
        file.write(content)
        self._grow(len(content))

    def _back(self, file: IO[bytes], begin: int) -> None:
        self._grow(begin - file.tell())
        file.seek(begin)
        file.truncate()

    def _grow(self, by: int) -> None:
        with self._lock:
            self._bytes_n += by

    def _count(self, outcome: _Outcome) -> None:
        with self._lock:
            self._outcomes[outcome] += 1

    def _full(self) -> bool:
        return self._bytes_n >= self._limits.bytes_max

    def _in_time(self) -> bool:
        """True. Raises StoreError when the time for all of it is over."""
        if self._monotonic_s() >= self._ends_s:
            raise StoreError(
                f"the traces are not here after {self._limits.deadline_s:.0f} s: the store is slow, or they are many; "
                "read fewer days (--days), or give more time (--copy-deadline-s)"
            )
        return True

    def _notes(self, chosen: Selection) -> list[str]:
        limits = self._limits
        told = [
            (chosen.older_n, f"are older than {limits.days:g} days, or more than are read; left out"),
            (chosen.others_n, "are no OTLP JSON by their names (.json, .jsonl, or these with .gz); left out"),
            (
                self._outcomes[_Outcome.CUT],
                f"were left out, or cut off, because {limits.bytes_max / 2**20:,.0f} MiB were there; the oldest",
            ),
            (self._outcomes[_Outcome.GONE], "went away while others were read"),
            (self._outcomes[_Outcome.DAMAGED], "are no whole gzip; what could be read of them was"),
        ]
        return [f"{count:,} objects {what}" for count, what in told if count]


def unpacked(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The content, in pieces of bounded size: what begins as gzip is unpacked, member by member.

    Raises zlib.error for damaged gzip, and for gzip that is cut off; what came before has been handed out.
    """
    first = b""
    for piece in pieces:
        first += piece
        if len(first) >= len(GZIP):
            break
    if not first.startswith(GZIP):
        yield first
        yield from pieces
        return
    unpacker = zlib.decompressobj(wbits=31)
    waiting = first
    while True:
        while waiting:
            if unpacker.eof:
                unpacker = zlib.decompressobj(wbits=31)
            yield unpacker.decompress(waiting, UNPACKED_BYTES_MAX)
            waiting = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
        piece = next(pieces, b"")
        if not piece:
            break
        waiting = piece
    if not unpacker.eof:
        raise zlib.error("cut off")


def _none(chosen: Selection, prefix: str, days: float) -> str:
    where = f"below {prefix}/" if prefix else "in the bucket"
    if chosen.older_n:
        return f"there are no traces of the last {days:g} days {where}; {chosen.older_n:,} objects are older (--days)"
    if chosen.others_n:
        return (f"there are no traces {where}: {chosen.others_n:,} objects, and no name that ends in .json, .jsonl, "
                ".json.gz or .jsonl.gz; have the collector write otlp_json")  # fmt: skip
    return f"there are no traces {where}: no object at all"
