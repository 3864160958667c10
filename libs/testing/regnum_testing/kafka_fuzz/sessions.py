"""What real clients of Kafka have sent, request by request.

A file of ``recorded/`` is what one client sent, frame behind frame as on the wire: two of each call and version.
``record`` writes it.
"""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from regnum_kafka_wire.frames import SIZE_BYTES

FOLDER: Final = Path(__file__).parent / "recorded"
SUFFIX: Final = ".frames"


def frames_of(data: bytes) -> Iterator[bytes]:
    """Whole frames at the beginning of what was sent, without their sizes."""
    at = 0
    while at + SIZE_BYTES <= len(data):
        (size,) = struct.unpack_from(">i", data, at)
        end = at + SIZE_BYTES + size
        if end > len(data):
            return
        yield data[at + SIZE_BYTES : end]
        at = end


def recorded_sessions(folder: Path = FOLDER) -> Mapping[str, tuple[bytes, ...]]:
    """Frames by the name of the client that sent them."""
    return {path.stem: tuple(frames_of(path.read_bytes())) for path in sorted(folder.glob(f"*{SUFFIX}"))}
