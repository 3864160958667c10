"""The high-watermark checkpoint: one self-proving line. A damaged or missing one means high watermarks of 0. Pure."""

from collections.abc import Mapping
from typing import Any

from regnum_model.ids import PartitionKey, TopicId

from regnum_broker.log.lines import decode_line, encode_line


def encode_checkpoint(high_watermarks: Mapping[PartitionKey, int]) -> bytes:
    """The content of the file."""
    return encode_line([[key.topic_id, key.partition, value] for key, value in high_watermarks.items()])


def decode_checkpoint(data: bytes) -> dict[PartitionKey, int]:
    """High watermarks by replica; empty if the file is not what was written."""
    value: Any = decode_line(data.rstrip(b"\n"))
    result: dict[PartitionKey, int] = {}
    for row in value if isinstance(value, list) else []:
        match row:
            case [str(id), int(partition), int(high_watermark)] if high_watermark >= 0:
                result[PartitionKey(TopicId(id), partition)] = high_watermark
            case _:
                return {}
    return result
