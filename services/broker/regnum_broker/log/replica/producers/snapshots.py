"""Snapshots of idempotent producers: one small file for a log offset, so that a start need not read every head.

A snapshot proves itself by its checksum and is never needed: without it the state is rebuilt from an older one and
the batches that follow. One is taken when a segment is closed and one for each few megabytes between, so that a
truncation in the middle of a failover reads few heads; a start goes from the one where the last segment begins.

A snapshot is of all producers, and the writer thread, which all logs of a directory share, waits for it. So a large one
is followed by the next once the log has grown by as much: in sum they are in proportion to what was appended, however
small the segments are. ``PRODUCERS_MAX`` keeps a snapshot, and so what is read behind it, below ``INTERVAL_BYTES``.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from regnum_broker.log.disk.disk import GuardedDisk
from regnum_broker.log.disk.lines import decode_line, proven_line
from regnum_broker.log.disk.names import SNAPSHOT_SUFFIX, FileKind, file_name, file_named
from regnum_broker.log.replica.producers.states import KeptBatch, ProducerEntry, ProducerStates

SNAPSHOTS_KEPT: Final = 3
"""Newest snapshots at the beginnings of segments that stay."""
BETWEEN_KEPT: Final = 8
"""Newest snapshots between them that stay: a truncation goes back to the newest one below its offset."""
INTERVAL_BYTES: Final = 8 * 1024 * 1024
"""A log that has producers takes a snapshot when it has grown by so much, or by a quarter of a small segment."""
SMALL_BYTES: Final = 64 * 1024
"""A snapshot of so much, which is of hundreds of producers, takes about as long as it takes to close a segment, and is
taken with each."""


def encode_snapshot(entries: Mapping[int, ProducerEntry]) -> bytes:
    """The content of a snapshot file."""
    # Whole numbers are the same in JSON. An encoder takes twice as long, which counts with thousands of producers.
    producers = [
        f"[{id},{entry.epoch},[{','.join([_batch_text(batch) for batch in entry.batches])}],{entry.seen_ms}]"
        for id, entry in entries.items()
    ]
    return proven_line(f"[{','.join(producers)}]")


def _batch_text(batch: KeptBatch) -> str:
    return f"[{batch.first_sequence},{batch.last_sequence},{batch.base_offset},{batch.last_offset}]"


def decode_snapshot(data: bytes) -> ProducerStates | None:
    """What a snapshot file says; None if it is not what was written."""
    value: Any = decode_line(data.rstrip(b"\n"))
    if not isinstance(value, list):
        return None
    try:
        entries = {
            int(id): ProducerEntry(int(epoch), tuple(KeptBatch(*map(int, batch)) for batch in batches), int(seen_ms))
            for id, epoch, batches, seen_ms in value
        }
    except (TypeError, ValueError):
        return None
    return ProducerStates(entries) if all(entry.batches for entry in entries.values()) else None


def snapshots_in(folder: str) -> list[int]:
    """Offsets of the snapshots in a folder, in order."""
    try:
        with os.scandir(folder) as files:
            names = [file.name for file in files]
    except (FileNotFoundError, NotADirectoryError):
        return []
    named = map(file_named, names)
    return sorted(name.offset for name in named if name is not None and name.kind is FileKind.SNAPSHOT)


def _path(folder: str, offset: int) -> str:
    return f"{folder}/{file_name(offset)}{SNAPSHOT_SUFFIX}"


def newest_snapshot(
    folder: str, disk: GuardedDisk, *, at_most: int, present: Sequence[int]
) -> tuple[int, ProducerStates]:
    """Offset and state of the newest readable snapshot at or below ``at_most``; (0, nothing) if there is none.

    ``present``: offsets of those that are there, in order.
    """
    for offset in reversed(present):
        if offset <= at_most:
            states = decode_snapshot(disk.read_whole(_path(folder, offset), derived=True) or b"")
            if states is not None:
                return offset, states
    return 0, ProducerStates()


def save_snapshot(
    folder: str, disk: GuardedDisk, offset: int, states: ProducerStates, *, bases: Collection[int]
) -> int:
    """Write the snapshot of a log that ends at ``offset``, and remove the oldest ones; returns its size in bytes.

    Args:
        folder: folder of the replica.
        disk: its files.
        offset: log end.
        states: idempotent producers at that end.
        bases: where the segments begin, the one to come included.
    """
    snapshot = encode_snapshot(states.entries)
    disk.replace(_path(folder, offset), snapshot, sync=False)
    offsets = snapshots_in(folder)
    at_bases = [other for other in offsets if other in bases]
    between = [other for other in offsets if other not in bases]
    for old in (*at_bases[:-SNAPSHOTS_KEPT], *between[:-BETWEEN_KEPT]):
        disk.delete(_path(folder, old))
    return len(snapshot)


def remove_snapshots(folder: str, disk: GuardedDisk, *, above: int, present: Sequence[int] | None = None) -> None:
    """Remove the snapshots of offsets above ``above``: their records are gone.

    ``present``: offsets of those that are there; None: that is looked up.
    """
    for offset in snapshots_in(folder) if present is None else present:
        if offset > above:
            disk.delete(_path(folder, offset))
