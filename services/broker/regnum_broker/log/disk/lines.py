"""Lines that prove themselves: a checksum, a space, JSON. Journal, snapshots and checkpoints are made of them. Pure."""

import json
from collections.abc import Iterable
from typing import Any, Final

import google_crc32c

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


def encode_line(value: object) -> bytes:
    """One line, with its newline."""
    return proven_line(_ENCODER.encode(value))


def proven_line(json_text: str) -> bytes:
    """The same of a value that is encoded already."""
    text = json_text.encode("utf-8")
    return b"%08x %s\n" % (google_crc32c.value(text), text)


def encode_lines(values: Iterable[object]) -> bytes:
    """Several lines."""
    return b"".join(map(encode_line, values))


def decode_line(line: bytes) -> Any | None:
    """The value of a line without its newline; None if the line is not what was written."""
    checksum, _, text = line.partition(b" ")
    try:
        if len(checksum) != 8 or int(checksum, 16) != google_crc32c.value(text):
            return None
        return json.loads(str(text, "utf-8"))
    except (ValueError, RecursionError):
        return None
