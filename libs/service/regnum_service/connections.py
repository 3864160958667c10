"""TCP connections at a listener, as the kernel counts them: gRPC does not tell.

Read on the thread that makes the text of the metrics, never on an event loop: with 10,000 connections the kernel's
table has some 1.5 MB.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
"""Connections of this process's network, in version 4 and 6."""

ESTABLISHED: Final = b"01"
"""State of an open connection in these tables."""


def open_at(port: int, tables: Iterable[Path] = TABLES) -> int | None:
    """How many connections are open at a local port; None: this system does not tell. Any thread."""
    counts = [_count(table, b":%04X" % port) for table in tables]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _count(table: Path, ending: bytes) -> int | None:
    try:
        lines = table.read_bytes().splitlines()[1:]
    except OSError:
        return None
    return sum(1 for line in lines if _is_open_at(line, ending))


def _is_open_at(line: bytes, ending: bytes) -> bool:
    # "sl: local_address remote_address st ...": most lines are of other ports, and are told apart without being split.
    if ending not in line:
        return False
    columns = line.split(None, 4)
    return len(columns) > 3 and columns[1].endswith(ending) and columns[3] == ESTABLISHED


def counted_at(port: Callable[[], int], listener: str) -> Callable[[], Iterable[tuple[tuple[str, ...], float]]]:
    """What a metric reads: the connections at a listener by its name."""

    def read() -> Iterable[tuple[tuple[str, ...], float]]:
        count = open_at(port())
        return () if count is None else (((listener,), count),)

    return read
