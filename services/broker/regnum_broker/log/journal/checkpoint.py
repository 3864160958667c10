"""The high-watermark checkpoint: self-proving lines, later ones over earlier ones. Pure.

The first line names all replicas that have a high watermark, each further one those whose high watermark has changed
since. A torn last line was never finished; a bad line before a good one is damage, and then, as without any file, high
watermarks are 0.
"""

from collections.abc import Mapping
from typing import Any

from regnum_model.ids import PartitionKey, TopicId

from regnum_broker.log.disk.lines import decode_line, encode_line


def encode_checkpoint(high_watermarks: Mapping[PartitionKey, int]) -> bytes:
    """One line of the file."""
    return encode_line([[key.topic_id, key.partition, value] for key, value in high_watermarks.items()])


def decode_checkpoint(data: bytes) -> dict[PartitionKey, int]:
    """High watermarks by replica; empty if the file is not what was written. Those of 0 are left out."""
    lines = [_decoded(line) for line in data.split(b"\n") if line]
    if lines and lines[-1] is None:
        lines.pop()
    result: dict[PartitionKey, int] = {}
    for line in lines:
        if line is None:
            return {}
        result.update(line)
    return {key: value for key, value in result.items() if value}


def is_damaged(data: bytes) -> bool:
    """Whether a file says less than was written, and not only because a kill tore its last line."""
    lines = [_decoded(line) is not None for line in data.split(b"\n") if line]
    return bool(lines) and not (all(lines[:-1]) and any(lines))


def _decoded(line: bytes) -> dict[PartitionKey, int] | None:
    """What a line says; None if it is not what was written."""
    rows: Any = decode_line(line)
    if not isinstance(rows, list):
        return None
    result: dict[PartitionKey, int] = {}
    for row in rows:
        match row:
            case [str(id), int(partition), int(high_watermark)] if high_watermark >= 0:
                result[PartitionKey(TopicId(id), partition)] = high_watermark
            case _:
                return None
    return result
