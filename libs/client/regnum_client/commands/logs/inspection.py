"""What a segment file holds, as rows; nothing is changed, and no broker is asked.

A running broker may append to the file meanwhile: what had been there at the beginning is looked at.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from regnum_records.decompress import DECOMPRESSED_BYTES_MAX
from regnum_records.errors import CorruptBatchError
from regnum_records.header import CODEC_MASK, CONTROL_BIT, BatchHeader, Codec
from regnum_records.read import read_records
from regnum_records.record import Record
from regnum_records.scan import READ_BYTES, Damage, ScannedBatch, scan

from regnum_client.commands.rendering import Row, content_of

_SEGMENT_NAME: Final = re.compile(r"(\d{20})\.log")


@dataclass(slots=True, kw_only=True)
class Totals:
    """What was found in one file."""

    file: str
    """Its path, as it was given."""
    size_bytes: int
    """Its size when the inspection began."""
    batches: int = 0
    """Batches that were shown, bad ones among them."""
    records: int = 0
    """Records of batches without a problem, as their heads say."""
    problems: int = 0
    """Damages, and batches and records with a problem."""
    first_offset: int | None = None
    """Offset of the first record; None: there is no good batch."""
    next_offset: int | None = None
    """Offset after the last record of the last good batch; None: there is none."""
    readable_bytes: int | None = None
    """Position of the first problem; None: there is no problem."""
    readable_next_offset: int | None = None
    """Offset after the last record before the first problem; None: there is no problem, or nothing before it."""

    def problem_at(self, position: int) -> None:
        """Something is wrong there."""
        self.problems += 1
        if self.readable_bytes is None:
            self.readable_bytes = position
            self.readable_next_offset = self.next_offset

    def good(self, header: BatchHeader) -> None:
        """A batch without a problem."""
        if self.first_offset is None:
            self.first_offset = header.base_offset
        self.next_offset = header.next_offset
        self.records += header.record_count

    def row(self) -> Row:
        """For programs."""
        return {
            "kind": "file",
            "file": self.file,
            "bytes": self.size_bytes,
            "batches": self.batches,
            "records": self.records,
            "first_offset": self.first_offset,
            "next_offset": self.next_offset,
            "problems": self.problems,
            "readable_bytes": self.size_bytes if self.readable_bytes is None else self.readable_bytes,
            "readable_next_offset": self.next_offset if self.readable_bytes is None else self.readable_next_offset,
        }

    def sentence(self) -> str:
        """For people."""
        held = f"{self.batches} batches, {self.records} records{_offsets(self.first_offset, self.next_offset)}"
        if self.readable_bytes is None:
            return f"{self.file}: {held}, {self.size_bytes} bytes, no damage found"
        readable = f"readable up to byte {self.readable_bytes}{_offsets(self.first_offset, self.readable_next_offset)}"
        problems = "1 problem" if self.problems == 1 else f"{self.problems} problems"
        return f"{self.file}: {problems}; {readable}; in all of its {self.size_bytes} bytes {held}"


def inspect_file(path: Path, *, with_records: bool, totals: Totals) -> Iterator[Row]:
    """Rows of a file, as they are found: batches, damages, and records if they are wanted.

    Args:
        path: the file.
        with_records: decode the batches; finds those that cannot be, too.
        totals: counts what was found.
    """
    name = _SEGMENT_NAME.fullmatch(path.name)
    with path.open("rb", buffering=READ_BYTES // 8) as file:
        found = scan(file, size_bytes=totals.size_bytes, base_offset=0 if name is None else int(name[1]))
        for one in found:
            if isinstance(one, Damage):
                totals.problem_at(one.position)
                yield _damage_row(totals.file, one)
                continue
            totals.batches += 1
            records: list[Record] = []
            problem = one.problem
            if with_records and problem is None:
                records, problem = _records(file, one)
            if problem is None:
                totals.good(one.header)
            else:
                totals.problem_at(one.position)
            yield _batch_row(totals.file, one, problem)
            for record in records:
                yield _record_row(totals.file, one.position, record)


def _records(file: BinaryIO, one: ScannedBatch) -> tuple[list[Record], str | None]:
    size_bytes = one.header.size_bytes
    if size_bytes > DECOMPRESSED_BYTES_MAX:
        return [], f"its records are not decoded: it has {size_bytes} bytes, more than any reader takes"
    file.seek(one.position)
    try:
        return list(read_records(file.read(size_bytes))), None
    except CorruptBatchError as error:
        return [], str(error)


def _batch_row(file: str, one: ScannedBatch, problem: str | None) -> Row:
    header = one.header
    idempotent = header.producer_id >= 0
    return {
        "kind": "batch",
        "file": file,
        "position": one.position,
        "bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id if idempotent else None,
        "producer_epoch": header.producer_epoch if idempotent else None,
        "base_sequence": header.base_sequence if idempotent else None,
        "records": header.record_count,
        "codec": _codec_name(header),
        "control": bool(header.attributes & CONTROL_BIT),
        "crc_ok": one.crc_ok,
        "base_timestamp_ms": header.base_timestamp_ms,
        "max_timestamp_ms": header.max_timestamp_ms,
        "problem": problem,
    }


def _damage_row(file: str, one: Damage) -> Row:
    return {
        "kind": "damage",
        "file": file,
        "position": one.position,
        "bytes": one.size_bytes,
        "problem": one.reason,
    }


def _record_row(file: str, position: int, record: Record) -> Row:
    headers: list[dict[str, Any]] = [{"key": name, **content_of("value", value)} for name, value in record.headers]
    return {
        "kind": "record",
        "file": file,
        "position": position,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **content_of("key", record.key),
        **content_of("value", record.value),
        "headers": headers,
    }


def _codec_name(header: BatchHeader) -> str:
    number = header.attributes & CODEC_MASK
    return Codec(number).name.lower() if number <= max(Codec) else str(number)


def _offsets(first: int | None, following: int | None) -> str:
    return "" if first is None or following is None else f" (offsets {first} to {following - 1})"
